"""Output that executors write to files below its table: its rows are written once, and what they
hand to Spark says which files those are in."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from keyrange.sending.partition_counts import partitions_of
from keyrange.sending.topic_address import TopicAddress
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
from keyrange.work.outcome_rows import (
    HIDDEN,
    changed_rows,
    member_type,
    other_rows,
    rows_for,
    table_of,
    told_rows,
)
from keyrange.work.staged_rows import StagedRows

if TYPE_CHECKING:
    from keyrange.work.staged_batches import StagedBatches

_NO_COLUMNS: Final = pa.schema([])
# Of a file that is handed on itself: a file of a store is a call to write and one to read.
_SMALL_BYTES: Final = 32 << 10
_GROUP_BYTES: Final = 1 << 20
_CODEC: Final = "zstd"
# What is handed to Spark row by row; of the others there may be many, and they may be large.
_FEW: Final = (
    *("done", "tombstones", "handed_back", "state_run", "state_work", "event_time", "timers"),
)
# What of it a verdict is made of.
HANDED_ON: Final = {
    member: tuple(member_type(member).names)
    for member in (
        *("file", "columns", "outcome_file", "handed_back", "done", "tombstones", "state_run"),
        *("event_time", "timers"),
    )
}


@dataclass(frozen=True)
class Output:
    """What goes to one table: `columns` of the rows, by the last row of each key where it has
    `keys`. `name` and `is_staged` as of `OutputTable`. What goes to a topic has a `topic` instead
    of a table. `in_order` as of `StagedRows`."""

    table: str
    columns: pa.Schema
    partition_by: tuple[PartitionColumn, ...] = ()
    keys: tuple[str, ...] = ()
    name: str = ""
    is_staged: bool = False
    topic: TopicAddress | None = None
    in_order: bool = False


@dataclass(frozen=True)
class Target:
    """Where the tasks of a batch write: their output to files below the tables of `outputs`, and
    what became of other records to a file of `attempt` in the directory `outcomes`. There are also
    the rows for tables that are written from there. `storage`: settings of the object store."""

    outputs: tuple[Output, ...]
    outcomes: str
    attempt: str
    files: FileSettings = FILE_SETTINGS
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


def write_output(rows: Iterable[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    """Rows of a task as `run_task` makes them, to files; what is to be known of these is handed on.

    Raises SINK_UNWRITABLE, VERDICT_UNWRITABLE.
    """
    writers = {each.name: _TableWriter(each, target) for each in target.outputs}
    outcomes = _OutcomeFile(target)
    try:
        for batch in rows:
            hidden = batch.column(HIDDEN)
            if hidden.null_count or hidden.field("change").null_count < len(hidden):
                writers[table_of(batch)].add(batch)
            elif any(hidden.field(member).null_count == 0 for member in _FEW):
                yield other_rows(_NO_COLUMNS, hidden)
            else:
                outcomes.add(hidden)
        for name, writer in writers.items():
            yield from told_rows(_NO_COLUMNS, "file", _file_rows(writer.finish(), name))
        yield from told_rows(_NO_COLUMNS, "outcome_file", outcomes.finish())
    finally:
        for writer in writers.values():
            writer.abandon()
        outcomes.abandon()


def writing_again(
    target: Target,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: rows of a file of rows for one output to that output's own files. Raises as
    `write_output`."""
    output = target.outputs[0]

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays = [batch.column(each.name).cast(each.type) for each in output.columns]
            own = pa.RecordBatch.from_arrays(arrays, schema=output.columns)
            hidden = batch.column(HIDDEN)
            change = {each.name: hidden.field(each.name) for each in member_type("change")}
            yield rows_for(changed_rows(own, change), output.name)

    return lambda batches: write_output(rows(batches), target)


def files_of(rows: Iterable[Sequence[Any]], table: str = "") -> list[DataFile]:
    """The files of one table that rows of `HANDED_ON` tell of."""
    return [
        DataFile(name, size_bytes, count, statistics, dict(partition_values))
        for name, size_bytes, count, statistics, partition_values, target in rows
        if target == table
    ]


def _file_rows(files: Sequence[DataFile], table: str) -> list[tuple[Any, ...]]:
    return [
        (
            *(each.name, each.size_bytes, each.rows, each.statistics),
            *([*each.partition_values.items()], table),
        )
        for each in files
    ]


class _TableWriter:
    """Writes the rows of one table below it, or beside the outcomes what is staged."""

    def __init__(self, output: Output, target: Target) -> None:
        self._output, self._target = output, target
        schema, columns = output.columns, output.partition_by
        self._staged: StagedRows | StagedBatches | None = None
        if (to := output.topic) is not None:
            # With it come kernels, which take time and memory that tables do not need.
            from keyrange.work.staged_batches import StagedBatches

            count = partial(partitions_of, to.client)
            self._staged = StagedBatches(self._create, target.attempt, to.topic, to.batches, count)
        elif output.is_staged:
            given = (self._create, target.attempt, schema, columns, output.keys)
            self._staged = StagedRows(*given, in_order=output.in_order)
        else:
            self._rows = DataFileWriter(output.table, schema, columns, target.files, target.storage)

    def add(self, batch: pa.RecordBatch) -> None:
        if self._staged is None:
            self._rows.add(batch.select(self._output.columns.names))
        else:
            with self._writing():
                self._staged.add(batch)

    def finish(self) -> list[DataFile]:
        if self._staged is None:
            return self._rows.finish()
        with self._writing():
            return self._staged.finish()

    def abandon(self) -> None:
        if self._staged is None:
            self._rows.abandon()
        else:
            self._staged.abandon()

    def _create(self, name: str) -> pa.NativeFile:
        return Directory(self._target.outcomes, self._target.storage).create(name)

    def _writing(self) -> AbstractContextManager[None]:
        what = "rows that are to be written into the table cannot be kept"
        return failing_as("VERDICT_UNWRITABLE", what, path=self._target.outcomes)


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

    def finish(self) -> list[tuple[Any, ...]]:
        if self._file is None:
            return []
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

    def _told(self, size_bytes: int, data: bytes | None = None) -> list[tuple[Any, ...]]:
        return [(self._target.attempt, self._name, size_bytes, data)]

    def _create(self, name: str) -> pa.NativeFile:
        return self._directory.create(name)

    @cached_property
    def _directory(self) -> Directory:
        return Directory(self._target.outcomes, self._target.storage)

    def _writing(self) -> AbstractContextManager[None]:
        what = "the outcomes of records cannot be kept"
        return failing_as("VERDICT_UNWRITABLE", what, path=self._target.outcomes)
