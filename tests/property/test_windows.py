"""Windows, deduplication and last rows against an oracle that keeps all records in dictionaries."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyrange
from keyrange.testing import StateHarness
from project.forms import everyday
from samples import strategies  # noqa: F401  registers the hypothesis profiles

# Some of the records come before 1970, others behind it.
_BEGIN = datetime(1969, 12, 31, 23, tzinfo=UTC)
_OPTIONS = {
    "keyFormat": "string",
    "valueFormat": "json",
    "valueSchema": "n long, price double, name string, paid decimal(5,2)",
}
_DELAY = 20
_END = 10_000

# A record: key, minutes since the beginning, and its value.
Record = tuple[str, int, dict[str, Any]]
Rows = list[dict[str, Any]]
_values = st.fixed_dictionaries(
    {
        "n": st.none() | st.sampled_from([0, 1, -7, 2**40, -(2**57), 2**57]),
        "price": st.none() | st.integers(-40, 40).map(lambda each: each / 4),
        "name": st.none() | st.sampled_from(["", "a", "b", "é"]),
        "paid": st.none() | st.sampled_from(["1.25", "-999.99", "0.01", "999.99"]),
    }
)
# Time goes on with the records, with some disorder; ends of windows are met often.
_records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), _values), max_size=14).map(
    lambda rows: [(key, 5 * (at + jitter), own) for at, (key, jitter, own) in enumerate(rows)]
)
_cuts = st.sets(st.integers(1, 13), max_size=3)


def at(minutes: float) -> datetime:
    return _BEGIN + timedelta(minutes=minutes)


def batches_of(records: list[Any], cuts: set[int]) -> list[list[Any]]:
    bounds = [0, *sorted(cut for cut in cuts if cut < len(records)), len(records)]
    return [records[a:b] for a, b in pairwise(bounds)]


def harness_of(operator: Any, late: Any = "drop", delay: int = _DELAY) -> StateHarness:
    time = keyrange.EventTime(delay=f"{delay}m", late=late)
    return StateHarness(operator, options=_OPTIONS, time=time)


def run(harness: StateHarness, batch: list[Record]) -> Rows:
    return harness.process(
        [(key.encode(), json.dumps(value).encode(), at(time)) for key, time, value in batch]
    )


def aggregated(rows: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """Of (time, value) in the order of their arrival."""
    by_time = [value for _, value in sorted(rows, key=lambda row: row[0])]

    def having(name: str) -> list[Any]:
        return [value[name] for value in by_time if value[name] is not None]

    paid = [Decimal(each) for each in having("paid")]
    numbers, prices, names = having("n"), having("price"), having("name")
    average = sum(paid) / len(paid) if paid else None
    return {
        "count": len(rows),
        "names": len(names),
        "total": sum(numbers) if numbers else None,
        "sum_price": sum(prices) if prices else None,
        "sum_paid": sum(paid) if paid else None,
        "avg_price": sum(prices) / len(prices) if prices else None,
        "avg_paid": None
        if average is None
        else average.quantize(Decimal("0.000001"), "ROUND_HALF_UP"),
        "min_name": min(names, default=None),
        "max_name": max(names, default=None),
        "max_n": max(numbers, default=None),
        "first_name": names[0] if names else None,
        "last_price": prices[-1] if prices else None,
        "collect_name": names,
        "rows": len(rows),
    }


def rows_of_windows(rows: Any, groups: Any, windows: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    assert rows.schema.names == ["name", "event_time"]
    counts = np.bincount(groups.to_numpy(), minlength=windows.num_rows)
    return pa.RecordBatch.from_arrays([pa.array(counts)], names=["rows"])


def with_aggregates(windows: Any) -> Any:
    found = windows.count().count(names="name").sum(total="n").sum("price", "paid")
    found = found.avg("price", "paid").min("name").max("name", "n")
    found = found.first("name").last("price").collect("name")
    return found.apply(rows_of_windows, "rows long", "name")


class Oracle:
    """`starts_of`: the starts of a record's windows, of windows that lie still; else sessions."""

    def __init__(
        self, size: int, starts_of: Callable[[int], list[int]] | None, updates: bool, late: str
    ) -> None:
        self.size, self.starts_of, self.updates, self.late = size, starts_of, updates, late
        self.clock: int | None = None
        self.windows: dict[str, list[tuple[int, int, list[Any]]]] = defaultdict(list)

    def process(self, batch: list[Record]) -> Rows:
        rows = self.close()
        changed: set[tuple[str, int, int]] = set()
        for key, time, value in batch:
            is_late = self.clock is not None and time < self.clock
            if is_late and self.late == "drop":
                continue
            if self.starts_of is None:
                spans = [(time, time + self.size)]
            else:
                spans = [(start, start + self.size) for start in self.starts_of(time)]
            for start, end in spans:
                if not is_late or not self.is_over(end):
                    changed.add((key, *self.add(key, start, end, time, value)))
        if self.updates:
            rows += [
                self.row(key, window)
                for key, windows in self.windows.items()
                for window in windows
                if any(c[0] == key and window[0] <= c[1] and c[2] <= window[1] for c in changed)
            ]
        if batch:
            seen = max(time for _, time, _ in batch) - _DELAY
            self.clock = seen if self.clock is None else max(self.clock, seen)
        return rows

    def is_over(self, end: int) -> bool:
        if self.clock is None:
            return False
        return end < self.clock if self.starts_of is None else end <= self.clock

    def add(self, key: str, start: int, end: int, time: int, value: Any) -> tuple[int, int]:
        own = self.windows[key]
        if self.starts_of is None:
            met = [each for each in own if each[0] <= end and start <= each[1]]
        else:
            met = [each for each in own if each[0] == start]
        rows = [row for each in met for row in each[2]]
        for each in met:
            own.remove(each)
        start = min([start, *(each[0] for each in met)])
        end = max([end, *(each[1] for each in met)])
        own.append((start, end, [*rows, (time, value)]))
        return start, end

    def close(self) -> Rows:
        rows = []
        for key, windows in self.windows.items():
            rows += [self.row(key, each) for each in windows if self.is_over(each[1])]
            self.windows[key] = [each for each in windows if not self.is_over(each[1])]
        return [] if self.updates else rows

    def row(self, key: str, window: Any) -> dict[str, Any]:
        start, end, rows = window
        span = {"key": key, "window_start": at(start), "window_end": at(end)}
        return {**span, **aggregated(rows)}


def tumbling_starts(time: int) -> list[int]:
    return [time // 30 * 30]


def hopping_starts(time: int) -> list[int]:
    return [start for start in range(-60, 200, 20) if start <= time < start + 50]


_CASES: dict[str, tuple[int, Any, Callable[..., Any]]] = {
    "tumbling": (30, tumbling_starts, lambda emit: keyrange.windows.tumbling("30m", emit)),
    "hopping": (50, hopping_starts, lambda emit: keyrange.windows.hopping("50m", "20m", emit)),
    "session": (15, None, lambda emit: keyrange.windows.session("15m", emit)),
}


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["key"], row["window_start"]))


@pytest.mark.parametrize("late", everyday("deliver", "drop"))
@pytest.mark.parametrize("emit", everyday("final", "update"))
@pytest.mark.parametrize("kind", _CASES)
@given(records=_records, cuts=_cuts)
def test_windows_are_those_of_the_oracle(
    kind: str, emit: str, late: str, records: list[Record], cuts: set[int]
) -> None:
    size, starts_of, made = _CASES[kind]
    harness = harness_of(with_aggregates(made(emit)), late)
    oracle = Oracle(size, starts_of, emit == "update", late)
    for batch in batches_of(records, cuts):
        assert in_order(run(harness, batch)) == in_order(oracle.process(batch))
    oracle.clock = _END
    assert in_order(harness.advance(at(_END))) == in_order(oracle.process([]))
    assert harness.keys() == []


@pytest.mark.ordinary
@pytest.mark.parametrize("kind", _CASES)
@given(records=_records, cuts=_cuts)
def test_final_rows_do_not_depend_on_where_batches_end(
    kind: str, records: list[Record], cuts: set[int]
) -> None:
    """As long as nothing is late."""
    made = with_aggregates(_CASES[kind][2]("final"))
    found = []
    for cut in (set(), cuts):
        harness = harness_of(made, delay=130)
        rows = [row for batch in batches_of(records, cut) for row in run(harness, batch)]
        found.append(in_order(rows + harness.advance(at(_END))))
    assert found[0] == found[1]


@given(
    records=_records,
    cuts=_cuts,
    by=st.sampled_from([(), ("name",), ("name", "n")]),
    delay=st.sampled_from([0, _DELAY, 130]),
)
def test_duplicates_are_those_within_a_time_of_a_record_that_counted(
    records: list[Record], cuts: set[int], by: tuple[str, ...], delay: int
) -> None:
    """Those that are late are left out."""
    harness = harness_of(keyrange.deduplicate(by, within="30m"), delay=delay)
    counted: dict[Any, list[int]] = defaultdict(list)
    clock = -_END
    for batch in batches_of([*enumerate(records)], cuts):
        expected = []
        for offset, (key, time, value) in batch:
            each_id = (key, *(value[name] for name in by))
            is_far = all(abs(time - known) >= 30 for known in counted[each_id])
            if time >= clock and (None in each_id or is_far):
                expected.append(offset)
                counted[each_id].append(time)
        found = run(harness, [record for _, record in batch])
        assert [row["offset"] for row in found] == expected
        clock = max([clock, *(time - delay for _, (_, time, _) in batch)])
    for _ in range(30):
        harness.advance(at(_END))
    assert harness.keys() == []


@given(records=_records, cuts=_cuts)
def test_the_last_row_of_a_key_is_that_with_the_latest_time(
    records: list[Record], cuts: set[int]
) -> None:
    harness = harness_of(keyrange.last(by_time=True), "deliver")
    table: dict[str, int] = {}
    for batch in batches_of(records, cuts):
        rows = run(harness, batch)
        assert len({row["key"] for row in rows}) == len(rows)
        table |= {row["key"]: row["offset"] for row in rows}
    latest: dict[str, tuple[int, int]] = {}
    for offset, (key, time, _) in enumerate(records):
        latest[key] = max(latest.get(key, (time, offset)), (time, offset))
    assert table == {key: offset for key, (_, offset) in latest.items()}
