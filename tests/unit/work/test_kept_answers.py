"""Rows that wait for the others of their batch share nothing with the function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import keyrange
from keyrange.model.key_ranges import SPACE
from keyrange.testing import StateHarness
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.records import RowForm
from keyrange.work.table_forms import form_of
from keyrange.work.task_context import Job, RowsOf, Task
from keyrange.work.task_run import run_task
from samples.working import PLACE, Sent, VirtualAlarm, batch_of


@pytest.mark.parametrize("several", [False, True])
def test_what_a_function_answers_with_is_as_it_was_then(several: bool) -> None:
    """One that fills the same buffer and list for each record would end with the last ones."""
    buffer, texts = bytearray(b"-"), [""]
    schema = pa.schema([("n", pa.int64()), ("blob", pa.binary()), ("texts", pa.list_(pa.string()))])

    def fill(record: Any) -> Any:
        buffer[0], texts[0] = 65 + record.offset, str(record.offset)
        row = record.offset, buffer, texts
        return [row, row] if several else row

    job = Job({PLACE: TaskPartition((SPACE,))}, WorkSettings(), "record", schema, fill)
    batches = [batch_of([Sent(offset, offset) for offset in range(3)])]
    found = [
        row for each in run_task(Task(job, VirtualAlarm()), batches) for row in each.to_pylist()
    ]
    rows = [(row["n"], row["blob"], row["texts"]) for row in found if row["n"] is not None]
    times = 2 if several else 1
    assert rows == [(n, bytes([65 + n]), [str(n)]) for n in range(3) for _ in range(times)]


def test_what_a_function_of_batches_answers_with_is_as_it_was_then() -> None:
    """An array that Arrow makes of numpy's has its memory."""
    numbers = np.zeros(2, np.int64)
    schema = pa.schema([("n", pa.int64())])

    def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers[:] = batch.column("offset").to_numpy()
        return pa.record_batch({"n": pa.array(numbers)})

    job = Job(
        {PLACE: TaskPartition((SPACE,))},
        WorkSettings(),
        "arrow",
        schema,
        fill,
        outputs=(RowsOf(schema),),
    )
    batches = [batch_of([Sent(at, at), Sent(at + 1, at + 1)]) for at in (0, 2, 4)]
    found = list(run_task(Task(job, VirtualAlarm()), batches))
    rows = [row["n"] for each in found for row in each.to_pylist() if row["n"] is not None]
    assert rows == [*range(6)]


def test_the_state_that_a_function_of_batches_makes_is_as_it_was_then() -> None:
    seen = np.zeros(1, np.int64)

    def count(records: pa.RecordBatch, _groups: Any, state: pa.RecordBatch) -> Any:
        seen[0] += 1
        value = pa.StructArray.from_arrays([pa.array(seen)], ["n"])
        return None, pa.RecordBatch.from_arrays([value], state.schema.names)

    harness = StateHarness(count, "n long", {"v": keyrange.ValueState("n long")}, mode="arrow")
    for key in (b"a", b"b", b"c"):
        harness.process([(key, b"")])
    assert [harness.state(key)["v"] for key in (b"a", b"b", b"c")] == [1, 2, 3]


def test_no_row_of_a_table_in_several_parts_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow leaves a column in parts that would have more than 2 GiB as one."""

    class Large:
        def combine_chunks(self) -> Large:
            return self

        def to_batches(self) -> list[pa.RecordBatch]:
            return [pa.record_batch({"n": [n]}) for n in (1, 2)]

    monkeypatch.setattr(pa, "Table", Large)
    with pytest.raises(ValueError, match="2 GiB"):
        RowForm(pa.schema([("n", pa.int64())])).cast(Large())


@pytest.mark.parametrize("names", [["rows"], ["rows", "more"]])
def test_a_function_answers_by_the_names_that_its_schemas_have(names: list[str]) -> None:
    columns = pa.schema([("n", pa.int64())])
    job = Job(
        {PLACE: TaskPartition((SPACE,))},
        WorkSettings(),
        "record",
        columns,
        outputs=tuple(RowsOf(columns, name=each) for each in names),
    )
    form = form_of(job)
    rows = form.rows_of(dict.fromkeys(names, (7,)), {})
    assert [batch.to_pylist() for _, batch, _ in form.parts(rows)] == [[{"n": 7}]] * len(names)
