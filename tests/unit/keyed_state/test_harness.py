"""What functions can do with state, by the harness that users test theirs with."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.testing import RecordsFailed, StateHarness

OUT = "key binary, n long"


def harness(function: Any, mode: str = "record", **state: Any) -> StateHarness:
    return StateHarness(function, OUT, state, mode)


def silent(step: Any) -> Any:
    """A function without rows, which fails for records with value "!" when it has done its work."""

    def work(record: Any, state: Any) -> None:
        step(record, state)
        if record.value == b"!":
            raise ValueError("no")

    return work


def test_values_of_one_column_and_of_several() -> None:
    def step(record: Any, state: Any) -> None:
        seen = state.one.get(default=0)
        assert state.one.exists() == (seen > 0)
        state.one.update(seen + 1)
        if record.value == b"dict":
            state.two.update({"b": "x"})
        elif record.value == b"clear":
            state.two.clear()
        else:
            state.two.update((seen, None))

    made = harness(
        silent(step), one=keyrange.ValueState("n int"), two=keyrange.ValueState("a long, b string")
    )
    made.process([(b"k", b""), (b"k", b""), (b"other", b"")])
    assert made.state(b"k") == {"one": 2, "two": (1, None)}
    made.process([(b"k", b"dict"), (b"other", b"clear")])
    assert made.state(b"k") == {"one": 3, "two": (None, "x")}
    assert made.state(b"other") == {"one": 2}
    assert made.keys() == [b"k", b"other"]
    assert made.state(b"k", partition=1) == {}


def test_a_value_may_be_null() -> None:
    made = harness(silent(lambda _, state: state.v.update(None)), v=keyrange.ValueState("n long"))
    made.process([(b"k", b"")])
    assert made.state(b"k") == {"v": None}
    seen = []
    other = harness(
        silent(lambda _, state: seen.append((state.v.exists(), state.v.get(7)))),
        v=keyrange.ValueState("n long"),
    )
    other.process([(b"k", b"")])
    assert seen == [(False, 7)]


def test_lists() -> None:
    def step(record: Any, state: Any) -> None:
        text = record.value.decode()
        if text.startswith("put"):
            state.items.put(text[3:])
        else:
            state.items.append(text)
            state.items.extend(["+"])

    made = harness(silent(step), items=keyrange.ListState("t string"))
    made.process([(b"k", b"a"), (b"k", b"b")])
    assert made.state(b"k") == {"items": ["a", "+", "b", "+"]}
    with pytest.raises(RecordsFailed, match="offset 2: ValueError: no"):
        made.process([(b"k", b"!")])
    assert made.state(b"k") == {"items": ["a", "+", "b", "+"]}
    made.process([(b"k", b"putxy")])
    assert made.state(b"k") == {"items": ["x", "y"]}
    made.process([(b"k", b"put")])
    assert made.state(b"k") == {}
    assert made.keys() == []


def test_maps() -> None:
    def step(record: Any, state: Any) -> None:
        name, _, number = record.value.decode().partition("=")
        if number == "-":
            state.sums.remove(name)
        elif number:
            state.sums.update(name, (state.sums.get(name, (0, 0))[0] + int(number), 1))
        assert state.sums.contains("never") is False
        if name == "!":
            state.sums.update("!", (1, 1))
            state.sums.remove("a")
            raise ValueError("no")

    made = harness(step and silent(step), sums=keyrange.MapState("k string", "n long, m int"))
    made.process([(b"k", b"a=1"), (b"k", b"b=2"), (b"k", b"a=4")])
    assert made.state(b"k") == {"sums": {"a": (5, 1), "b": (2, 1)}}
    with pytest.raises(RecordsFailed):
        made.process([(b"k", b"!=1")])
    assert made.state(b"k") == {"sums": {"a": (5, 1), "b": (2, 1)}}
    made.process([(b"k", b"a=-"), (b"k", b"b=-")])
    assert made.keys() == []


def test_what_a_failed_record_did_to_a_list_within_a_value_leaves_nothing() -> None:
    def step(record: Any, state: Any) -> None:
        tags = state.value.get(default=[])
        tags.append(record.value.decode())
        state.value.update(tags)
        rows = list(state.rows.get()) or [["0"]]
        rows[0].append(record.value.decode())
        state.rows.put(rows)
        named = state.named.get("a", [])
        named.append(record.value.decode())
        for value in state.named.values():
            value.append("of nobody")
        state.named.update("a", named)
        # What was handed over is the function's own again.
        tags.append("late")

    made = harness(
        silent(step),
        value=keyrange.ValueState("tags array<string>"),
        rows=keyrange.ListState("tags array<string>"),
        named=keyrange.MapState("name string", "tags array<string>"),
    )
    with pytest.raises(RecordsFailed):
        made.process([(b"k", b"1"), (b"k", b"!"), (b"other", b"!")])
    made.process([(b"k", b"2")])
    assert made.state(b"k") == {
        "value": ["1", "2"],
        "rows": [["0", "1", "2"]],
        "named": {"a": ["1", "2"]},
    }
    assert made.keys() == [b"k"]


def test_the_empty_key_is_not_that_of_records_without_one() -> None:
    def step(record: Any, state: Any) -> None:
        state.n.update(state.n.get(default=0) + 1)

    made = harness(silent(step), n=keyrange.ValueState("n long"))
    for records in ([(b"", b"")], [(None, b""), (b"", b"")], [(None, b"")]):
        failed = sum(key is None for key, _ in records)
        with pytest.raises(RecordsFailed) if failed else nullcontext():
            made.process(records)
    assert made.state(b"") == {"n": 2}


def test_a_value_is_there_before_its_time_and_not_at_it() -> None:
    made = harness(
        silent(lambda record, state: record.value and state.v.update(record.value)),
        v=keyrange.ValueState("b binary", ttl="10s"),
    )
    made.process([(b"k", b"x")])
    made.time_ms = 9_999
    assert made.state(b"k") == {"v": b"x"}
    made.process([(b"k", b"")])
    made.time_ms = 10_000
    assert made.state(b"k") == {}
    made.process([(b"k", b"y")])
    made.time_ms = 19_999
    assert made.state(b"k") == {"v": b"y"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("text", "TypeError: state.v: a value of type str, and the column is int64"),
        (2**63, "ValueError: state.v: a value of type int that int64 cannot hold"),
        ((1, 2), "the column is int64"),
    ],
)
def test_what_does_not_fit_fails_its_record_alone(value: Any, reason: str) -> None:
    def step(record: Any, state: Any) -> None:
        state.v.update(value if record.value == b"bad" else 1)

    made = harness(silent(step), v=keyrange.ValueState("n long"))
    with pytest.raises(RecordsFailed, match=reason) as failed:
        made.process([(b"k", b""), (b"k", b"bad"), (b"other", b"")])
    assert [offset for offset, _ in failed.value.errors] == [1]
    assert made.state(b"k") == made.state(b"other") == {"v": 1}


def test_a_value_that_is_far_too_large_is_refused_by_its_record() -> None:
    def step(record: Any, state: Any) -> None:
        state.v.update(record.value * (1 << 24))

    made = harness(silent(step), v=keyrange.ValueState("b binary"))
    with pytest.raises(RecordsFailed, match="is larger than a state takes"):
        made.process([(b"k", b"xy")])
    assert made.state(b"k") == {}


def test_a_row_that_does_not_fit_leaves_no_state() -> None:
    def step(record: Any, state: Any) -> Any:
        n = state.v.get(default=0) + 1
        state.v.update(n)
        return (record.key, 2**63 if record.value == b"bad" else n)

    made = harness(step, v=keyrange.ValueState("n long"))
    with pytest.raises(RecordsFailed):
        made.process([(b"k", b""), (b"k", b"bad"), (b"k", b"")])
    # What comes of the key behind it waits for it.
    assert made.state(b"k") == {"v": 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((b"k", "no number"), "type str for column 'n', which is int64.*partition=.*offset=1"),
        ({"key": b"k", "n": "no number"}, "type str for column 'n'"),
        ({"key": b"k", "more": 1}, "a row with field 'more'"),
    ],
)
def test_an_answer_that_no_record_could_have_is_no_records_fault(answer: Any, reason: str) -> None:
    def step(record: Any, state: Any) -> Any:
        return answer if record.value == b"bad" else None

    made = harness(step, v=keyrange.ValueState("n long"))
    with pytest.raises(KeyrangeError, match=rf"\[WRONG_RESULT\].*{reason}"):
        made.process([(b"k", b""), (b"k", b"bad"), (b"k", b"")])


def test_keys_with_one_hash_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyrange.testing.hash_of", lambda _: 7)
    monkeypatch.setattr("keyrange.testing.hash_of_record", lambda *_, nulls_first: 7)

    def step(record: Any, state: Any) -> None:
        state.v.update(record.value)

    made = harness(silent(step), v=keyrange.ValueState("b binary"))
    made.process([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    made.process([(b"b", b"4")])
    assert [made.state(key)["v"] for key in (b"a", b"b", b"c")] == [b"1", b"4", b"3"]


def totals(records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch) -> Any:
    if b"!" in records.column("value").to_pylist():
        raise ValueError("no")
    before = pc.fill_null(pc.struct_field(state.column("v"), "n"), 0).to_numpy()
    numbers = groups.to_numpy()
    after = pa.array(before + np.bincount(numbers, minlength=len(before)))
    cleared = [each == b"clear" for each in records.column("value").to_pylist()]
    mask = np.zeros(len(before), bool)
    mask[numbers[np.array(cleared)]] = True
    new = pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([after], ["n"])], ["v"])
    output = pa.RecordBatch.from_arrays([records.column("key"), after.take(groups)], ["key", "n"])
    return output, new, pa.array(mask)


def test_many_records_at_once() -> None:
    made = harness(totals, "arrow", v=keyrange.ValueState("n long"))
    rows = made.process([(b"a", b""), (b"b", b""), (b"a", b"")])
    assert [row["n"] for row in rows] == [2, 1, 2]
    with pytest.raises(RecordsFailed) as failed:
        made.process([(b"b", b""), (b"a", b"!"), (b"b", b""), (None, b""), (b"c", b"clear")])
    assert [offset for offset, _ in failed.value.errors] == [6, 4]
    assert [made.state(key) for key in (b"a", b"b", b"c")] == [{"v": 2}, {"v": 3}, {}]


ONE_ROW = pa.record_batch({"v": pa.array([{"n": 1}])})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "answers in mode arrow with"),
        ((None, 3), "the new state has int"),
        ((None, pa.record_batch({"v": pa.array([1, 2])})), "has 2 rows, and 1 keys have one"),
        ((None, pa.record_batch({"w": pa.array([1])})), "has no column 'v'"),
        ((None, ONE_ROW.append_column("w", pa.array([1]))), "has a column 'w'"),
        ((None, ONE_ROW, pa.array([True, False])), "of 2 keys it is said whether they are cleared"),
    ],
)
def test_what_is_no_answer(answer: Any, reason: str) -> None:
    made = harness(lambda *_: answer, "arrow", v=keyrange.ValueState("n long"))
    with pytest.raises(KeyrangeError, match=reason):
        made.process([(b"k", b"")])


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, "names no variable"),
        ({"key": keyrange.ValueState("n int")}, "keyrange's own"),
        ({"topic": keyrange.ValueState("n int")}, "keyrange's own"),
        ({"partition": keyrange.ValueState("n int")}, "keyrange's own"),
        ({"_x": keyrange.ValueState("n int")}, "can be an attribute"),
        ({"x": keyrange.ValueState("")}, "x"),
        ({"x": keyrange.ValueState("n nothing")}, "nothing"),
        ({"x": keyrange.ValueState("n int", ttl="soon")}, "x"),
        ({"x": keyrange.ValueState("n int", ttl="0")}, "longer than nothing"),
        ({"x": keyrange.ValueState("n int", ttl="365001d")}, "longer than 1,000 years"),
        ({"x": keyrange.ValueState("n int", ttl="24")}, "a number with its unit .*1 day"),
        ({"x": "n int"}, "must be a ValueState"),
        (
            {"x": keyrange.ValueState("n int", "1s"), "x_expires_ms": keyrange.ListState("n int")},
            "keyrange's own",
        ),
    ],
)
def test_variables_that_cannot_be(state: Any, reason: str) -> None:
    with pytest.raises(KeyrangeError, match=reason):
        StateHarness(silent(lambda *_: None), OUT, state)


def test_what_a_function_goes_on_using_is_not_in_state_or_output() -> None:
    buffer = bytearray()

    def work(record: Any, state: Any) -> tuple[Any, int]:
        buffer[:] = record.value
        state.v.update(buffer)
        return buffer, 1

    made = harness(work, v=keyrange.ValueState("v binary"))
    rows = made.process([(b"a", b"A"), (b"b", b"B")])
    assert [row["key"] for row in rows] == [b"A", b"B"]
    assert (made.state(b"a"), made.state(b"b")) == ({"v": b"A"}, {"v": b"B"})


def test_what_a_failed_record_did_to_a_buffer_leaves_nothing() -> None:
    def work(record: Any, state: Any) -> None:
        if record.value == b"put":
            state.v.update(bytearray(b"ab"))
            return
        got = state.v.get()
        got += b"-half"
        raise RuntimeError

    made = harness(work, v=keyrange.ValueState("v binary"))
    with pytest.raises(RecordsFailed, match="offset 1: RuntimeError"):
        made.process([(b"k", b"put"), (b"k", b"bad")])
    assert made.state(b"k") == {"v": b"ab"}


def test_an_attribute_of_state_cannot_be_set() -> None:
    def work(record: Any, state: Any) -> None:
        state.n = 1

    with pytest.raises(RecordsFailed, match=r"state\.n cannot be set: call its update"):
        harness(work, n=keyrange.ValueState("n int")).process([(b"a", b"")])


@pytest.mark.parametrize(
    ("rows", "is_kept"), [([], {}), ([None, {"v": 1}], {"v": [None, 1]}), (None, {})]
)
def test_lists_of_many_keys_are_as_those_of_single_records(rows: Any, is_kept: Any) -> None:
    kind = pa.list_(pa.struct([("v", pa.int64())]))

    def work(records: Any, groups: Any, state: Any) -> Any:
        new = pa.array([rows] * state.num_rows, kind)
        return None, pa.RecordBatch.from_arrays([new], ["v"])

    made = harness(work, "arrow", v=keyrange.ListState("v long"))
    made.process([(b"a", b""), (b"b", b"")])
    assert made.state(b"a") == made.state(b"b") == is_kept


def test_text_that_is_not_ascii_has_the_limit_of_all_values() -> None:
    def work(record: Any, state: Any) -> None:
        state.v.update("é" * (8 << 20) + "x")

    with pytest.raises(RecordsFailed, match="larger than a state takes"):
        harness(work, v=keyrange.ValueState("v string")).process([(b"a", b"")])


def test_a_task_that_is_cancelled_fails_its_record_alone() -> None:
    def work(record: Any, state: Any) -> None:
        if record.value == b"bad":
            raise asyncio.CancelledError

    with pytest.raises(RecordsFailed, match=r"^offset 1: CancelledError"):
        harness(work, v=keyrange.ValueState("v int")).process([(b"a", b""), (b"b", b"bad")])


def test_of_many_records_that_fail_an_exception_shows_a_few() -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no")

    harness = StateHarness(fails, "n long", {"n": keyrange.ValueState("n long")})
    with pytest.raises(RecordsFailed) as failed:
        harness.process([(b"%d" % at, b"") for at in range(1_500)])
    assert len(failed.value.errors) == 1_500
    assert str(failed.value).endswith("; and 1,490 more")
    assert len(str(failed.value)) < 2_000
