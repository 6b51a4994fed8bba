"""The error catalogue: what an error says, what type it has, how it travels."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as multiprocessing and Spark's workers do with exceptions

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


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_condition_is_its_types_error_and_says_name_message_and_remedy(name: str) -> None:
    condition = CATALOGUE[name]
    failure = error(name, "it went wrong", topic="t", partition=0)
    assert type(failure) is TYPES[condition.kind]
    assert failure.retriable is condition.retriable
    assert str(failure) == (
        f"[{name}] it went wrong (topic=t, partition=0). To mend it: {condition.remedy}."
    )


@pytest.mark.parametrize("name", CATALOGUE)
def test_rows_of_the_catalogue_read_as_sentences(name: str) -> None:
    condition = CATALOGUE[name]
    assert condition.name == name
    assert name.replace(".", "_").replace("_", "").isalnum()
    assert name == name.upper()
    assert condition.remedy
    assert not condition.remedy.endswith((".", " "))


def test_only_what_passes_by_itself_is_retriable() -> None:
    retriable = {name for name, row in CATALOGUE.items() if row.retriable}
    unavailable = {name for name, row in CATALOGUE.items() if row.kind is Kind.UNAVAILABLE}
    assert retriable == unavailable | {"CORRUPT_FRAME"}


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_error_survives_the_way_from_a_worker(name: str) -> None:
    failure = error(name, "it went wrong", offset=7)
    for travelled in (pickle.loads(pickle.dumps(failure)), copy.copy(failure)):
        assert type(travelled) is type(failure)
        assert str(travelled) == str(failure)
        assert travelled.condition == failure.condition
        assert travelled.message == failure.message


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
