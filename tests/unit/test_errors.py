"""The error catalogue: what an error says, what type it has, how it travels."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as multiprocessing and Spark's workers do with exceptions
import re

import pytest

from keyrange import errors
from keyrange.errors import CATALOGUE, KeyrangeError, Kind, error, invalid_options

TYPES = {
    Kind.INVALID: errors.InvalidError,
    Kind.UNAVAILABLE: errors.UnavailableError,
    Kind.DENIED: errors.DeniedError,
    Kind.DATA_LOSS: errors.DataLossError,
    Kind.CORRUPT: errors.CorruptError,
}


def test_every_condition_is_its_types_error_and_says_name_message_and_remedy() -> None:
    for name, condition in CATALOGUE.items():
        failure = error(name, "it went wrong", topic="t", partition=0)
        assert type(failure) is TYPES[condition.kind], name
        assert failure.retriable is condition.retriable, name
        assert str(failure) == (
            f"[{name}] it went wrong (topic=t, partition=0). To mend it: {condition.remedy}."
        )


def test_rows_of_the_catalogue_read_as_sentences() -> None:
    row = re.compile(r"[A-Z0-9]+([._][A-Z0-9]+)*")
    assert [name for name, each in CATALOGUE.items() if each.name != name] == []
    assert [name for name in CATALOGUE if not row.fullmatch(name)] == []
    remedies = {name: each.remedy for name, each in CATALOGUE.items()}
    assert [name for name, remedy in remedies.items() if not remedy] == []
    assert [name for name, remedy in remedies.items() if remedy.endswith((".", " "))] == []


def test_a_remedy_by_which_records_are_lost_or_doubled_says_so() -> None:
    moves = re.compile(
        r"new checkpoint|new one and|begin anew|startingOffsets (behind|from before|at)"
        r"|start behind|failOnDataLoss=false|onFreshStart"
        r"|commits reset(?!`, start)|without --to|badValues=null"
    )
    says = re.compile(
        r"twice|second time|again|left out|leaves? (them|their records|it) out|give up|given up"
        r"|nothing is (lost|left out)|nulls|still has"
    )
    remedies = {name: each.remedy for name, each in CATALOGUE.items()}
    moving = {name for name, remedy in remedies.items() if moves.search(remedy)}
    assert {"COMMITS_OF_ANOTHER_QUERY", "STATE_GONE", "CHECKPOINT_BEHIND"} < moving
    assert [name for name in sorted(moving) if not says.search(remedies[name])] == []
    first, _, last = remedies["COMMITS_OF_ANOTHER_QUERY"].partition("onFreshStart=ignore")
    assert "onFreshStart=resume" in first
    assert {"again", "never", "lost"} <= set(re.findall(r"\w+", last))


def test_a_remedy_names_what_a_user_may_have_written() -> None:
    """Where no option is at fault none is looked up; a name may be an argument's."""
    remedies = {name: each.remedy for name, each in CATALOGUE.items()}
    looks_up = {name for name, remedy in remedies.items() if "`keyrange options" in remedy}
    assert looks_up == {"INVALID_OPTIONS"}
    topic = remedies["UNKNOWN_TOPIC_OR_PARTITION"]
    for named in ("subscribe", "into_topic", "topic_writer", "deadLetterTopic"):
        assert named in topic
    assert "topic's name" in remedies["REGISTRY_SUBJECT_UNKNOWN"]


def test_only_what_passes_by_itself_is_retriable() -> None:
    retriable = {name for name, row in CATALOGUE.items() if row.retriable}
    unavailable = {name for name, row in CATALOGUE.items() if row.kind is Kind.UNAVAILABLE}
    assert retriable == unavailable | {"CORRUPT_FRAME"}


def test_an_error_survives_the_way_from_a_worker() -> None:
    for name in CATALOGUE:
        failure = error(name, "it went wrong", offset=7)
        for travelled in (pickle.loads(pickle.dumps(failure)), copy.copy(failure)):
            assert type(travelled) is type(failure), name
            assert str(travelled) == str(failure)
            assert travelled.condition == failure.condition, name
            assert travelled.message == failure.message, name


def test_a_condition_without_a_row_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        error("NO_SUCH_CONDITION", "it went wrong")
    with pytest.raises(KeyError):
        KeyrangeError("NO_SUCH_CONDITION", "it went wrong")


def test_all_violations_are_one_error() -> None:
    failure = invalid_options(["option 'a' is wrong", "option 'b' too"])
    assert failure.message == "option 'a' is wrong; option 'b' too"
    assert failure.condition.name == "INVALID_OPTIONS"


def test_context_follows_in_the_order_given_and_may_be_absent() -> None:
    assert error("BROKER_ERROR", "x", b=1, a=2).message == "x (b=1, a=2)"
    assert error("BROKER_ERROR", "x").message == "x"


def test_an_error_that_quotes_another_has_one_period() -> None:
    quoted = error("BROKER_UNREACHABLE", "no broker answered")
    assert ".." not in str(error("MEMBERSHIP_ENDED", f"this consumer is no member: {quoted}"))
