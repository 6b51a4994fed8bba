"""Values that are JSON to columns, and what becomes of a record whose value is none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from keyrange.errors import error
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows, output_rows
from keyrange.work.record_stretches import RecordStretch, rows_at
from keyrange.work.task_context import Task
from keyrange.work.user_errors import said


class JsonWorker:
    """Reads values that are JSON into columns, beside those that the source has."""

    def __init__(self, task: Task) -> None:
        # It brings numba, which other workers do without.
        from keyrange.wire.json_values import JsonDecoder

        assert task.job.values is not None
        self._task = task
        self._bad = task.job.values.bad
        self._decoder = JsonDecoder(task.job.values.schema)

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        task = self._task
        rows = task.free_rows(stretch, np.arange(len(stretch.offsets)), not_done)
        if not len(rows):
            return
        batch = rows_at(stretch.batch, rows)
        read, bad = self._decoder.decode(batch.column("value"))
        if len(bad.rows) and self._bad != "null":
            for at, text in zip(bad.rows.tolist(), bad.errors, strict=True):
                self._refuse(stretch, int(rows[at]), text, not_done)
            good = np.delete(np.arange(len(rows)), bad.rows)
            batch, read = (rows_at(each, good) for each in (batch, read))
        task.count(stretch.partition, batch.num_rows)
        if batch.num_rows:
            columns = [
                # The zone of a timestamp's type is that of the texts there, here UTC.
                read.column(field.name).cast(field.type)
                if field.name in read.schema.names
                else batch.column(field.name)
                for field in task.job.schema
            ]
            output = pa.RecordBatch.from_arrays(columns, schema=task.job.schema)
            yield output_rows(output, None)

    def _refuse(self, stretch: RecordStretch, at: int, text: str, not_done: OutcomeRows) -> None:
        if self._bad == "fail":
            offset = int(stretch.offsets[at])
            raise error("BAD_VALUE", text, partition=stretch.partition, offset=offset)
        self._task.fail(stretch, at, Cause.UNREADABLE, said(text), not_done)
