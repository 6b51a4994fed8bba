"""Timers of many keys at once, where the function raises for one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import keyrange
from keyrange.testing import RecordsFailed, StateHarness

BEGAN = datetime(2024, 5, 1, tzinfo=UTC)
TIMERS = pa.list_(pa.timestamp("us", "UTC"))


def minute(count: int) -> datetime:
    return BEGAN + timedelta(minutes=count)


def test_of_one_key_the_first_timer_that_fails_comes_again_and_those_before_it_have_fired() -> None:
    bad = {minute(2)}

    def work(records: pa.RecordBatch, groups: Any, state: pa.RecordBatch) -> Any:
        count = state.num_rows
        timers = pa.array([[minute(1), minute(2), minute(3)]] * count, TIMERS)
        value = pa.StructArray.from_arrays([pa.array([1] * count)], ["n"])
        return None, pa.RecordBatch.from_arrays([value, timers], ["v", "timers"])

    def fire(timers: pa.RecordBatch, groups: Any, state: Any) -> Any:
        if bad.intersection(timers.column("at").to_pylist()):
            raise ValueError("not yet")
        return timers, None

    harness = StateHarness(
        work,
        "key binary, at timestamp",
        {"v": keyrange.ValueState("n long")},
        mode="arrow",
        time=keyrange.EventTime(),
        on_timer=fire,
        time_ms=round(minute(60).timestamp() * 1000),
    )
    harness.process([(b"a", b"", BEGAN), (b"b", b"", BEGAN)])

    def fired() -> list[tuple[bytes, datetime]]:
        try:
            rows = harness.advance(minute(10))
        except RecordsFailed as failed:
            rows = failed.rows
        return sorted((row["key"], row["at"]) for row in rows)

    assert fired() == [(b"a", minute(1)), (b"b", minute(1))]
    bad.clear()
    harness.time_ms += 60_000
    assert fired() == [(key, minute(at)) for key in (b"a", b"b") for at in (2, 3)]
