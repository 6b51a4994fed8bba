"""Timers as functions set them: for times that have passed, and while another one fires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import keyrange
from keyrange.testing import StateHarness

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)
STATE = {"n": keyrange.ValueState("n long")}


def minute(at: float) -> datetime:
    return BEGAN + timedelta(minutes=at)


def minutes(rows: list[dict[str, Any]]) -> list[float]:
    return [(row["at"] - BEGAN) / timedelta(minutes=1) for row in rows]


def harness_of(function: Any, on_timer: Any, mode: str = "record") -> StateHarness:
    time = keyrange.EventTime()
    given = {"mode": mode, "time": time, "on_timer": on_timer}
    return StateHarness(function, "key binary, at timestamp", STATE, **given)


def fires(key: bytes, at: datetime, state: Any) -> Any:
    return key, at


def test_timers_are_listed_in_order_and_taken_back() -> None:
    listed: list[list[float]] = []

    def work(record: Any, state: Any) -> None:
        for at in (3, 1, 2, 1):
            state.timers.set(minute(at))
        state.timers.delete(minute(2))
        # Nobody has set it.
        state.timers.delete(minute(9))
        listed.append(minutes([{"at": at} for at in state.timers.list()]))
        if record.value == b"none":
            state.timers.clear()

    harness = harness_of(work, fires)
    harness.process([(b"a", b"", BEGAN), (b"b", b"none", BEGAN)])
    assert listed == [[1, 3], [1, 3]]
    assert minutes(harness.advance(minute(10))) == [1, 3]


def test_a_timer_for_a_time_that_has_passed_fires_in_the_next_batch() -> None:
    def work(record: Any, state: Any) -> None:
        state.timers.set(minute(-5))

    harness = harness_of(work, fires)
    assert harness.process([(b"a", b"", minute(1))]) == []
    assert minutes(harness.process([(b"z", b"", minute(1))])) == [-5]


def test_a_timer_that_sets_itself_again_fires_once_in_a_batch() -> None:
    fired: list[datetime] = []

    def work(record: Any, state: Any) -> None:
        state.timers.set(minute(1))

    def again(key: bytes, at: datetime, state: Any) -> Any:
        fired.append(at)
        if len(fired) < 9:
            state.timers.set(at)
        return key, at

    harness = harness_of(work, again)
    harness.process([(b"a", b"", BEGAN)])
    for count in range(1, 4):
        assert minutes(harness.advance(minute(2))) == [1]
        assert len(fired) == count


def test_a_timer_that_sets_itself_again_holds_up_no_other_one() -> None:
    def work(record: Any, state: Any) -> None:
        for each in (1, 3, 5):
            state.timers.set(minute(each))

    def again(key: bytes, at: datetime, state: Any) -> Any:
        if at == minute(1):
            state.timers.set(at)
        return key, at

    harness = harness_of(work, again)
    harness.process([(b"a", b"", BEGAN)])
    assert [minutes(harness.advance(minute(n))) for n in (4, 4, 6, 6)] == [[1, 3], [1], [1, 5], [1]]


def one_after_the_other(key: bytes, at: datetime, state: Any) -> Any:
    """Each sets the one that is due a minute later, until six."""
    if at < minute(6):
        state.timers.set(at + timedelta(minutes=1))
    return key, at


def all_one_after_the_other(timers: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch) -> Any:
    later = pc.add(timers.column("at"), pa.scalar(timedelta(minutes=1)))
    sets = pc.less_equal(later, pa.scalar(minute(6))).to_pylist()
    column = [[at] if is_set else None for at, is_set in zip(later.to_pylist(), sets, strict=True)]
    at = state.schema.get_field_index("timers")
    return timers, state.set_column(at, "timers", pa.array(column, state.schema.field(at).type))


@pytest.mark.parametrize("mode", ["record", "arrow"])
def test_a_timer_that_is_set_while_another_one_fires_is_not_lost(mode: str) -> None:
    def work(record: Any, state: Any) -> None:
        state.timers.set(minute(1))

    def work_all(records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch) -> Any:
        at = state.schema.get_field_index("timers")
        field = state.schema.field(at)
        timers = pa.array([[minute(1)]] * state.num_rows, field.type)
        return None, state.set_column(at, field, timers)

    is_one = mode == "record"
    on_timer = one_after_the_other if is_one else all_one_after_the_other
    harness = harness_of(work if is_one else work_all, on_timer, mode)
    harness.process([(b"a", b"", BEGAN)])
    found = minutes(harness.advance(minute(3.5)))
    # At once, or with many keys together in the next batch.
    for _ in range(3):
        found += minutes(harness.advance(minute(3.5)))
    assert found == [1, 2, 3]
    for _ in range(5):
        found += minutes(harness.advance(minute(100)))
    assert found == [1, 2, 3, 4, 5, 6]
