"""Lost offsets: counted once however often they are looked at, against sets of offsets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.lost_offset_counts import Lost, LostOffsets, left_behind, passed_over, read_lost
from keyrange.model.offsets import OffsetRange, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_a_query_that_goes_on_loses_each_offset_once(looks: list[tuple[bool, int, int]]) -> None:
    """It looks again from the same place, where more is gone by now, or from behind the loss."""
    lost, missed, begin, end = LostOffsets(), set[int](), 0, 0
    for again, step, size in looks:
        begin = begin if again else end + step
        end = max(end, begin + size)
        lost.add(T0, OffsetRange(begin, end))
        missed |= set(range(begin, end))
    metrics = lost.metrics()
    assert metrics["offsets"] == len(missed)
    told = [n for row in metrics["found"] for n in range(row["fromOffset"], row["untilOffset"])]
    assert sorted(told) == sorted(missed)


def test_a_topic_with_another_id_is_counted_anew_and_what_was_told_is_not_told_again() -> None:
    lost = LostOffsets()
    assert lost.add(T0, OffsetRange(3, 7), "a") == Lost(T0, OffsetRange(3, 7))
    assert lost.add(T0, OffsetRange(3, 7), "a") is None
    lost.planned()
    assert lost.metrics() == {"offsets": 4, "found": []}
    assert str(lost.add(T0, OffsetRange(3, 7), "b")) == "t-0 [3, 7)"
    assert lost.metrics()["offsets"] == 8


def test_no_more_is_passed_over_than_the_batch_would_have_read() -> None:
    begins, ends = {T0: 3, T1: 3}, {T0: 10, T1: 5}
    assert passed_over(begins, ends, {T0: 3, T1: 9}) == [Lost(T1, OffsetRange(3, 5))]
    assert passed_over(begins, ends, {T0: 7}) == [Lost(T0, OffsetRange(3, 7))]
    assert left_behind(begins, {T0: 9, T1: 2}, [T0, T1]) == [Lost(T0, OffsetRange(3, 9))]
    assert left_behind(begins, {}, [T0]) == []


@pytest.mark.parametrize("odd", [None, 1, {}, [1], [{}], [{"topic": "t", "partition": True}]])
def test_what_a_later_version_tells_is_no_harm(odd: Any) -> None:
    assert read_lost(odd) == ()
