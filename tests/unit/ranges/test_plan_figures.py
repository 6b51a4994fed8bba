"""What a plan costs, against counts by hand."""

from __future__ import annotations

from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offset_range_sets import merged
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.model.reader_ranges import placement_of
from keyrange.ranges.model.plan_figures import plan_figures

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_whole_partitions_are_read_once() -> None:
    splits = [
        Split(T0, 0, 10, 0),
        Split(T0, 10, 30, 0),
        Split(T1, 5, 6, 0),
    ]
    assert list(plan_figures(2, splits, {T0: 100.0, T1: 7.0}).values()) == [2, 0, 3_007, 3_007]


def test_readers_that_share_fetch_once_and_others_each_for_themselves() -> None:
    cut = placement_of([[span] for span in split_evenly(SPACE, 4)])
    shared = [Split(T0, 0, 10, 0, cut.of(n), "name") for n in range(4)]
    assert list(plan_figures(4, shared, {T0: 100.0}).values()) == [4, 4, 1_000, 1_000]
    alone = [Split(T0, 0, 10, 0, cut.of(n)) for n in range(4)]
    assert list(plan_figures(4, alone, {T0: 100.0}).values()) == [4, 4, 1_000, 4_000]


def test_nothing_costs_nothing() -> None:
    assert list(plan_figures(0, [], {}).values()) == [0, 0, 0, 0]


def test_each_offset_counts_once() -> None:
    spans = [(5, 7), (0, 2), (1, 6), (6, 6), (20, 21)]
    assert merged([]) == []
    assert merged(spans) == [(0, 7), (20, 21)]
    splits = [Split(T0, begin, end, 0) for begin, end in spans]
    assert plan_figures(1, splits, {T0: 100.0})["bytes"] == 800
