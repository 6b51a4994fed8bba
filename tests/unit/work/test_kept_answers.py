"""Rows that wait for the others of their batch share nothing with the function."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from keyrange.model.key_ranges import SPACE
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.task_context import Job, Task
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
