"""What a task makes of records, case by case; the rest is in the simulation."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.record_alarm import RecordAlarm, RecordTimeout
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task
from keyrange.work.user_errors import ERROR_BYTES_MAX
from samples.working import OUTPUT, PLACE, Sent, VirtualAlarm, batch_of, batches_of, run

EVERYTHING = {PLACE: TaskPartition((SPACE,))}


def job(function: Any = None, mode: str = "record", **given: Any) -> Job:
    terms = given.pop("terms", WorkSettings())
    return Job(given.pop("works", EVERYTHING), terms, mode, OUTPUT, function, **given)


def row(record: Any) -> Any:
    return {"offset": record.offset, "text": record.value.decode()}


def test_a_record_shows_its_columns() -> None:
    seen: list[Any] = []

    def look(record: Any) -> None:
        seen.append((record.topic, record.partition, record.offset, record.key, record.value))
        seen.append((record["keyHash"], record.deliveries, record["topic"], repr(record)))
        with pytest.raises(KeyError):
            record["nothing"]
        with pytest.raises(AttributeError):
            record.timestamp  # noqa: B018

    works = {PLACE: TaskPartition((SPACE,), deliveries={7: 2})}
    run(job(look, works=works), [batch_of([Sent(7, 3, b"k", None)])])
    assert seen == [("t", 0, 7, b"k", None), (3, 2, "t", "Record(t-0, offset 7)")]


def test_timestamps_and_headers_are_made_once_for_all_records() -> None:
    batch = batch_of([Sent(offset, 7) for offset in range(3)])
    batch = batch.append_column("headers", pa.array([[{"key": "a", "value": b"1"}]] * 3))
    batch = batch.append_column("timestamp", pa.array([1] * 3, pa.timestamp("us", tz="UTC")))
    columns: set[int] = set()
    kept: list[Any] = []

    def look(record: Any) -> None:
        found = record._columns
        _ = record.timestamp, record.headers
        kept.append((found, found.timestamp, found.headers))
        columns.update((id(found.__dict__["timestamp"]), id(found.__dict__["headers"])))

    run(job(look), [batch])
    assert len(kept) == 3
    assert len(columns) == 2


def test_headers_and_timestamps_come_as_python_has_them() -> None:
    batch = batch_of([Sent(1, 1), Sent(2, 2)])
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None]
    stamps = pa.array([1_000_000, 2_000_000], pa.timestamp("us", tz="UTC"))
    batch = batch.append_column("headers", pa.array(headers)).append_column("timestamp", stamps)
    seen: list[Any] = []
    run(job(lambda record: seen.append((record.headers, record.timestamp.timestamp()))), [batch])
    assert seen == [([("a", b"1"), ("a", None)], 1.0), ([], 2.0)]


@pytest.mark.parametrize(
    "result",
    [(1, "x"), {"offset": 1, "text": "x"}, [(1, "x")], {"text": "x", "offset": 1}],
)
def test_rows_may_be_given_in_several_ways(result: Any) -> None:
    told = run(job(lambda record: result), [batch_of([Sent(1, 1)])])
    assert told.rows == [{"offset": 1, "text": "x"}]


def test_spark_rows_go_by_their_names() -> None:
    from pyspark.sql import Row

    told = run(job(lambda record: Row(text="x", offset=1)), [batch_of([Sent(1, 1)])])
    assert told.rows == [{"offset": 1, "text": "x"}]


def test_a_field_that_a_row_leaves_out_is_null() -> None:
    told = run(job(lambda record: {"offset": 1}), [batch_of([Sent(1, 1)])])
    assert told.rows == [{"offset": 1, "text": None}]


@pytest.mark.parametrize("result", ["text", 1, {"offset": 1, "oops": 2}, (1, "x", 3), [[1, "x"]]])
@pytest.mark.parametrize("mode", ["record", "arrow"])
def test_anything_else_fails_the_task(result: Any, mode: str) -> None:
    with pytest.raises(KeyrangeError, match=r"\[WRONG_RESULT\]"):
        run(job(lambda record: result, mode), [batch_of([Sent(1, 1)])])


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_value_in_place_of_a_row_of_one_field_is_told_how_that_is_written(is_whole: bool) -> None:
    one = pa.schema([("offset", pa.int64())])
    given = replace(job(lambda record: record.offset, is_whole=is_whole), schema=one)
    with pytest.raises(KeyrangeError, match=r"type int, .*\(value,\).*partition=t-0, offset=7\)"):
        run(given, [batch_of([Sent(7, 1)])])


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_type_that_a_column_never_takes_fails_the_task_at_its_first_record(
    is_whole: bool,
) -> None:
    def function(record: Any) -> Any:
        return (record.offset if record.offset < 3 else str(record.offset), "s3cret")

    records = [Sent(at, at) for at in range(6)]
    found = r"type str for column 'offset', which is int64 \(partition=t-0, offset=3\)"
    with pytest.raises(KeyrangeError, match=rf"\[WRONG_RESULT\].*{found}") as raised:
        run(job(function, is_whole=is_whole), [batch_of(records)])
    assert "s3cret" not in str(raised.value)


def test_a_value_that_its_column_cannot_hold_is_its_records_fault() -> None:
    def function(record: Any) -> Any:
        return (2**63 if record.offset == 1 else record.offset, "x")

    told = run(job(function), [batch_of([Sent(0, 0), Sent(1, 1), Sent(2, 2)])])
    assert told.output == [0, 2]
    assert told.causes == {1: Cause.REJECTED}


def test_a_column_that_cannot_be_cast_fails_the_task() -> None:
    def function(batch: pa.RecordBatch) -> Any:
        return batch.select(["offset"]).append_column("text", pa.array([{"a": 1}] * batch.num_rows))

    found = "a column 'text' of struct<a: int64>, which is to be string"
    with pytest.raises(KeyrangeError, match=rf"\[WRONG_RESULT\].*{found}"):
        run(job(function, "arrow"), [batch_of([Sent(1, 1), Sent(2, 2)])])


def test_batches_may_be_tables_or_nothing_and_columns_in_any_order() -> None:
    def function(batch: pa.RecordBatch) -> Any:
        if batch.num_rows == 1:
            return None
        return pa.table({"text": ["x"] * 2, "offset": pa.array([8, 9], pa.int32())})

    told = run(job(function, "arrow"), [batch_of([Sent(1, 1), Sent(2, 2)]), batch_of([Sent(3, 3)])])
    assert told.rows == [{"offset": 8, "text": "x"}, {"offset": 9, "text": "x"}]
    assert told.done == 3


def test_a_batch_without_a_column_of_the_schema_fails_the_task() -> None:
    with pytest.raises(KeyrangeError, match=r"\[WRONG_RESULT\].*without column 'text'"):
        run(job(lambda batch: batch, "arrow"), [batch_of([Sent(1, 1)])])


def test_a_batch_with_a_column_that_is_not_of_the_schema_fails_the_task() -> None:
    more = pa.RecordBatch.from_pydict({"text": ["x"], "offset": [1], "more": [1]})
    with pytest.raises(KeyrangeError, match=r"\[WRONG_RESULT\].*with column 'more'"):
        run(job(lambda _: more, "arrow"), [batch_of([Sent(1, 1)])])


def test_errors_are_kept_with_a_bound_and_whatever_they_are() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raised = [ValueError("\u00e4" * 9000), Odd(), SystemExit(3), RecursionError()]

    def function(record: Any) -> None:
        raise raised[record.offset]

    told = run(job(function), [batch_of([Sent(at, at) for at in range(4)])])
    assert set(told.causes.values()) == {Cause.REJECTED}
    assert len((told.errors[0] or "").encode()) <= ERROR_BYTES_MAX
    assert (told.errors[0] or "").startswith("ValueError: \u00e4\u00e4")
    place = f" (test_function_workers.py, line {function.__code__.co_firstlineno + 1}, in function)"
    assert (told.errors[0] or "").endswith(place)
    assert told.errors[1] == f"Odd{place}"
    assert told.errors[2] == f"SystemExit: 3{place}"


def test_the_record_is_kept_when_it_is_given_up() -> None:
    def function(record: Any) -> None:
        raise ValueError

    works = {PLACE: TaskPartition((SPACE,), deliveries={2: 4})}
    batch = batch_of([Sent(2, 1, b"k2", b"v2"), Sent(3, 2, b"k3", b"v3")])
    [rows, *_] = run_task(Task(job(function, works=works), VirtualAlarm()), [batch])
    outcomes = rows.column(HIDDEN).field("outcome").to_pylist()
    kept = {each["offset"]: each["record"] for each in outcomes}
    assert kept[2] == {"key": b"k2", "value": b"v2", "timestamp_ms": None, "headers": None}
    assert kept[3] is None


def test_columns_that_the_job_changed_are_not_taken_for_the_record() -> None:
    def function(record: Any) -> None:
        raise ValueError

    batch = batch_of([Sent(2, 1)])
    batch = batch.set_column(1, "value", pa.array([17]))
    job_ = job(function, terms=WorkSettings(deliveries_max=1))
    [rows, *_] = run_task(Task(job_, VirtualAlarm()), [batch])
    assert rows.column(HIDDEN).field("outcome").to_pylist()[0]["record"] is None


def test_several_partitions_in_one_batch_are_told_apart() -> None:
    other = TopicPartition("t", 1)
    works = {PLACE: TaskPartition((SPACE,)), other: TaskPartition((SPACE,), frozenset([5]))}
    records = [Sent(1, 5), Sent(2, 5), Sent(1, 5, partition=1), Sent(9, 6, partition=1)]
    told = run(job(row, works=works), batches_of(records, 10))
    assert told.output == [1, 2, 9]
    assert told.causes == {1: Cause.HELD_BACK}


@pytest.mark.parametrize("rows", [1, 2, 10])
def test_offsets_ascend_within_each_key_range(rows: int) -> None:
    low, high = 1, 2**62 + 1
    works = {PLACE: TaskPartition(tuple(split_evenly(SPACE, 2)))}
    fine = [Sent(7, high), Sent(3, low), Sent(4, low), Sent(8, high), Sent(5, low)]
    assert run(job(row, works=works), batches_of(fine, rows)).output == [7, 3, 4, 8, 5]
    for wrong in (Sent(8, high), Sent(2, low), Sent(5, low)):
        with pytest.raises(KeyrangeError, match=r"\[RECORDS_OUT_OF_ORDER\]"):
            run(job(row, works=works), batches_of([*fine, wrong], rows))


def test_null_keys_wait_for_nobody_even_at_one_place() -> None:
    def function(record: Any) -> Any:
        if record.offset == 1:
            raise ValueError
        return row(record)

    records = [Sent(1, 0, None), Sent(2, 0, None), Sent(3, 0, None)]
    told = run(job(function, nulls_first=True), batches_of(records, 10))
    assert told.output == [2, 3]
    without_keys = [batch.drop_columns(["key"]) for batch in batches_of(records, 10)]
    told = run(job(function, nulls_first=True), without_keys)
    assert told.output == [2, 3]


def test_what_was_given_is_mentioned_where_that_counts() -> None:
    told = run(job(row, mentions=True), batches_of([Sent(at, at) for at in range(70)], 16))
    assert told.mentioned == 70
    assert run(job(row), batches_of([Sent(1, 1)], 1)).mentioned == 0


def test_output_says_what_record_it_is_of_where_that_counts() -> None:
    def twice(record: Any) -> Any:
        return [row(record), row(record)] if record.offset != 2 else None

    batches = batches_of([Sent(1, 1), Sent(2, 2), Sent(3, 3)], 10)
    [rows, *_] = run_task(Task(job(twice, keeps_offsets=True), VirtualAlarm()), batches)
    of = rows.column(HIDDEN).field("location").to_pylist()
    assert [(each["topic"], each["offset"]) for each in of] == [
        ("t", 1),
        ("t", 1),
        ("t", 3),
        ("t", 3),
    ]


def test_the_alarm_interrupts_and_is_gone_afterwards() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with RecordAlarm() as alarm:
        begun = time.monotonic()
        with pytest.raises(RecordTimeout):
            alarm.call(lambda _: time.sleep(60), None, 50)
        assert time.monotonic() - begun < 30
        assert alarm.call(lambda argument: argument, 3, 60_000) == 3
        signal.raise_signal(signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_the_alarm_is_of_the_call_that_runs() -> None:
    """It is left to run from call to call, and each has its own time."""
    with RecordAlarm() as alarm:
        # Together they take longer than one may, and each has half a second for a busy machine.
        for _ in range(3):
            assert alarm.call(lambda _: time.sleep(0.4), None, 1_000) is None
        alarm.call(lambda _: None, None, 60_000)
        begun = time.monotonic()
        with pytest.raises(RecordTimeout):
            alarm.call(lambda _: time.sleep(60), None, 50)
        with pytest.raises(RecordTimeout):
            alarm.call(lambda _: time.sleep(60), None, 50)
        # A function with alarms of its own has stopped it.
        alarm.call(lambda _: signal.setitimer(signal.ITIMER_REAL, 0), None, 50)
        time.sleep(0.1)
        with pytest.raises(RecordTimeout):
            alarm.call(lambda _: time.sleep(60), None, 50)
        assert time.monotonic() - begun < 30


def test_a_function_that_catches_everything_is_interrupted_all_the_same() -> None:
    def stubborn(_: Any) -> None:
        while True:
            try:
                time.sleep(60)
            except Exception:  # noqa: S112
                continue

    with RecordAlarm() as alarm, pytest.raises(RecordTimeout):
        alarm.call(stubborn, None, 50)


def test_without_a_limit_no_signal_is_touched() -> None:
    found: list[Any] = []

    def work() -> None:
        with RecordAlarm(needed=False) as alarm:
            found.append(alarm.call(lambda argument: argument, 1, None))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [1]


def test_alarms_need_the_main_thread() -> None:
    found: list[Any] = []

    def work() -> None:
        try:
            with RecordAlarm():
                pass
        except KeyrangeError as failure:
            found.append(failure.condition.name)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["NO_ALARM"]


@pytest.mark.parametrize("offset", [None, 9])
def test_a_row_of_a_batch_is_of_a_record_that_the_function_was_given(offset: int | None) -> None:
    """A row that waits with another record, or with none, would wait for ever, or not at all."""

    batch = batch_of([Sent(1, 1), Sent(2, 2)])
    rows = batch.select(["topic", "partition", "offset"])
    rows = rows.set_column(2, "offset", pa.array([1, offset], pa.int64()))
    strange = job(lambda _: rows, "arrow", keeps_offsets=True)
    with pytest.raises(KeyrangeError, match=r"\[WRONG_RESULT\].*which the function was not given"):
        run(replace(strange, schema=rows.schema), [batch])


def test_a_column_of_errors_is_a_verdict() -> None:
    batch = batch_of([Sent(1, 1), Sent(2, 2), Sent(3, 2), Sent(4, 3)])
    batch = batch.append_column("text", pa.array(["a", "b", "c", "d"]))
    batch = batch.append_column("bad", pa.array([None, "oh", None, None], pa.string()))
    told = run(job(mode="column", error_column="bad"), [batch])
    assert told.rows == [{"offset": 1, "text": "a"}, {"offset": 4, "text": "d"}]
    assert told.causes == {2: Cause.REJECTED, 3: Cause.HELD_BACK}
    assert told.errors[2] == "oh"
    assert told.done == 2


def test_no_rows_make_nothing() -> None:
    assert run(job(row), [batch_of([])]).rows == []
    assert np.array(list(run_task(Task(job(row), VirtualAlarm()), [])), object).size == 0


def test_rows_that_nobody_says_the_verdict_of_yet_need_no_order() -> None:
    """A job may explode and sort before it says by DataFrame what is done, held keys or not."""
    held = {PLACE: TaskPartition((SPACE,), frozenset({7}))}
    batch = batch_of([Sent(3, 5), Sent(3, 5), Sent(1, 6), Sent(2, 7)])
    schema = batch.schema.remove(batch.schema.get_field_index("value"))
    left = Job(held, WorkSettings(), "column", schema)
    found = list(run_task(Task(left, VirtualAlarm()), [batch]))
    assert [row["offset"] for each in found for row in each.to_pylist()][:3] == [3, 3, 1]
    judged = Job(held, WorkSettings(), "column", schema, error_column="value")
    with pytest.raises(KeyrangeError, match="RECORDS_OUT_OF_ORDER"):
        list(run_task(Task(judged, VirtualAlarm()), [batch]))


def test_a_time_that_python_does_not_have_fails_its_own_record_only() -> None:
    batch = batch_of([Sent(offset, 7 + offset) for offset in range(3)])
    stamps = pa.array([0, 1 << 61, 2_000_000], pa.timestamp("us", tz="UTC"))
    batch = batch.append_column("timestamp", stamps)
    seen: list[Any] = []

    def look(record: Any) -> None:
        seen.append(record.timestamp.timestamp())

    outcome = run(job(look), [batch])
    assert seen == [0.0, 2.0]
    assert outcome.causes == {1: Cause.REJECTED}
