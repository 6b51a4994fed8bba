"""Rows that a transaction sends: which are taken, and in which order they wait."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kafka.record import MemoryRecords

from keyrange.consumer import transaction_output
from keyrange.consumer.settings import parse_consumer_options
from keyrange.consumer.transaction_output import OutputTopics, TransactionOutput
from keyrange.errors import KeyrangeError
from keyrange.wire.produced_batches import seal
from keyrange.wire.topic_limits import TopicLimits


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were asked about; each has two partitions."""
    asked: list[str] = []

    def found(topic: str) -> SimpleNamespace:
        asked.append(topic)
        return SimpleNamespace(leaders=[1, 1])

    cluster = SimpleNamespace(topic=found, close=lambda: None)
    monkeypatch.setattr(transaction_output, "Cluster", lambda _: cluster)

    def takes(_: object, topic: str) -> TopicLimits:
        return TopicLimits(message_bytes=500, needs_keys=topic == "compacted")

    monkeypatch.setattr(transaction_output, "topic_settings", takes)
    return asked


@pytest.fixture
def output(asked: list[str], tmp_path: Path) -> TransactionOutput:
    options = {"kafka.bootstrap.servers": "h:1", "commitTable": str(tmp_path), "commitGroup": "g"}
    return TransactionOutput(OutputTopics(parse_consumer_options(options)))


def sent(output: TransactionOutput) -> list[tuple[str, int, bytes | None]]:
    """Topic, partition and value of what waits, in the order in which it is sent."""
    found = []
    for batch in output.batches():
        seal(batch.content, 1, 0, 0)
        records = MemoryRecords(batch.content.tobytes()).next_batch() or ()
        found += [(*batch.partition, each.value) for each in records]
    return found


def test_a_column_may_name_topics(output: TransactionOutput, asked: list[str]) -> None:
    rows = [
        {"value": "1", "topic": "x", "partition": 0},
        {"value": "2", "topic": "y", "partition": 1},
    ]
    output.add(pa.Table.from_pylist(rows), "")
    output.add(rows, "")
    output.add([], "")
    assert sorted(sent(output)) == 2 * [("x", 0, b"1")] + 2 * [("y", 1, b"2")]
    # What a topic takes is asked for once.
    assert sorted(asked) == ["x", "y"]


def test_rows_of_other_columns_keep_their_place(output: TransactionOutput) -> None:
    for at in range(6):
        key = {"key": "k"} if at % 2 else {}
        output.add([{"value": str(at), "partition": 0} | key], "out")
    assert [value for _, _, value in sent(output)] == [b"%d" % at for at in range(6)]


def test_dicts_may_leave_columns_out(output: TransactionOutput) -> None:
    output.add([{"value": "1"}, {"value": None, "partition": 1, "key": b"k"}], "out")
    found = sent(output)
    assert {value for _, _, value in found} == {b"1", None}
    assert ("out", 1, None) in found


@pytest.mark.parametrize(
    ("rows", "topic", "told"),
    [
        ([{"value": b"1"}], "", "INVALID_TOPIC_COLUMNS"),
        ([{"value": b"1", "topic": "x"}], "out", "INVALID_TOPIC_COLUMNS"),
        ([{"value": b"1", "topic": "x"}, {"value": b"2"}], "", "INVALID_TOPIC_COLUMNS"),
        ([{"value": 1}], "out", "INVALID_TOPIC_COLUMNS"),
        ([{"value": b"1"}, {"value": "2", "key": 1.5}], "out", "INVALID_TOPIC_COLUMNS"),
        ([{"value": b"1", "more": 1}], "out", "INVALID_TOPIC_COLUMNS"),
        # One row in the place of several, and what has none.
        ({"value": b"1"}, "out", "INVALID_TOPIC_COLUMNS.*a list of dicts, and are of type dict"),
        ("text", "out", "INVALID_TOPIC_COLUMNS.*of type str"),
        ([b"1"], "out", "INVALID_TOPIC_COLUMNS.*a row of type bytes"),
        (None, "out", "INVALID_TOPIC_COLUMNS.*of type NoneType"),
        ([{"value": b"1", "partition": 2}], "out", "INVALID_RECORD"),
        ([{"value": b"1"}], "compacted", "INVALID_RECORD"),
        ([{"value": b"1" * 1_000}], "out", "MESSAGE_TOO_LARGE"),
        ([{"value": b"8"}, {"value": b"1" * 1_000}], "out", "MESSAGE_TOO_LARGE"),
    ],
)
def test_what_no_topic_takes_is_refused_at_once(
    output: TransactionOutput, rows: Any, topic: str, told: str
) -> None:
    """All rows of a call are taken, or none."""
    output.add([{"value": "7", "partition": 0}], "out")
    with pytest.raises(KeyrangeError, match=told):
        output.add(rows, topic)
    assert sent(output) == [("out", 0, b"7")]
