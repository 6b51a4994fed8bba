"""Values that are JSON, in a task."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.model.ddl import parse_ddl
from keyrange.model.key_ranges import SPACE
from keyrange.model.value_forms import ColumnForm, ReadSettings, Schema, ValueForms
from keyrange.options.registry import RegistrySettings
from keyrange.values.reading import ValueReader, types_of
from keyrange.work.column_workers import own_columns
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task
from samples.working import PLACE, Sent, Told, VirtualAlarm, batch_of, run

OUTPUT = pa.schema([pa.field("id", pa.int64()), pa.field("offset", pa.int64())])


ALL = TaskPartition((SPACE,))


def job(bad: str, work: TaskPartition = ALL) -> Job:
    schema = Schema(json.dumps(parse_ddl("id bigint")))
    forms = ValueForms((ColumnForm("value", "json", schema, ReadSettings()),), bad)
    own = own_columns(OUTPUT.names)
    return Job(
        {PLACE: work},
        WorkSettings(),
        "arrow",
        OUTPUT,
        own,
        values=ValueReader(forms, RegistrySettings()),
    )


def records(*values: bytes) -> pa.RecordBatch:
    return batch_of([Sent(at, at % 2, b"k", value) for at, value in enumerate(values)])


GOOD_AND_BAD = records(b'{"id": 7}', b'{"id": "x"}', b"{", b'{"id": 8}')


def ids(told: Told) -> list[Any]:
    return [(row["id"], row["offset"]) for row in told.rows]


def test_bad_values_are_null_where_that_is_asked_for() -> None:
    told = run(job("null"), [GOOD_AND_BAD])
    assert ids(told) == [(7, 0), (None, 1), (None, 2), (8, 3)]
    assert told.done == 4


def test_a_bad_value_fails_the_task_by_name() -> None:
    with pytest.raises(KeyrangeError, match=r"\[BAD_VALUE\].*partition=t-0, offset=1"):
        run(job("fail"), [GOOD_AND_BAD])


def test_dead_letters_are_whole_and_nothing_waits_for_them() -> None:
    told = run(job("deadLetter"), [GOOD_AND_BAD])
    assert ids(told) == [(7, 0), (8, 3)]
    assert told.done == 2
    assert told.causes == {1: Cause.UNREADABLE, 2: Cause.UNREADABLE}
    task = Task(job("deadLetter"), VirtualAlarm())
    rows = pa.Table.from_batches(list(run_task(task, [GOOD_AND_BAD]))).to_pylist()
    kept = [row[HIDDEN]["outcome"]["record"] for row in rows if (row[HIDDEN] or {}).get("outcome")]
    assert [each["value"] for each in kept] == [b'{"id": "x"}', b"{"]


def test_tombstones_are_counted_beside_what_is_done() -> None:
    sent = [Sent(at, at % 2, b"k", None if at else b'{"id": 7}') for at in range(4)]
    for mode in ("arrow", "record"):
        given = replace(job("deadLetter"), mode=mode)
        if mode == "record":
            given = replace(given, function=lambda record: (7, record.offset))
        rows = list(run_task(Task(given, VirtualAlarm()), [batch_of(sent)]))
        hidden = [each[HIDDEN] or {} for each in pa.Table.from_batches(rows).to_pylist()]
        for member, records in (("done", 4), ("tombstones", 3)):
            assert [each[member]["records"] for each in hidden if each.get(member)] == [records]
    # Without a format no value is read, and a tombstone is a record as any other.
    raw = replace(job("deadLetter"), mode="record", values=None, function=lambda _: None)
    rows = list(run_task(Task(raw, VirtualAlarm()), [batch_of(sent)]))
    told = pa.Table.from_batches(rows).to_pylist()
    assert not any((each[HIDDEN] or {}).get("tombstones") for each in told)


def test_what_is_held_back_is_not_read() -> None:
    held = TaskPartition((SPACE,), held=frozenset({1}))
    told = run(job("deadLetter", held), [GOOD_AND_BAD])
    assert ids(told) == [(7, 0)]
    assert told.causes == {1: Cause.HELD_BACK, 2: Cause.UNREADABLE, 3: Cause.HELD_BACK}


def test_nothing_but_bad_values() -> None:
    told = run(job("deadLetter"), [records(b"[", b"]")])
    assert (told.rows, told.done, len(told.causes)) == ([], 0, 2)


class TestRecordsOfTypedDataFrames:
    """The source has read them, and Spark hands them over."""

    FORMS = ValueForms(
        (
            ColumnForm("key", "string", Schema(""), ReadSettings()),
            ColumnForm("value", "json", Schema(json.dumps(parse_ddl("id bigint"))), ReadSettings()),
        ),
        "column",
        keeps_bytes=True,
    )

    def read(self, *records: Sent) -> pa.RecordBatch:
        batch = batch_of(records)
        found = ValueReader(self.FORMS, RegistrySettings()).read_all(batch)
        given = {field.name: field.type for field in batch.schema}
        assert list(types_of(self.FORMS, given).items()) == [(e.name, e.type) for e in found.schema]
        return found

    def outcomes(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        def fails(record: Any) -> None:
            raise ValueError

        job = Job({PLACE: ALL}, WorkSettings(deliveries_max=1), "record", OUTPUT, fails)
        rows = pa.Table.from_batches(list(run_task(Task(job, VirtualAlarm()), [batch]))).to_pylist()
        return [row[HIDDEN]["outcome"] for row in rows if (row[HIDDEN] or {}).get("outcome")]

    def test_are_given_up_as_kafka_has_them(self) -> None:
        batch = self.read(Sent(0, 1, b"k", b'{"id": 7}'), Sent(1, 2, b"\xff", b"{"))
        kept = [each["record"] for each in self.outcomes(batch)]
        assert [(each["key"], each["value"]) for each in kept] == [
            (b"k", b'{"id": 7}'),
            (b"\xff", b"{"),
        ]

    @pytest.mark.parametrize("left_out", [["_raw_key"], ["_raw_value"], ["key", "_raw_key"]])
    def test_are_no_letters_where_bytes_are_missing(self, left_out: list[str]) -> None:
        """The driver reads them from the batch then."""
        batch = self.read(Sent(0, 1, b"k", b'{"id": 7}')).drop_columns(left_out)
        assert [each["record"] for each in self.outcomes(batch)] == [None]

    @pytest.mark.parametrize("left_out", [[], ["_raw_key"]])
    def test_wait_for_their_key_though_that_cannot_be_read(self, left_out: list[str]) -> None:
        batch = self.read(Sent(0, 1, b"\xff"), Sent(1, 1, b"\xff"), Sent(2, 2, None))

        def fails_first(record: Any) -> Any:
            if record.offset == 0:
                raise ValueError
            return (0, record.offset)

        job = Job({PLACE: ALL}, WorkSettings(), "record", OUTPUT, fails_first)
        told = run(job, [batch.drop_columns(left_out)])
        assert told.causes == {0: Cause.REJECTED, 1: Cause.HELD_BACK}
        assert told.output == [2]
