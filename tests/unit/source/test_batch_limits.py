"""How much a batch takes: the JVM connector's arithmetic, and what holds for every limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.offsets import OFFSET_MAX, TopicPartition
from keyrange.options import SourceOptions
from keyrange.source.trigger_limits import TriggerLimits, admit, left_for_new
from samples import strategies  # noqa: F401  registers the hypothesis profiles


def at(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


def test_the_limit_is_shared_by_what_is_pending() -> None:
    """10 over 20, 5 and 1: 7.69, 1.92 and 0.38, of which only a share below one is rounded up."""
    assert admit(at(0, 0, 0), at(20, 5, 1), 10) == at(7, 1, 1)
    assert admit(at(7, 1, 1), at(20, 5, 1), 10) == at(14, 3, 1)


def test_offsets_that_are_pending_are_all_taken_below_the_limit() -> None:
    assert admit(at(3, 3), at(8, 8), 10) == at(8, 8)
    assert admit(at(3, 3), at(8, 9), 10) == at(7, 8)


def test_partitions_without_new_offsets_and_new_ones_take_the_end() -> None:
    """As in the JVM connector: only partitions with a start have a share; the caller gives it."""
    start, end = at(10, 0), at(4, 100, 7)
    assert admit(start, end, 10) == at(4, 10, 7)


def test_a_limit_near_the_largest_offset_does_not_overflow() -> None:
    start, end = at(5, OFFSET_MAX - 3), at(OFFSET_MAX, OFFSET_MAX)
    assert admit(start, end, OFFSET_MAX) == end
    assert admit(at(5), at(OFFSET_MAX), OFFSET_MAX - 1)[TopicPartition("t", 0)] > 5


def test_bytes_are_shared_by_the_size_of_each_partitions_records() -> None:
    """1,000 bytes: 100 offsets of 100 bytes and 1,000 of 10 have the same share."""
    weights = {TopicPartition("t", 0): 100.0, TopicPartition("t", 1): 10.0}
    assert admit(at(0, 0), at(100, 1000), 1_000, weights) == at(5, 50)
    assert admit(at(0, 0), at(100, 1000), 20_000, weights) == at(100, 1000)
    assert admit(at(0, 0), at(100, 1000), 1, weights) == at(1, 1)


sizes = st.integers(0, 60) | st.integers(0, OFFSET_MAX // 2)
pairs = st.lists(st.tuples(sizes, sizes), min_size=1, max_size=6)


def as_jvm(begin: int, end: int, limit: int, total: int) -> int:
    """`rateLimit` of KafkaMicroBatchStream, line by line."""
    size = end - begin
    if size <= 0:
        return end
    prorate = limit * (size / total)
    prorated = math.ceil(prorate) if prorate < 1 else math.floor(prorate)
    if prorated > OFFSET_MAX - begin:
        return end
    return min(end, begin + prorated)


exact = st.tuples(sizes, st.integers(0, 60) | st.integers(0, 2**48))  # sums of doubles are exact


@given(st.lists(exact, min_size=1, max_size=6), st.integers(1, 100) | st.integers(1, OFFSET_MAX))
def test_every_partition_moves_as_in_the_jvm_connector(
    pending: list[tuple[int, int]], limit: int
) -> None:
    start = at(*(begin for begin, _ in pending))
    end = at(*(begin + size for begin, size in pending))
    total = sum(size for _, size in pending)
    admitted = admit(start, end, limit)
    assert admitted.keys() == end.keys()
    for partition, until in admitted.items():
        if total <= limit:
            assert until == end[partition]
        else:
            assert until == as_jvm(start[partition], end[partition], limit, total)


weights = st.floats(0, 1e9) | st.sampled_from([0.0, 1e-9, 1.0])


@given(st.lists(st.tuples(sizes, sizes, weights), min_size=1, max_size=6), st.integers(1, 10**12))
def test_bytes_never_go_back_nor_beyond_and_always_get_on(
    pending: list[tuple[int, int, float]], limit: int
) -> None:
    start = at(*(begin for begin, _, _ in pending))
    end = at(*(begin + size for begin, size, _ in pending))
    per_offset = {TopicPartition("t", n): weight for n, (_, _, weight) in enumerate(pending)}
    admitted = admit(start, end, limit, per_offset)
    for partition in end:
        assert start[partition] <= admitted[partition] <= end[partition]
        if end[partition] > start[partition]:
            assert admitted[partition] > start[partition]
    taken = sum((admitted[p] - start[p]) * per_offset[p] for p in end)
    # A share below one offset is rounded up: at most one record more for each partition.
    assert taken <= limit * 1.000001 + sum(per_offset.values())


@given(pairs, st.integers(1, 50))
def test_batch_after_batch_reaches_the_end(pending: list[tuple[int, int]], limit: int) -> None:
    start = at(*(begin for begin, _ in pending))
    end = at(*(begin + size % 200 for begin, size in pending))
    for _ in range(10_000):
        if start == end:
            break
        start = admit(start, end, limit)
    assert start == end


def test_a_batch_is_held_back_for_the_least_offsets_and_no_longer_than_the_delay() -> None:
    start, end = at(5, 0), at(9, 3)
    for least, now_ms, waits in ((8, 999, True), (7, 999, False), (8, 1_000, False)):
        options = SourceOptions(min_offsets_per_trigger=least, max_trigger_delay_ms=1_000)
        limits = TriggerLimits(options)
        assert not limits.waits(start, start, 0)
        assert limits.waits(start, end, now_ms) is waits


@pytest.mark.parametrize(
    ("limit", "late", "left"),
    [(100, 0, 100), (100, 30.9, 70), (100, 50, 50), (100, 51, 50), (100, 1e9, 50), (1, 5, 1)],
)
def test_what_is_late_leaves_half_of_a_limit_to_what_is_new(
    limit: int, late: float, left: int
) -> None:
    assert left_for_new(limit, late) == left
