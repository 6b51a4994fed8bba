"""Output that executors write to files below its table: its rows are written once, and what they
hand to Spark says which files those are in."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa

from keyrange.storage.data_files import (
    FILE_SETTINGS,
    DataFile,
    DataFileWriter,
    FileSettings,
    PartFile,
)
from keyrange.storage.directory import Directory
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.object_store import failing_as
from keyrange.work.outcome_rows import HIDDEN, member_rows, member_type, other_rows

_NO_COLUMNS: Final = pa.schema([])
# Of a file that is handed on itself: a file of a store is a call to write and one to read.
_SMALL_BYTES: Final = 32 << 10
_GROUP_BYTES: Final = 1 << 20
_CODEC: Final = "zstd"
# What is handed to Spark row by row; of the others there may be many, and they may be large.
_FEW: Final = ("done", "handed_back", "state_run", "state_work")
# What of it a verdict is made of.
HANDED_ON: Final = {
    member: tuple(member_type(member).names)
    for member in ("file", "outcome_file", "handed_back", "done", "state_run")
}


@dataclass(frozen=True)
class Target:
    """Where the tasks of a batch write: their output to files below `table`, and what became of
    other records to a file of `attempt` in the directory `outcomes`. `storage`: settings of the
    object store."""

    table: str
    outcomes: str
    attempt: str
    partition_by: tuple[PartitionColumn, ...] = ()
    files: FileSettings = FILE_SETTINGS
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


def write_output(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, target: Target
) -> Iterator[pa.RecordBatch]:
    """Rows of a task as `run_task` makes them, to files; what is to be known of these is handed on.

    Raises SINK_UNWRITABLE, VERDICT_UNWRITABLE.
    """
    output = DataFileWriter(target.table, schema, target.partition_by, target.files, target.storage)
    outcomes = _OutcomeFile(target)
    try:
        for batch in rows:
            hidden = batch.column(HIDDEN)
            if hidden.null_count:
                output.add(batch.select(schema.names))
            elif any(hidden.field(member).null_count == 0 for member in _FEW):
                yield other_rows(_NO_COLUMNS, hidden)
            else:
                outcomes.add(hidden)
        yield other_rows(_NO_COLUMNS, _file_rows(output.finish()))
        yield other_rows(_NO_COLUMNS, outcomes.finish())
    finally:
        output.abandon()
        outcomes.abandon()


def data_file(
    name: str,
    size_bytes: int,
    rows: int,
    statistics: str,
    partition_values: Iterable[tuple[str, str | None]],
) -> DataFile:
    """The file that a row of `HANDED_ON` tells of."""
    return DataFile(name, size_bytes, rows, statistics, dict(partition_values))


def _file_rows(files: Sequence[DataFile]) -> pa.StructArray:
    rows = [
        (each.name, each.size_bytes, each.rows, each.statistics, [*each.partition_values.items()])
        for each in files
    ]
    return member_rows("file", rows)


class _OutcomeFile:
    """A file of what became of records, which is there only if something did. A small one is handed
    on itself."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._name = f"part-{uuid.uuid4()}.parquet"
        self._file: PartFile | None = None

    def add(self, hidden: pa.StructArray) -> None:
        rows = other_rows(_NO_COLUMNS, hidden)
        with self._writing():
            if self._file is None:
                self._file = PartFile(self._create, self._name, rows.schema, {}, _CODEC)
            self._file.add(rows)
            # Few rows together are a group: what the file says of its columns for each is 6 KB.
            if self._file.waiting_bytes >= _GROUP_BYTES:
                self._file.write()

    def finish(self) -> pa.StructArray:
        if self._file is None:
            return member_rows("outcome_file", [])
        with self._writing():
            if self._file.is_begun:
                return self._told(self._file.close().size_bytes)
            data = self._file.to_bytes()
            if len(data) <= _SMALL_BYTES:
                return self._told(len(data), data)
            self._directory.write(self._name, data)
            return self._told(len(data))

    def abandon(self) -> None:
        """Let go of a file that is not finished."""
        if self._file is not None:
            self._file.abandon()

    def _told(self, size_bytes: int, data: bytes | None = None) -> pa.StructArray:
        row = (self._target.attempt, self._name, size_bytes, data)
        return member_rows("outcome_file", [row])

    def _create(self, name: str) -> pa.NativeFile:
        return self._directory.create(name)

    @cached_property
    def _directory(self) -> Directory:
        return Directory(self._target.outcomes, self._target.storage)

    def _writing(self) -> AbstractContextManager[None]:
        what = "the outcomes of records cannot be kept"
        return failing_as("VERDICT_UNWRITABLE", what, path=self._target.outcomes)
