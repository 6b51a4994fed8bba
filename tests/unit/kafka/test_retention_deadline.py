"""How far a query that is held back has to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.kafka.model.retention_deadline import Retention, must_reach, young_since_ms
from keyrange.model.offsets import TopicPartition

P = TopicPartition("t", 0)
DAY_MS = 86_400_000


def reach(
    retention: Retention | None,
    young: int | None = None,
    start: int = 100,
    latest: int = 1_000,
    size: float = 10.0,
) -> int:
    kept = {} if retention is None else {"t": retention}
    known = {} if young is None else {P: young}
    return must_reach({P: start}, {P: latest}, kept, known, {P: size})[P]


def test_a_topic_that_keeps_everything_may_wait() -> None:
    assert reach(Retention()) == 100


def test_what_is_not_known_is_not_waited_with() -> None:
    assert reach(None) == 1_000
    assert reach(Retention(ms=1)) == 1_000


@pytest.mark.parametrize(
    ("young", "expected"),
    [(50, 100), (100, 100), (101, 101), (400, 400), (-1, 1_000), (2_000, 1_000)],
)
def test_old_records_are_read_and_no_others(young: int, expected: int) -> None:
    """-1: all records are old."""
    assert reach(Retention(ms=DAY_MS), young) == expected


def test_so_many_bytes_may_wait_as_half_of_what_is_kept() -> None:
    assert reach(Retention(bytes=18_000)) == 100
    assert reach(Retention(bytes=10_000)) == 500
    # Without a size an offset counts as a byte at least.
    assert reach(Retention(bytes=200), size=0.0) == 900


def test_both_limits_hold() -> None:
    assert reach(Retention(DAY_MS, 10_000), young=300) == 500
    assert reach(Retention(DAY_MS, 10_000), young=700) == 700


def test_a_partition_without_a_position_has_nothing_to_lose() -> None:
    found = must_reach({}, {P: 1_000}, {"t": Retention()}, {}, {})
    assert found == {P: 1_000}


def test_records_stay_for_two_checks_and_a_tenth_of_the_retention() -> None:
    now = 10 * DAY_MS
    assert young_since_ms(DAY_MS, now, 60_000) == now - DAY_MS + DAY_MS // 10
    assert young_since_ms(600_000, now, 60_000) == now - 600_000 + 120_000
    # What goes before the second check is over is read now.
    assert young_since_ms(60_000, now, 60_000) > now


@given(
    st.lists(st.integers(0, 1_000_000), min_size=1, max_size=40),
    st.integers(0, 40),
    st.integers(1, 500_000),
    st.integers(1, 100_000),
)
def test_nothing_that_is_not_reached_goes_before_the_second_check(
    times: list[int], position: int, retention_ms: int, interval_ms: int
) -> None:
    """A naive broker: it deletes from the beginning what is older than the retention, record by
    record, which is sooner than by segments."""
    now_ms = 2_000_000
    position = min(position, len(times))
    since = young_since_ms(retention_ms, now_ms, interval_ms)
    young = next((at for at, time in enumerate(times) if time >= since), -1)
    end = must_reach(
        {P: position}, {P: len(times)}, {"t": Retention(retention_ms)}, {P: young}, {}
    )[P]
    later_ms = now_ms + 2 * interval_ms
    kept_from = 0
    while kept_from < len(times) and times[kept_from] < later_ms - retention_ms:
        kept_from += 1
    assert end >= kept_from
    assert position <= end <= len(times)
