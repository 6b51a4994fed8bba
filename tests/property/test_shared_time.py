"""The time of partitions that share the state of keys, beside what it is by definition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER
from keyrange.model.watermarks import (
    BEGIN,
    PartitionClock,
    PartitionTime,
    Watermark,
    clock_us,
    known_by,
    moved,
    shared_clock_us,
    shared_due_ms,
    shared_from,
)

AT = TopicPartition("t", 0)
_MS = st.integers(0, 40)
_WATERMARKS = st.one_of(
    st.none(),
    st.builds(Watermark, st.one_of(st.just(BEGIN), st.integers(0, 40_000)), _MS),
)
_IDLE_US = st.one_of(st.none(), st.integers(0, 20_000))
_LAST_MS = 200


_SPANS = st.builds(lambda at, size: KeyRange(at, at + size), st.integers(0, 8), st.integers(1, 5))


@given(st.integers(0, 9), st.lists(st.tuples(_SPANS, st.integers(0, 9)), max_size=6))
def test_a_key_goes_by_the_least_clock_of_the_ranges_that_lag(
    at_us: int, lags: list[tuple[KeyRange, int]]
) -> None:
    clock = PartitionClock(at_us).with_lags(lags)
    for key_hash in range(14):
        own = [each for span, each in lags if span.contains(key_hash)]
        assert clock.of(key_hash) == min([at_us, *own])
    bounds = [(span.from_hash, span.until_hash) for span, _ in clock.behind]
    assert all(one[1] <= other[0] for one, other in pairwise(bounds))


@given(st.lists(_WATERMARKS, max_size=4), _IDLE_US, st.integers(0, 50_000))
def test_the_clock_makes_a_timer_due_at_the_first_moment_that_it_is(
    watermarks: list[Watermark | None], idle_us: int | None, timer_us: int
) -> None:
    known = [each for each in watermarks if each is not None]
    since_ms = max((each.since_ms for each in known), default=0)
    told_ms = shared_due_ms(watermarks, idle_us, timer_us)
    moments = range(since_ms, since_ms + _LAST_MS)
    due = [now for now in moments if shared_clock_us(watermarks, idle_us, now) >= timer_us]
    if idle_us is None:
        assert told_ms == NEVER
    elif not due:
        assert told_ms == NEVER or told_ms >= moments.stop
    elif due[0] > since_ms:
        # It may be a moment later than need be. What is due already nobody asks for.
        assert due[0] <= told_ms <= due[0] + 1


@given(
    st.lists(
        st.tuples(
            st.lists(st.one_of(st.none(), st.integers(0, 60_000)), max_size=3), _MS, st.booleans()
        ),
        max_size=12,
    ),
    _IDLE_US,
)
def test_it_never_goes_back_and_waits_for_the_slowest(
    batches: list[tuple[list[int | None], int, bool]], idle_us: int | None
) -> None:
    """Each batch: the greatest time that is read in each partition, how much later it is, and
    whether timers are due in one that reads nothing."""
    watermarks: list[Watermark | None] = [None] * 3
    latest: dict[int, int] = {}
    now_ms, before = 0, BEGIN
    for read, later_ms, fires in batches:
        seen = [*read, None, None, None][:3]
        now_ms += later_ms
        times = {TopicPartition("t", at): PartitionTime(each) for at, each in enumerate(watermarks)}
        read_now = [at for at, at_us in zip(times, seen, strict=True) if at_us is not None]
        known = known_by(times, read_now, now_ms)
        clock = shared_clock_us(known, idle_us, now_ms)
        if seen == [None] * 3 and not fires:
            continue
        assert clock >= before
        if idle_us is None:
            # By definition: the least of the greatest times, once all partitions have one.
            assert clock == (min(latest.values()) if len(latest) == 3 else BEGIN)
        before = clock
        for at, each in enumerate(seen):
            if each is not None:
                latest[at] = max(latest.get(at, 0), each)
            after = moved(watermarks[at], clock, each, 0, idle_us, now_ms)
            watermarks[at] = shared_from(after, clock, now_ms)


@given(
    st.lists(st.tuples(st.sampled_from(["read", "fire", "stopped"]), _MS), max_size=12),
    st.integers(0, 20_000),
)
def test_no_record_is_late_because_nobody_read_it(
    steps: list[tuple[str, int]], idle_us: int
) -> None:
    """By definition: from `idle_us` after the batch of its last record on a partition goes on as
    the clock does, as far as timers fired by it. No record is judged by more than that."""
    watermark: Watermark | None = None
    now_ms = read_at_ms = fired_us = begun_us = 0
    for step, later_ms in steps:
        now_ms += later_ms
        if step == "fire" and watermark is not None:
            clock = clock_us(watermark, idle_us, now_ms)
            idle_ms = max((now_ms - read_at_ms) - idle_us // 1000, 0)
            fired_us = max(fired_us, begun_us + idle_ms * 1000)
            # Each time that timers fire it loses what is less than a millisecond.
            assert fired_us - 1000 * len(steps) <= clock <= fired_us
            watermark = moved(watermark, clock, None, 0, idle_us, now_ms)
        elif step == "read":
            [known] = known_by({AT: PartitionTime(watermark)}, {AT}, now_ms)
            clock = clock_us(known, idle_us, now_ms)
            assert clock <= fired_us
            watermark = moved(watermark, clock, 0, 0, idle_us, now_ms)
            read_at_ms, begun_us = now_ms, fired_us


@given(_WATERMARKS, _IDLE_US, _MS)
def test_a_partition_alone_has_its_own_time(
    watermark: Watermark | None, idle_us: int | None, now_ms: int
) -> None:
    shared = shared_clock_us([watermark], idle_us, now_ms)
    assert shared == clock_us(watermark, idle_us, now_ms)
