"""Values that are JSON, in a task."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.model.ddl import parse_ddl
from keyrange.model.key_ranges import SPACE
from keyrange.model.value_forms import ColumnForm, ReadSettings, Schema, ValueForms
from keyrange.options.registry import RegistrySettings
from keyrange.values.reading import ValueReader
from keyrange.work.column_workers import own_columns
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task
from samples.working import PLACE, Sent, Told, VirtualHands, batch_of, run

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
    task = Task(job("deadLetter"), VirtualHands())
    rows = pa.Table.from_batches(list(run_task(task, [GOOD_AND_BAD]))).to_pylist()
    kept = [row[HIDDEN]["outcome"]["record"] for row in rows if (row[HIDDEN] or {}).get("outcome")]
    assert [each["value"] for each in kept] == [b'{"id": "x"}', b"{"]


def test_what_is_held_back_is_not_read() -> None:
    held = TaskPartition((SPACE,), held=frozenset({1}))
    told = run(job("deadLetter", held), [GOOD_AND_BAD])
    assert ids(told) == [(7, 0)]
    assert told.causes == {1: Cause.HELD_BACK, 2: Cause.UNREADABLE, 3: Cause.HELD_BACK}


def test_nothing_but_bad_values() -> None:
    told = run(job("deadLetter"), [records(b"[", b"]")])
    assert (told.rows, told.done, len(told.causes)) == ([], 0, 2)
