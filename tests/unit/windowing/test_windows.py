"""What windows keep of types and numbers, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.variables import TIMERS
from keyrange.model.key_ranges import hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.testing import RecordsFailed, StateHarness
from keyrange.windowing.slots import sessions_of, slots_of
from keyrange.windowing.sums import summed

_NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
_SCHEMA = "a byte, f float, d decimal(38,2), t timestamp, b boolean, s string, o struct<p:int>"
HOUR = timedelta(hours=1)
_STATE = pa.list_(
    pa.struct(
        {
            "window_start": pa.timestamp("us", "UTC"),
            "window_end": pa.timestamp("us", "UTC"),
            "count": pa.int64(),
        }
    )
)
_OPTIONS = {"valueFormat": "json", "valueSchema": _SCHEMA}


def one_window(windows: Any, *values: dict[str, Any], **options: str) -> dict[str, Any]:
    harness = StateHarness(windows, options=_OPTIONS | options, time=keyrange.EventTime())
    harness.process([(b"k", json.dumps(each).encode(), _NOON) for each in values])
    [row] = harness.advance(_NOON + timedelta(hours=1))
    return {name: row[name] for name in row if not name.startswith(("key", "window_"))}


def test_types_are_those_of_spark() -> None:
    made = keyrange.windows.tumbling("1h").sum("a", "f").avg("a").max("f", "t", "b", "o.p")
    later = "2024-01-01T13:00:00Z"
    row = one_window(
        made,
        {"a": 100, "f": 0.5, "t": "2024-01-01T12:00:00Z", "b": False, "o": {"p": 4}},
        {"a": 100, "f": "NaN", "t": later, "b": True, "o": {"p": 7}},
    )
    assert np.isnan([row.pop("sum_f"), row.pop("max_f")]).all()
    assert row == {
        "sum_a": 200,
        "avg_a": 100.0,
        "max_t": datetime.fromisoformat(later),
        "max_b": True,
        "max_o_p": 7,
    }


def test_columns_may_have_names_that_windows_have_too() -> None:
    made = keyrange.windows.session("1m").min(start="a").max(end="a")
    assert one_window(made, {"a": 1}, {"a": 3}) == {"start": 1, "end": 3}


@pytest.mark.parametrize("gap", [30, 1.5, None, "30", "-1h"])
def test_a_gap_that_is_no_duration_is_refused(gap: Any) -> None:
    with pytest.raises(KeyrangeError, match=f"gap of windows must be a time, .*not '{gap}'"):
        keyrange.windows.session(gap)


def test_a_sum_that_is_too_large_fails_its_record_alone() -> None:
    most = "9" * 36
    harness = StateHarness(
        keyrange.windows.tumbling("1h").sum("d"), options=_OPTIONS, time=keyrange.EventTime()
    )
    batch = [(b"k", json.dumps({"d": most}).encode(), _NOON), (b"j", b'{"d": "1"}', _NOON)]
    harness.process(batch)
    with pytest.raises(RecordsFailed, match=r"a sum of decimals is beyond decimal128\(38, 2\)"):
        harness.process(batch)
    rows = harness.advance(_NOON + timedelta(hours=1))
    assert {row["key"]: row["sum_d"] for row in rows} == {b"k": Decimal(most), b"j": 2}


@pytest.mark.parametrize("least", [-(2**63), 2**63 - 1 - 2**20, -5])
def test_sums_of_integers_are_exact(least: int) -> None:
    values = np.array([least, 2**20, -(2**40), 2**40, 3], np.int64)
    found = summed(
        pa.array(values), slots_of(np.array([0, 0, 0, 0, 5]), np.zeros(5, int)), pa.int64()
    )
    assert found.to_pylist() == [least + 2**20, 3]
    with pytest.raises(ValueError, match="beyond 64 bits"):
        summed(pa.array([2**63 - 1, 1]), slots_of(np.zeros(2, int), np.zeros(2, int)), pa.int64())


def test_slots_of_times_that_lie_far_apart() -> None:
    groups = np.array([2**31 - 1, 0, 2**31 - 1, 0])
    times = np.array([2**62, -(2**62), 2**62, 0])
    slots = slots_of(groups, times)
    assert (slots.of.tolist(), slots.count) == ([2, 0, 2, 1], 3)
    _, *sessions = sessions_of(groups, times, times + 5)
    assert [each.tolist() for each in sessions] == [
        [0, 0, 2**31 - 1],
        [-(2**62), 0, 2**62],
        [-(2**62) + 5, 5, 2**62 + 5],
    ]


def test_a_record_at_the_very_end_of_a_session_belongs_to_it() -> None:
    groups, times = np.array([0, 0, 0, 1]), np.array([0, 5, 11, 10])
    slots, *sessions = sessions_of(groups, times, times + 5)
    assert slots.of.tolist() == [0, 0, 1, 2]
    assert [each.tolist() for each in sessions] == [[0, 0, 1], [0, 11, 10], [10, 16, 15]]


def refusal(**given: Any) -> str:
    arguments = {"function": keyrange.windows.tumbling("1h").count(), "options": _OPTIONS}
    with pytest.raises(KeyrangeError) as failure:
        StateHarness(**{**arguments, "time": keyrange.EventTime(), **given})
    return str(failure.value)


def test_what_windows_say_themselves_is_refused() -> None:
    windows = keyrange.windows.tumbling("1h")
    state = {"n": keyrange.ValueState("n long")}
    assert "schema is what windows, deduplicate and last say" in refusal(schema="a long")
    assert "state is what windows" in refusal(state=state)
    assert "on_timer is what windows" in refusal(on_timer=print)
    assert "time must be keyrange.EventTime" in refusal(time=None)
    assert "windows need an aggregate" in refusal(function=windows)
    assert "column 'nil' is no field of the value" in refusal(function=windows.sum("nil"))
    assert "sum is of numbers" in refusal(function=windows.sum("s"))
    assert "which has no order" in refusal(function=windows.min("o"))
    assert "named 'count': name one" in refusal(function=windows.count().sum(count="a"))
    # Both were named sum_o_p, and the first one was left out without a word.
    alike = {"valueFormat": "json", "valueSchema": "o struct<p:int>, o_p int"}
    twice = windows.sum("o.p", "o_p")
    assert "named 'sum_o_p': name one" in refusal(function=twice, options=alike)
    twice = windows.apply(counted, "n long", "o.p", "o_p")
    assert "'o_p' is there twice" in refusal(function=twice, options=alike)
    both = windows.apply(counted, "n long", "event_time")
    assert "'event_time' is among the rows" in refusal(function=both)
    assert "no id" in refusal(function=keyrange.deduplicate("o"))


def test_a_field_may_have_a_comma_in_its_name() -> None:
    options = {"valueFormat": "json", "valueSchema": "`a,b` int"}
    made = (
        keyrange.windows.tumbling("1h")
        .apply(counted, "n long, names array<string>", "a,b")
        .last("a,b")
    )
    harness = StateHarness(made, options=options, time=keyrange.EventTime())
    assert not harness.process([(b"k", b'{"a,b": 7}', datetime(2024, 1, 1, tzinfo=UTC))])
    [row] = harness.advance(datetime(2024, 1, 2, tzinfo=UTC))
    assert (row["n"], row["last_a,b"]) == (1, 7)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: keyrange.windows.tumbling("an hour"),
        lambda: keyrange.windows.tumbling("0s"),
        lambda: keyrange.windows.hopping("5m", "1h"),
        lambda: keyrange.windows.session("1h", emit="both"),  # type: ignore[arg-type]
        lambda: keyrange.windows.session("1h").sum(),
        lambda: keyrange.deduplicate(within="0s"),
        lambda: keyrange.deduplicate(within="3000000d"),
        lambda: keyrange.windows.session("300000000d"),
        lambda: keyrange.last(by_time=False),
    ],
)
def test_what_cannot_be_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(KeyrangeError, match="INVALID_OPTIONS"):
        wrong()


def test_windows_by_the_time_of_the_batch() -> None:
    harness = StateHarness(
        keyrange.windows.tumbling("1m").count(), time=keyrange.ProcessingTime(), time_ms=30_000
    )
    assert harness.process([(b"k", b""), (b"k", b"")]) == []
    harness.time_ms = 60_000
    [row] = harness.process([(b"k", b"")])
    assert (row["count"], row["window_end"]) == (2, datetime(1970, 1, 1, 0, 1, tzinfo=UTC))


def counted(rows: Any, groups: Any, windows: Any) -> Any:
    assert windows.num_rows, "nothing is asked of it where no window is written"
    numbers = np.bincount(groups.to_numpy(), minlength=windows.num_rows)
    return pa.record_batch({"n": numbers, "names": [rows.schema.names] * windows.num_rows})


@pytest.mark.parametrize("columns", [(), ("at",), ("b", "at")])
def test_a_function_of_windows_may_have_any_columns_or_none(columns: tuple[str, ...]) -> None:
    made = keyrange.windows.tumbling("1h").apply(counted, "n long, names array<string>", *columns)
    options = {"valueSchema": "at long, b boolean"}
    row = one_window(made, {"at": 1}, {"b": True}, {}, **options)
    assert row == {"n": 3, "names": [*columns, "event_time"]}


def test_a_function_of_windows_is_not_asked_of_none() -> None:
    """A late record changes no window that is over."""
    made = keyrange.windows.tumbling("1h", emit="update").apply(
        counted, "n long, names array<string>", "a"
    )
    time = keyrange.EventTime(late="deliver")
    harness = StateHarness(made, options=_OPTIONS, time=time)
    harness.process([(b"k", b"{}", _NOON)])
    harness.advance(_NOON + timedelta(hours=1))
    assert harness.process([(b"k", b"{}", _NOON)]) == []


def test_a_late_record_that_comes_again_before_all_time_counts() -> None:
    """Of a key range that lags behind nobody knows any more how far time had come."""
    operator = keyrange.windows.tumbling("1h").count()
    kind = pa.timestamp("us", "UTC")
    columns = pa.schema({"key": pa.binary(), "value": pa.binary()})
    made = operator.parts(columns, ["key"])
    none: Any = {"watermark": pa.nulls(1, kind), "late": pa.array([True])}
    records = pa.record_batch({"key": [b"k"], "event_time": pa.array([_NOON], kind), **none})
    state = pa.record_batch({"windows": pa.nulls(1, _STATE), "timers": pa.nulls(1, pa.list_(kind))})
    _, new = made.function(records, pa.array([0], pa.int32()), state)
    assert [row["count"] for row in new.column("windows")[0].as_py()] == [1]


@pytest.mark.parametrize(
    ("windows", "minutes", "counts"),
    [
        # An hour is over and waits for the key's records, and of the next one nothing is known.
        (keyrange.windows.tumbling("1h"), (30, 90), {60: 2}),
        (keyrange.windows.session("30m"), (20, 60, 85), {50: 2}),
        (keyrange.windows.session("30m"), (20, 45, 90), {75: 3}),
    ],
)
def test_a_late_record_counts_for_a_window_that_waits(
    windows: Any, minutes: tuple[int, ...], counts: dict[int, int]
) -> None:
    """It came again, with those for which the timers of its key have waited: its window was open
    when it came first."""
    kind = pa.timestamp("us", "UTC")
    columns = pa.schema({"key": pa.binary(), "value": pa.binary()})
    made = windows.count().parts(columns, ["key"])

    def given(is_late: bool, *minutes: int) -> pa.RecordBatch:
        at, count = [_NOON + timedelta(minutes=each) for each in minutes], len(minutes)
        late = {"watermark": pa.array([_NOON + 3 * HOUR] * count, kind), "late": [is_late] * count}
        return pa.record_batch({"key": [b"k"] * count, "event_time": pa.array(at, kind), **late})

    state = pa.record_batch({"windows": pa.nulls(1, _STATE), "timers": pa.nulls(1, pa.list_(kind))})
    _, state = made.function(given(False, 0), pa.array([0], pa.int32()), state)
    groups = pa.array([0] * len(minutes), pa.int32())
    _, state = made.function(given(True, *minutes), groups, state)
    found = state.column("windows")[0].as_py()
    ends = {(row["window_end"] - _NOON) // timedelta(minutes=1): row["count"] for row in found}
    assert ends == counts


def test_an_id_that_is_null_in_imported_state_is_no_other_ids() -> None:
    """Spark's state of duplicates has null among its ids."""
    made = keyrange.deduplicate(by="s", within="1d")
    harness = StateHarness(made, options=_OPTIONS, time=keyrange.EventTime())
    states, form = harness._states, harness._states.form
    wanted = Keys(np.array([hash_of(b"k")]), pa.array([b"k"], pa.binary()))
    rows = states.look_up(TopicPartition("topic", 0), wanted)
    seen = pa.array([[{"at": _NOON, "id0": None}]], form.schema.field("seen").type)
    states.change(TopicPartition("topic", 0), form.with_column(rows, "seen", seen))
    given = [{"s": "x"}, {"s": None}, {"s": "x"}, {"s": "y"}]
    rows = harness.process([(b"k", json.dumps(each).encode(), _NOON) for each in given])
    assert [row["s"] for row in rows] == ["x", None, "y"]


def test_the_times_of_an_id_are_not_compared_with_all_others() -> None:
    """Of a history a batch may have many records of a key that all count."""
    count = 100_000
    columns = pa.schema({"key": pa.binary(), "value": pa.binary()})
    made = keyrange.deduplicate(within="1s").parts(columns, ["key"])
    kind = pa.timestamp("us", "UTC")
    at = pa.array(np.arange(count) * 1_000_000).view(kind)
    records = pa.record_batch({"key": pa.array([b"k"] * count), "event_time": at})
    seen = pa.list_(pa.struct([("at", kind)]))
    state = pa.record_batch({"seen": pa.nulls(1, seen)})
    began = process_time()
    rows, _ = made.function(records, pa.array(np.zeros(count, np.int32)), state)
    assert rows.num_rows == count
    assert process_time() - began < 5


def replay(harness: StateHarness, key: bytes, at: datetime) -> None:
    """Set a timer of a key in its state, as a replay does."""
    states, partition = harness._states, TopicPartition("topic", 0)
    rows = states.look_up(partition, Keys(np.array([hash_of(key)]), pa.array([key], pa.binary())))
    timers = [[at, *(rows.column(TIMERS)[0].as_py() or ())]]
    kind = states.form.schema.field(TIMERS).type
    states.change(partition, states.form.with_column(rows, TIMERS, pa.array(timers, kind)))


@pytest.mark.parametrize("more", [False, True])
def test_a_window_whose_row_is_given_up_waits_until_its_timer_is_set_again(more: bool) -> None:
    """Its key goes on meanwhile, with a record or without one."""

    def worked(_rows: Any, _groups: Any, windows: Any) -> Any:
        if not is_mended and _NOON in windows.column("window_start").to_pylist():
            raise ValueError("not yet")
        return pa.record_batch({"n": pa.array([1] * windows.num_rows)})

    is_mended = False
    hour = timedelta(hours=1)
    made = keyrange.windows.tumbling("1h").apply(worked, "n long", "a")
    harness = StateHarness(made, options=_OPTIONS, time=keyrange.EventTime())
    harness.process([(b"k", b"{}", _NOON), (b"k", b"{}", _NOON + 2 * hour)])

    def is_given_up() -> bool:
        harness.time_ms += 3_600_000
        try:
            harness.process([])
        except RecordsFailed:
            return False
        return True

    assert [is_given_up() for _ in range(6)] == [*[False] * 5, True]
    if more:
        harness.process([(b"k", b"{}", _NOON + 2 * hour)])
        assert is_given_up()
    [row] = harness.advance(_NOON + 3 * hour)
    assert row["window_start"] == _NOON + 2 * hour
    assert [window[0] for window in harness.state(b"k")["windows"]] == [_NOON]
    is_mended = True
    replay(harness, b"k", _NOON + hour)
    [row] = harness.process([])
    assert row["window_start"] == _NOON
    assert harness.keys() == []
