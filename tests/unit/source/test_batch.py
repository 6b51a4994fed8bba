"""Late binding of batch reads: which bounds of the planned splits stay open."""

from __future__ import annotations

import pytest

from keyrange.model.offset_splits import plan_splits
from keyrange.model.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.source.batch import KeyRangeBatchReader, late_bound
from keyrange.source.stream import KeyRangeStreamReader
from queries.scripted import SERVERS

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
RANGES = {T0: OffsetRange(2, 10), T1: OffsetRange(5, 5), T2: OffsetRange(0, 4)}


def bounds(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], most: int | None = None
) -> list[tuple[int, int, int]]:
    splits = plan_splits(RANGES, dict.fromkeys(RANGES, 1.0), None, most)
    bound = late_bound(splits, RANGES, start, end)
    return [(split.partition, split.from_offset, split.until_offset) for split in bound]


def test_earliest_and_latest_stay_open_and_empty_partitions_with_them() -> None:
    everything = bounds(dict.fromkeys(RANGES, EARLIEST), dict.fromkeys(RANGES, LATEST))
    assert everything == [(0, EARLIEST, LATEST), (1, EARLIEST, LATEST), (2, EARLIEST, LATEST)]


def test_only_the_outer_bounds_of_a_cut_partition_stay_open() -> None:
    start, end = dict.fromkeys(RANGES, EARLIEST), {T0: LATEST, T1: 5, T2: 4}
    assert bounds(start, end, most=4) == [(0, EARLIEST, 6), (0, 6, LATEST), (2, EARLIEST, 4)]


def test_a_start_at_the_end_is_fixed_where_the_end_was() -> None:
    """A task can read from an earliest offset on, but not from a latest one."""
    start = {T0: 2, T1: LATEST, T2: LATEST}
    end = {T0: 10, T1: LATEST, T2: LATEST}
    assert bounds(start, end) == [(0, 2, 10), (1, 5, LATEST), (2, 0, LATEST)]


def test_an_option_that_changes_nothing_is_named_in_both_reads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse_options(SERVERS | {"subscribe": "t", "parallelism": "8"})
    monkeypatch.setattr("keyrange.kafka.subscribed_topics.retrying", lambda *_: [])
    KeyRangeBatchReader(options).partitions()
    stream = KeyRangeStreamReader(options)
    stream._opened()
    stream.stop()
    said = [each.getMessage() for each in caplog.records]
    idle = "option 'parallelism' changes nothing without splitBy=keyRange or splitBy=offset"
    assert said == [idle, idle]
