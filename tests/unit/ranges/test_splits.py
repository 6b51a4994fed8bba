"""Cutting ranges and dealing them out: the JVM connector's examples, and nothing lost or twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.offset_splits import Split, cut, deal, plan_splits
from keyrange.model.offsets import OffsetRange, TopicPartition
from samples import strategies  # noqa: F401  registers the hypothesis profiles

TP = [TopicPartition("t", number) for number in range(6)]


def ranges(*bounds: tuple[int, int]) -> dict[TopicPartition, OffsetRange]:
    return {TP[number]: OffsetRange(*span) for number, span in enumerate(bounds)}


def plan(
    spans: dict[TopicPartition, OffsetRange], min_partitions: int | None
) -> list[tuple[int, int, int]]:
    splits = plan_splits(spans, dict.fromkeys(spans, 1.0), min_partitions)
    return [(split.partition, split.from_offset, split.until_offset) for split in splits]


def sizes(spans: dict[TopicPartition, OffsetRange], min_partitions: int) -> list[list[int]]:
    planned = plan(spans, min_partitions)
    return [
        [until - start for number, start, until in planned if number == partition.partition]
        for partition in spans
    ]


# KafkaOffsetRangeCalculatorSuite and KafkaOffsetReaderSuite.
def test_without_a_least_number_ranges_stay_whole_and_empty_ones_go() -> None:
    assert plan(ranges((1, 2), (5, 5)), None) == [(0, 1, 2)]


def test_as_many_ranges_as_asked_for_stay_whole() -> None:
    spans = ranges((1, 2), (1, 2), (1, 2))
    assert plan(spans, 3) == [(0, 1, 2), (1, 1, 2), (2, 1, 2)]
    assert plan(ranges((1, 21), (1, 41)), 1) == [(0, 1, 21), (1, 1, 41)]


def test_one_range_is_cut_evenly() -> None:
    assert plan(ranges((1, 5)), 4) == [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    assert plan(ranges((1, 11)), 3) == [(0, 1, 4), (0, 4, 7), (0, 7, 11)]
    assert plan(ranges((1, 4)), 3) == [(0, 1, 2), (0, 2, 3), (0, 3, 4)]


def test_an_empty_range_takes_no_share() -> None:
    spans = ranges((1, 1), (1, 21))
    assert plan(spans, 4) == [(1, 1, 6), (1, 6, 11), (1, 11, 16), (1, 16, 21)]


def test_skewed_ranges_lose_nothing() -> None:
    """SPARK-28489."""
    assert sizes(ranges((1, 11), (1, 11), (11, 12)), 6) == [[3, 3, 4], [3, 3, 4], [1]]


@pytest.mark.parametrize(
    ("spans", "min_partitions", "expected"),
    [
        ((10_000, 15_000, 20_000), 9, [[5_000] * 2, [5_000] * 3, [5_000] * 4]),
        ((1, 1, 10_000), 6, [[1], [1], [2_500] * 4]),
        ((100, 3), 4, [[33, 33, 34], [3]]),
    ],
)
def test_shares_follow_the_sizes(
    spans: tuple[int, ...], min_partitions: int, expected: list[list[int]]
) -> None:
    """SPARK-36576, and the reader's resolved ranges."""
    assert sizes(ranges(*((0, size) for size in spans)), min_partitions) == expected


def test_a_small_range_stays_whole_while_the_large_ones_are_cut() -> None:
    """SPARK-36576: 500, 12,000 and 15,001 into 6."""
    small, middle, large = sizes(ranges((0, 500), (0, 12_000), (0, 15_001)), 6)
    assert small == [500]
    assert middle == [6_000, 6_000]
    assert sorted(large) == [5_000, 5_000, 5_001]


def test_asking_for_more_pieces_than_offsets_gives_one_for_each() -> None:
    """At once: the number asked for is not counted through."""
    assert plan(ranges((7, 10)), 2**31 - 1) == [(0, 7, 8), (0, 8, 9), (0, 9, 10)]
    assert cut(OffsetRange(3, 3), 5) == []


def cut_by_records(
    size: int, max_records: int, min_partitions: int | None = None
) -> list[tuple[int, int]]:
    spans = ranges((1, 1 + size))
    splits = plan_splits(spans, dict.fromkeys(spans, 1.0), min_partitions, max_records)
    return [(split.from_offset, split.until_offset) for split in splits]


def test_at_most_so_many_records_in_a_split() -> None:
    """SPARK-49259; the remainder goes to the last pieces."""
    assert cut_by_records(4, 4) == [(1, 5)]
    assert cut_by_records(5, 4) == [(1, 3), (3, 6)]
    assert cut_by_records(10, 3) == [(1, 3), (3, 5), (5, 8), (8, 11)]
    spans = ranges((0, 39), (0, 49), (0, 59))
    splits = plan_splits(spans, dict.fromkeys(spans, 1.0), None, 20)
    assert Counter(split.partition for split in splits) == {0: 2, 1: 3, 2: 3}


def test_both_bounds_hold() -> None:
    assert len(cut_by_records(40, 20, min_partitions=1)) == 2
    assert cut_by_records(40, 20, min_partitions=4) == [(1, 11), (11, 21), (21, 31), (31, 41)]


spans = st.dictionaries(
    st.sampled_from(TP),
    st.builds(
        lambda start, size: OffsetRange(start, start + size),
        st.integers(0, 2**62),
        st.integers(0, 30) | st.integers(0, 2**60),
    ),
    max_size=6,
)


@given(spans, st.none() | st.integers(1, 200), st.none() | st.integers(2**52, 2**60))
def test_splits_cover_the_ranges_exactly(
    spans: dict[TopicPartition, OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    weights = dict.fromkeys(spans, 2.5)
    splits = plan_splits(spans, weights, min_partitions, max_records)
    for partition, span in spans.items():
        mine = [split for split in splits if split.topic_partition == partition]
        at = span.from_offset
        for split in mine:
            assert split.from_offset == at < split.until_offset
            assert split.bytes_estimate == round((split.until_offset - at) * 2.5)
            at = split.until_offset
        assert at == span.until_offset or (not mine and span.size == 0)
        pieces = [split.until_offset - split.from_offset for split in mine]
        assert max_records is None or not pieces or max(pieces) <= max_records
        if max_records is None or min_partitions is None:
            assert not pieces or max(pieces) - min(pieces) <= 1
            assert pieces == sorted(pieces), "the last ones take the remainder"
    by_records = sum(-(-span.size // (max_records or 2**62)) for span in spans.values())
    assert len(splits) <= 2 * (min_partitions or 1) + len(spans) + by_records


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=6), st.integers(1, 60))
def test_a_least_number_is_about_reached(counts: list[int], min_partitions: int) -> None:
    """Rounding may miss it by one for each range, as in the JVM connector."""
    spans = ranges(*((0, size) for size in counts))
    wanted = min(min_partitions, sum(counts))
    assert len(plan(spans, min_partitions)) >= wanted - len(counts)


splits_strategy = st.lists(
    st.builds(
        lambda topic, number, start, size, weight: Split(
            TopicPartition(topic, number), start, start + size, weight
        ),
        st.sampled_from(["a", "b"]),
        st.integers(0, 9),
        st.integers(0, 50),
        st.integers(1, 20),
        st.integers(0, 100) | st.just(0),
    ),
    max_size=25,
)


@given(splits_strategy, st.integers(0, 500), st.integers(1, 40))
def test_every_split_is_dealt_once_in_order_to_no_more_tasks_than_pay(
    splits: list[Split], bytes_per_task: int, tasks_min: int
) -> None:
    tasks = deal(splits, bytes_per_task, tasks_min)
    assert Counter(split for task in tasks for split in task) == Counter(splits)
    assert all(tasks)
    assert all(list(task) == sorted(task, key=place) for task in tasks)
    assert len(tasks) >= min(tasks_min, len(splits))
    total = sum(split.bytes_estimate for split in splits)
    if bytes_per_task == 0:
        assert len(tasks) == len(splits)
    else:
        assert len(tasks) == min(max(-(-total // bytes_per_task), tasks_min, 1), len(splits))


def place(split: Split) -> tuple[str, int, int]:
    return split.topic, split.partition, split.from_offset


@given(splits_strategy, st.integers(1, 500), st.integers(1, 8))
def test_tasks_end_at_about_the_same_time(
    splits: list[Split], bytes_per_task: int, tasks_min: int
) -> None:
    """Largest first: no task exceeds the least one by more than its own last split."""
    tasks = deal(splits, bytes_per_task, tasks_min)
    loads = [[max(split.bytes_estimate, 1) for split in task] for task in tasks]
    for load in loads:
        assert sum(load) - min(load) <= min(map(sum, loads))


@given(splits_strategy, st.integers(0, 500), st.integers(1, 8))
def test_dealing_is_the_same_every_time(
    splits: list[Split], bytes_per_task: int, tasks_min: int
) -> None:
    assert deal(splits, bytes_per_task, tasks_min) == deal(list(splits), bytes_per_task, tasks_min)


def test_small_partitions_share_a_task() -> None:
    splits = [Split(TopicPartition("t", number), 0, 10, 1_000) for number in range(8)]
    assert len(deal(splits, 8 << 20, 1)) == 1
    assert len(deal(splits, 4_000, 1)) == 2
    assert len(deal(splits, 8 << 20, 3)) == 3
    assert len(deal(splits, 0, 1)) == 8
    assert deal([], 0, 5) == []
