"""The options about individual commits: what they take, what they refuse together, and that no
secret of the object store is shown."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.model.columns import COLUMNS, USUAL
from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.options import Mode, parse_options
from keyrange.options.commits import CommitOptions
from keyrange.options.option import rows_of
from keyrange.options.secrets import Secret

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
INDIVIDUAL = {"commitMode": "individual", "commitTable": "/lake/commits"}


def commits(given: dict[str, str], mode: Mode | None = "stream") -> CommitOptions:
    return parse_options(REQUIRED | given, mode).commits


def refused(given: dict[str, str], mode: Mode | None = "stream") -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | given, mode)
    assert caught.value.condition.name == "INVALID_OPTIONS"
    return caught.value.message.split("; option ")


def test_without_a_word_whole_batches_are_committed() -> None:
    assert commits({}) == CommitOptions(group="default")
    assert parse_options(REQUIRED, "stream").chosen_columns == USUAL


def test_any_share_of_records_may_fail_unless_it_is_said() -> None:
    assert commits(INDIVIDUAL).failure_ratio_max is None
    assert commits(INDIVIDUAL | {"maxFailureRatio": "0.25"}).failure_ratio_max == 0.25
    [said] = refused(INDIVIDUAL | {"maxFailureRatio": "25"})
    assert said == "option 'maxFailureRatio' must be a number from 0.0 to 1.0, not '25'"


def test_the_table_says_where_everything_else_is() -> None:
    assert commits(INDIVIDUAL) == CommitOptions(
        individual=True,
        table="/lake/commits",
        group="default",
        dead_letter_table="/lake/commits_dead_letters",
        verdict_directory="/lake/commits_verdicts",
        state_directory="/lake/commits_state",
    )
    slash = commits(INDIVIDUAL | {"commitTable": "s3://lake/commits/"})
    assert slash.dead_letter_table == "s3://lake/commits_dead_letters"
    named = {"deadLetterTable": "/a", "verdictDirectory": "/b", "stateDirectory": "/c"}
    named["commitGroup"] = "g"
    assert commits(INDIVIDUAL | named) == CommitOptions(
        individual=True,
        table="/lake/commits",
        group="g",
        dead_letter_table="/a",
        verdict_directory="/b",
        state_directory="/c",
    )


def test_the_group_is_that_of_kafka_unless_it_is_named() -> None:
    kafka = {"kafka.group.id": "flights"}
    assert commits(INDIVIDUAL | kafka).group == "flights"
    assert commits(INDIVIDUAL | kafka | {"commitGroup": "own"}).group == "own"


# Option, field, values with what they are, values that are refused.
VALUES: list[tuple[str, str, dict[str, Any], list[str]]] = [
    (
        "commitTable.onFreshStart",
        "on_fresh_start",
        {"fail": "fail", "resume": "resume", "ignore": "ignore"},
        ["", "restart"],
    ),
    (
        "commit.isolation",
        "transactional",
        {"immediate": False, "transactional": True},
        ["", "read_committed"],
    ),
    ("keyOrder", "keeps_order", {"keep": True, "skipAhead": False}, ["", "skip"]),
    ("unmentioned", "unmentioned_is_done", {"done": True, "retry": False}, ["", "fail"]),
    ("record.timeout", "record_timeout_ms", {"0": 0, "30s": 30_000}, ["", "-1", "1y"]),
    ("batch.time.budget", "batch_time_budget_ms", {"0": 0, "2m": 120_000}, ["", "-1", "x"]),
    ("availableNow.redelivery", "available_now", {"leave": "leave", "drain": "drain"}, ["wait"]),
    ("availableNow.redelivery.timeout", "available_now_timeout_ms", {"1h": 3_600_000}, ["", "1.5"]),
    ("deadLetterTopic", "dead_letter_topic", {"dead.letters": "dead.letters"}, ["", "a b", "ü"]),
    ("commitTable", "table", {"/t": "/t", "abfss://c@a/t": "abfss://c@a/t"}, ["", "/", "t", "./t"]),
    ("deadLetterTable", "dead_letter_table", {"/t": "/t", "s3://b/t": "s3://b/t"}, ["", "a.b.c"]),
    ("verdictDirectory", "verdict_directory", {"/t": "/t", "file:/t": "file:/t"}, ["t", "s3:/t"]),
    ("commitGroup", "group", {"g": "g", " g ": "g"}, ["", " ", "g" * 2**15]),
    ("max.bytes.ranges.to.commit", "range_bytes_max", {"2m": 2 << 20}, ["", "1023", "2g"]),
]


@pytest.mark.parametrize(("name", "field", "taken", "not_taken"), VALUES)
def test_values(name: str, field: str, taken: dict[str, Any], not_taken: list[str]) -> None:
    for value, expected in taken.items():
        assert getattr(commits(INDIVIDUAL | {name: value}), field) == expected
    for value in not_taken:
        messages = refused(INDIVIDUAL | {name: value})
        assert any(message.startswith(f"option '{name}' must ") for message in messages)


def test_how_often_and_when_a_record_comes_again() -> None:
    given = {"maxDeliveries": "3", "redelivery.backoff": "1s", "redelivery.backoff.max": "1s"}
    assert commits(INDIVIDUAL | given).policy == RedeliveryPolicy(3, 1_000, 1_000)
    [message] = refused(INDIVIDUAL | {"redelivery.backoff": "11m"})
    assert message == (
        "option 'redelivery.backoff' must not be longer than redelivery.backoff.max: "
        "660000 and 600000 ms"
    )
    assert refused(INDIVIDUAL | {"maxDeliveries": "0"})


def test_a_range_is_bounded_by_records_and_by_bytes() -> None:
    assert commits(INDIVIDUAL).limits == DeliveryLimits(10_000)
    given = {"max.num.ranges.to.commit": "1", "max.range.lag": "7"}
    assert commits(INDIVIDUAL | given).limits == DeliveryLimits(1, 7)
    assert commits(INDIVIDUAL | {"max.bytes.ranges.to.commit": "4000"}).limits.pending_max == 100
    for name in given:
        assert refused(INDIVIDUAL | {name: "0"})


@pytest.mark.parametrize(
    ("given", "individual"),
    [
        ({"allow.individual.commit": "true"}, True),
        ({"allow.individual.commit": "false"}, False),
        ({"allow.individual.commit": "true", "commitMode": "individual"}, True),
        ({"allow.individual.commit": "false", "commitMode": "batch"}, False),
    ],
)
def test_the_proposals_name_for_it_is_the_same(given: dict[str, str], individual: bool) -> None:
    assert commits({"commitTable": "/t"} | given).individual is individual


@pytest.mark.parametrize(("mode", "allowed"), [("batch", "true"), ("individual", "false")])
def test_two_names_for_one_thing_must_not_contradict(mode: str, allowed: str) -> None:
    messages = refused(INDIVIDUAL | {"commitMode": mode, "allow.individual.commit": allowed})
    said = [each for each in messages if "allow.individual.commit" in each]
    assert said == [
        "option 'allow.individual.commit' says the same as commitMode, and must not contradict "
        f"it: {allowed} and {mode}"
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"splitBy": "offset"}, "option 'commitMode' individual needs splitBy=keyRange"),
        ({"minPartitions": "4"}, "option 'minPartitions' is not valid with commitMode=individual"),
        (
            {"maxRecordsPerPartition": "4"},
            "option 'maxRecordsPerPartition' is not valid with commitMode=individual",
        ),
        ({"deadLetterTable": "/lake/commits/"}, "option 'deadLetterTable' must not be the same"),
        (
            {"deadLetterTable": "/x", "verdictDirectory": "/x"},
            "option 'verdictDirectory' must not be the same path as deadLetterTable",
        ),
    ],
)
def test_what_does_not_go_with_it(given: dict[str, str], text: str) -> None:
    [message] = refused(INDIVIDUAL | given)
    assert message.startswith(text)


def test_filters_are_not_pushed_down() -> None:
    [message] = refused(INDIVIDUAL | {"filterPushdown": "true"}, None)
    assert message == "option 'filterPushdown' is not valid with commitMode=individual"


def test_a_number_of_tasks_goes_with_key_ranges() -> None:
    given = INDIVIDUAL | {"splitBy": "keyRange", "minPartitions": "4"}
    assert commits(given).individual


def test_it_needs_a_table_and_everything_is_said_at_once() -> None:
    messages = refused(
        {"commitMode": "individual", "splitBy": "offset", "maxDeliveries": "x", "commitGroup": ""}
    )
    assert len(messages) == 4
    assert any("individual needs commitTable" in each for each in messages)


def test_batch_reads_commit_nothing() -> None:
    [message, *_] = refused({"commitMode": "individual"}, "batch")
    assert message.startswith("option 'commitMode' individual is not valid in batch reads")
    assert not commits({"commitMode": "batch"}, "batch").individual
    rows = rows_of(CommitOptions)
    only_streams = {row.name for row in rows} - {"commitMode", "allow.individual.commit"}
    for row in rows:
        assert (row.modes == ("stream",)) == (row.name in only_streams)


def test_what_says_which_record_it_is_is_always_there() -> None:
    def columns(given: dict[str, str]) -> tuple[str, ...]:
        return parse_options(REQUIRED | INDIVIDUAL | given, "stream").chosen_columns

    needed = ("topic", "partition", "offset", "keyHash")
    assert columns({}) == (*USUAL, "keyHash")
    assert columns({"columns": "value"}) == ("value", *needed)
    assert columns({"columns": ",".join(COLUMNS)}) == COLUMNS
    assert columns({"columns": "headers"}) == ("topic", "partition", "offset", "headers", "keyHash")


def test_settings_of_the_object_store_are_kept_and_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        "objectStore.AWS_SECRET_ACCESS_KEY": "hunter2",
        "OBJECTSTORE.aws_region": "eu",
        "objectStore.token": "env:LAKE_TOKEN",
    }
    options = parse_options(REQUIRED | INDIVIDUAL | given, "stream")
    assert options.commits.storage == {
        "AWS_SECRET_ACCESS_KEY": Secret("hunter2"),
        "aws_region": Secret("eu"),
        "token": Secret("env:LAKE_TOKEN"),
    }
    assert "hunter2" not in f"{options!r}{options}{options.commits.storage}"
    monkeypatch.setenv("LAKE_TOKEN", "later")
    assert options.commits.revealed_storage() == {
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "aws_region": "eu",
        "token": "later",
    }
    [message] = refused(INDIVIDUAL | {"objectStore.key": "env:hunter2 no"})
    assert message.startswith("option 'objectStore.key' must name what env: refers to")
    assert "hunter2" not in message
    [message] = refused(INDIVIDUAL | {"objectStore.": "x"})
    assert message.startswith("option 'objectStore.' must name a setting")


@pytest.mark.parametrize(
    "reads",
    [{"subscribe": "t,dead"}, {"assign": '{"dead":[3]}'}, {"subscribePattern": "d.*"}],
    ids=str,
)
def test_dead_letters_do_not_come_as_records(reads: dict[str, str]) -> None:
    given = {"kafka.bootstrap.servers": "h:9092", **INDIVIDUAL, **reads}
    with pytest.raises(InvalidError, match="'deadLetterTopic' must not be a topic that the query"):
        parse_options(given | {"deadLetterTopic": "dead"}, "stream")
    parse_options(given | {"deadLetterTopic": "other"}, "stream")
