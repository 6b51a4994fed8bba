"""Records that no function is called with: a column says their verdict, or their values are JSON
that becomes columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.errors import error
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows, output_rows
from keyrange.work.record_stretches import RecordStretch, rows_at
from keyrange.work.task_context import Task
from keyrange.work.user_errors import said


class ColumnWorker:
    """Takes the verdict from a column: null is done, any other text is a record's error."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        task = self._task
        held, batch = task.held[stretch.partition], stretch.batch
        texts = self._texts(batch)
        rows = np.arange(batch.num_rows)
        if texts is not None or held:
            kept: list[int] = []
            key_hashes = stretch.key_hashes.tolist()
            for at in range(batch.num_rows):
                if held and key_hashes[at] in held and stretch.row_has_key(at):
                    not_done.add(at, Cause.HELD_BACK)
                elif texts is not None and texts[at] is not None:
                    why = said(str(texts[at]))
                    task.fail(stretch, at, Cause.REJECTED, why, not_done, keeps_record=False)
                else:
                    kept.append(at)
            rows = np.array(kept, np.int64)
        task.count(stretch.partition, len(rows))
        if len(rows):
            output = rows_at(batch, rows).select(task.job.schema.names)
            arrays = [output.column(field.name).cast(field.type) for field in task.job.schema]
            output = pa.RecordBatch.from_arrays(arrays, schema=task.job.schema)
            yield task.output(output, batch, pa.array(rows, pa.int64()))

    def _texts(self, batch: pa.RecordBatch) -> list[Any] | None:
        name = self._task.job.error_column
        if name is None or batch.column(name).null_count == batch.num_rows:
            return None
        texts: list[Any] = batch.column(name).to_pylist()
        return texts


class JsonWorker:
    """Reads values that are JSON into columns, beside those that the source has."""

    def __init__(self, task: Task) -> None:
        # It brings numba, which other workers do without.
        from keyrange.values.json.decoder import JsonDecoder
        from keyrange.values.payloads import Payloads

        assert task.job.values is not None
        self._task = task
        self._bad = task.job.values.bad
        self._payloads = Payloads.of
        self._decoder = JsonDecoder(pa.struct(list(task.job.values.schema)))

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        task = self._task
        rows = task.free_rows(stretch, np.arange(len(stretch.offsets)), not_done)
        if not len(rows):
            return
        batch = rows_at(stretch.batch, rows)
        found = self._decoder.read(self._payloads(batch.column("value")))
        read, bad = pa.RecordBatch.from_struct_array(found.column), found.bad
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
