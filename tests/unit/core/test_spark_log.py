"""The files of a Spark checkpoint: read as Spark writes them, refused by name where not."""

from __future__ import annotations

import pytest

from keyrange.core.checkpoint import Checkpoint
from keyrange.core.offsets import OffsetRange, TopicPartition
from keyrange.core.spark_log import ranges_of, read_planned_batch, read_progress
from keyrange.errors import InvalidError

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000123,"conf":{}}'


def batch(batch_id: int, *lines: str) -> str:
    return "\n".join(("v1", METADATA, *lines))


def test_a_planned_batch_holds_the_end_of_every_source() -> None:
    read = read_planned_batch(3, batch(3, '{"t":{"0":5}}', "-", '{"u":{"0":7}}'))
    assert read.batch_id == 3
    assert read.planned_at_ms == 1_700_000_000_123
    assert read.ends == (Checkpoint({T0: 5}), None, Checkpoint({U0: 7}))


@pytest.mark.parametrize("line", ["-", "", "5", "[", "[" * 100_000, '{"sourceVersion":1}'])
def test_an_offset_of_another_source_is_none(line: str) -> None:
    assert read_planned_batch(0, batch(0, line, "-")).ends[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2\n{}\n-",
        "{}",
        "v1",
        "v1\n",
        "v1\n[]\n-",
        "v1\n5\n-",
        "v1\n{\n-",
        'v1\n{"batchTimestampMs":null}\n-',
        'v1\n{"batchTimestampMs":"x"}\n-',
        'v1\n{"batchTimestampMs":1e999}\n-',
        "v1\n" + "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_a_file_that_is_not_sparks_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        read_planned_batch(9, text)
    assert caught.value.condition.name == "UNSUPPORTED_CHECKPOINT"
    assert "offsets of batch 9 " in caught.value.message


def test_what_is_planned_above_the_last_commit_is_unfinished() -> None:
    planned = [read_planned_batch(number, batch(number)) for number in (2, 0, 1)]
    progress = read_progress("q", planned, [0, 1])
    assert [each.batch_id for each in progress.planned] == [0, 1, 2]
    assert [each.batch_id for each in progress.unfinished] == [2]
    assert [each.batch_id for each in read_progress("q", planned, []).unfinished] == [0, 1, 2]


def test_a_batch_reads_from_the_end_before_or_from_its_initial_positions() -> None:
    before = read_planned_batch(0, batch(0, '{"t":{"0":5}}'))
    initial = '{"@keyrange":{"version":1,"initial":{"t":{"1":2}}},"t":{"0":8,"1":4}}'
    rows = ranges_of(read_planned_batch(1, batch(1, initial, "-")), before)
    assert rows == [
        {"source": 0, "partition": T0, "range": OffsetRange(5, 8)},
        {"source": 0, "partition": T1, "range": OffsetRange(2, 4)},
    ]
    [row] = ranges_of(before, None)
    assert row["range"] is None


def test_an_offset_of_a_newer_version_is_refused_and_not_taken_for_foreign() -> None:
    newer = '{"@keyrange": {"version": 99}}'
    with pytest.raises(InvalidError, match="UNSUPPORTED_CHECKPOINT"):
        read_planned_batch(3, f'v1\n{{"batchTimestampMs": 1}}\n{newer}')
