"""Records that no function of a user's is called with: a column says their verdict, or all are
written as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_stretches import RecordStretch, rows_at
from keyrange.work.task_context import Task
from keyrange.work.user_errors import said


class ColumnWorker:
    """Takes the verdict from a column: null is done, any other text is a record's error."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        task = self._task
        held, batch = task.held_in(stretch), stretch.batch
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
        task.count(stretch, rows)
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


def own_columns(
    names: list[str], whole: pa.DataType | None = None, keys: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """Records in the columns of a table or topic: a value that has fields is a column for each,
    unless it stays `whole`, which is its type. Where there is no value, `keys` are those of the
    record's key that has them. Tasks read more than these, to know which records they are."""

    def own(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        value = columns.get("value")
        if value is not None and pa.types.is_struct(value.type) and value.type != whole:
            del columns["value"]
            fields = dict(zip([field.name for field in value.type], value.flatten(), strict=True))
            if value.null_count:
                fields |= _keys_of(fields, columns.get("key"), keys, value.is_null())
            columns |= fields
        return pa.RecordBatch.from_pydict({name: columns[name] for name in names})

    return own


def _keys_of(
    fields: Mapping[str, pa.Array], key: pa.Array | None, names: Sequence[str], lacks: pa.Array
) -> dict[str, pa.Array]:
    if key is None or not pa.types.is_struct(key.type):
        return {}
    said = dict(zip([field.name for field in key.type], key.flatten(), strict=True))
    return {
        name: pc.if_else(lacks, said[name], fields[name])
        for name in names
        if name in fields and name in said and said[name].type == fields[name].type
    }
