"""Output that executors write to files below its table: its rows are written once, and the verdict
of the batch says which files they are in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from keyrange.storage.data_files import DataFile, DataFileWriter
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.work.outcome_rows import HIDDEN, Code, hidden_rows, other_rows
from keyrange.work.run import work_of
from keyrange.work.task import Job

FILE_CODES: Final = (Code.DATA_FILE,)
FILE_FIELDS: Final = ("code", "topic", "offset", "key_hash", "error", "key")
_NO_COLUMNS: Final = pa.schema([])


def work_into(
    job: Job, table: str, partition_by: Sequence[PartitionColumn]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow, as `work_of`: rows of output go to files below `table`, which rows of the
    verdict name, and all other rows are handed on."""
    work = work_of(job)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = DataFileWriter(table, job.schema, partition_by)
        try:
            for rows in work(batches):
                hidden = rows.column(HIDDEN)
                if hidden.null_count:
                    writer.add(rows.select(job.schema.names))
                else:
                    yield other_rows(_NO_COLUMNS, hidden)
            yield other_rows(_NO_COLUMNS, _file_rows(writer.finish()))
        finally:
            writer.abandon()

    return write


def files_in(rows: Iterable[Sequence[Any]]) -> list[DataFile]:
    """What rows of `FILE_FIELDS` say."""
    return [
        # Verdicts of versions that took no partitioned tables have no values.
        DataFile(name, size, count, said, json.loads(bytes(values)) if values else {})
        for _, name, size, count, said, values in rows
    ]


def _file_rows(files: Sequence[DataFile]) -> pa.StructArray:
    return hidden_rows(
        [
            {
                "code": int(Code.DATA_FILE),
                "topic": each.name,
                "offset": each.size_bytes,
                "key_hash": each.rows,
                "error": each.statistics,
                "key": json.dumps(each.partition_values).encode(),
            }
            for each in files
        ]
    )
