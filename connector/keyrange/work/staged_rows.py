"""Rows in files that are no part of their table until they are written into it. Of rows for a table
with keys a task keeps the last one of each key."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.storage.data_files import DataFile, PartFile
from keyrange.storage.delta_partitions import table_schema, with_computed
from keyrange.storage.last_rows import (
    CHANGE,
    kept_columns,
    last_made,
    last_of_partitions,
    not_before,
)
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.staged import with_kept
from keyrange.work.outcome_rows import HIDDEN, member_type

# Of rows that wait for a file, or for others of their keys: then the last ones are chosen of them,
# and written where these are more than half of it. Whoever merges chooses once more.
_WAITING_BYTES: Final = 64 << 20
# Of rows without keys, which are a group of their file's then: whoever reads it has one at a time.
_GROUP_BYTES: Final = 16 << 20
_CODEC: Final = "zstd"


class StagedRows:
    """The rows of one task for one table. `create` begins a file by its name below `attempt`.
    Without `keys` all are kept. `in_order`: rows of partitions of one number stand in the order in
    which they were made, whatever their topics are."""

    def __init__(
        self,
        create: Callable[[str], pa.NativeFile],
        attempt: str,
        schema: pa.Schema,
        partition_by: Sequence[PartitionColumn],
        keys: Sequence[str],
        waiting_bytes: int = _WAITING_BYTES,
        in_order: bool = False,
    ) -> None:
        """`schema`: the columns of the rows that the table has."""
        self._create, self._attempt = create, attempt
        self._names, self._partition_by, self._keys = schema.names, tuple(partition_by), keys
        self._schema = table_schema(schema, partition_by).append(
            pa.field(CHANGE, member_type("change"))
        )
        self._most = waiting_bytes if keys else min(waiting_bytes, _GROUP_BYTES)
        self._chosen = last_made if in_order else last_of_partitions
        # The earliest time of a row that stands behind those of the files before, if that is said.
        self._from_ms: int | None = None
        self._in_order = in_order
        self._waiting_bytes = 0
        self._waiting: list[pa.RecordBatch] = []
        self._file: PartFile | None = None
        self._name = ""
        self._files: list[DataFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with the member `change` of what is hidden."""
        if not rows.num_rows:
            return
        change = rows.column(HIDDEN).field("change")
        table_rows = with_computed(rows.select(self._names), self._partition_by)
        whole = pa.RecordBatch.from_arrays([*table_rows.columns, change], schema=self._schema)
        self._waiting.append(whole)
        self._waiting_bytes += whole.nbytes
        if self._waiting_bytes > self._most:
            self._choose()
            if self._waiting_bytes > self._most // 2:
                self._write()

    def finish(self) -> list[DataFile]:
        """The files; none where there was no row. One that has keys has one row of a key and
        partition, and without keys there is one, with all rows in their order."""
        if self._waiting:
            self._choose()
            self._write()
        if self._file is not None:
            self._close(self._file, ())
        files, self._files = self._files, []
        return files

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()

    def _choose(self) -> None:
        if not self._keys:
            return
        rows = self._chosen(pa.Table.from_batches(self._waiting, self._schema), self._keys)
        self._waiting = rows.combine_chunks().to_batches()
        self._waiting_bytes = sum(each.nbytes for each in self._waiting)

    def _write(self) -> None:
        if self._file is None:
            self._name = f"part-{uuid.uuid4()}.parquet"
            self._file = PartFile(self._create, self._name, self._schema, {}, _CODEC)
        if self._in_order and self._keys:
            self._put_behind()
        for each in self._waiting:
            self._file.add(each)
        if self._keys:
            self._close(self._file, kept_columns(pa.Table.from_batches(self._waiting)))
        else:
            self._file.write()
        self._waiting, self._waiting_bytes = [], 0

    def _put_behind(self) -> None:
        """Whoever merges knows of rows in two files by the times of their records alone which of
        them was made later."""
        if (from_ms := self._from_ms) is not None:
            self._waiting = [not_before(each, from_ms) for each in self._waiting]
        times = (pc.max(each.column(CHANGE).field("timestamp_ms")) for each in self._waiting)
        self._from_ms = max(each.as_py() for each in times) + 1

    def _close(self, file: PartFile, kept: Iterable[str]) -> None:
        told = with_kept(file.close(), kept)
        self._files.append(replace(told, name=f"{self._attempt}/{self._name}"))
        self._file = None
