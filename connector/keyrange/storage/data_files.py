"""Parquet files below a Delta table whose log does not name them yet, and what it is to say."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from keyrange.errors import error
from keyrange.storage.delta_partitions import Values, directory_of, split
from keyrange.storage.directory import Directory
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.object_store import failing_as, let_go

# What Databricks tunes files to for tables of up to 2.56 TB; OPTIMIZE leaves such files as they are
# where they are enough for it, and a query still has several of them to read at once.
TARGET_BYTES: Final = 256 << 20
# Of rows that have hardly any bytes.
_GROUP_ROWS: Final = 1_000_000
# How often a value has to be there, on average, in the first rows.
_SAMPLE_ROWS: Final = 4096
_REPEATED: Final = 8
# What a batch takes besides its values, which is most where it has few rows.
_BATCH_BYTES: Final = 1024
_ARRAY_BYTES: Final = 256
# As many columns, and as long texts, as Delta keeps statistics of by default.
_INDEXED_COLUMNS: Final = 32
_TEXT_MAX: Final = 32
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file by its name below the table. `statistics`: JSON, as Delta's log has it.
    `partition_values`: of each partition column, as the log has them."""

    name: str
    size_bytes: int
    rows: int
    statistics: str
    partition_values: Mapping[str, str | None] = field(default_factory=dict)


def check_there(
    directory: Directory, files: Sequence[DataFile], batch_id: int, left: str, **where: str
) -> None:
    """Raises VERDICT_DAMAGED where a file is not there as it was written. `left`: what is not done
    with it yet."""
    for each in files:
        if directory.size(each.name) != each.size_bytes:
            message = f"{each.name}, output of batch {batch_id}, is not there as it was written"
            raise error("VERDICT_DAMAGED", f"{message}, and {left}", **where)


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How files are written. `codec`: snappy or zstd. From `target_bytes` on a file is closed and
    the next begins. Rows wait for others to make a row group with: `group_bytes` for one partition,
    `waiting_bytes` for all together. At most `open_max` files are open at once; in a store of
    objects each may hold a part of 10 MB that is not uploaded yet."""

    codec: str = "snappy"
    target_bytes: int = TARGET_BYTES
    group_bytes: int = 32 << 20
    waiting_bytes: int = 64 << 20
    open_max: int = 32


FILE_SETTINGS: Final = FileSettings()


class DataFileWriter:
    """Writes rows to files below a table, to one for each partition or more. Files that were begun
    and are not in what `finish` answers belong to nobody: Delta's vacuum removes them."""

    def __init__(
        self,
        table: str,
        schema: pa.Schema,
        partition_by: Sequence[PartitionColumn] = (),
        settings: FileSettings = FILE_SETTINGS,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        """`schema` is that of the rows. A partition column is one of theirs, or is computed."""
        own = {each.name for each in partition_by if each.unit is None}
        self._table = table
        self._columns = tuple(partition_by)
        self._schema = pa.schema([each for each in schema if each.name not in own])
        self._settings = settings
        self._storage = storage
        self._parts: dict[Values, PartFile] = {}
        # Those that are begun. The one that was written to longest ago is the first.
        self._open: dict[Values, None] = {}
        self._waiting_bytes = 0
        self._files: list[DataFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Raises SINK_UNWRITABLE."""
        if rows.num_rows:
            with self._writing():
                for values, part in split(rows, self._columns):
                    self._add_to(values, part)

    def finish(self) -> list[DataFile]:
        """The files, closed; none where there was no row. Raises SINK_UNWRITABLE."""
        with self._writing():
            self._close_all()
        files, self._files = self._files, []
        return files

    def abandon(self) -> None:
        """Let go of files that are not finished."""
        for each in self._parts.values():
            each.abandon()
        self._parts.clear()
        self._open.clear()

    def _add_to(self, values: Values, rows: pa.RecordBatch) -> None:
        file = self._parts.get(values)
        if file is None:
            file = self._parts[values] = self._begin(values)
        self._waiting_bytes += file.add(rows)
        if file.waiting_bytes >= self._settings.group_bytes or file.waiting_rows >= _GROUP_ROWS:
            self._write(values)
        while self._waiting_bytes > self._settings.waiting_bytes:
            self._write(max(self._parts, key=lambda each: self._parts[each].waiting_bytes))

    def _begin(self, values: Values) -> PartFile:
        path = directory_of(self._columns, values)
        names = [each.name for each in self._columns]
        name = f"{path}part-{uuid.uuid4()}.{self._settings.codec}.parquet"
        partition = dict(zip(names, values, strict=True))
        return PartFile(self._create, name, self._schema, partition, self._settings.codec)

    def _create(self, name: str) -> pa.NativeFile:
        return self._directory.create(name)

    @cached_property
    def _directory(self) -> Directory:
        return Directory(self._table, self._storage)

    def _write(self, values: Values) -> None:
        file = self._parts[values]
        if values not in self._open and len(self._open) >= self._settings.open_max:
            self._close(next(iter(self._open)))
        self._open.pop(values, None)
        self._open[values] = None
        self._waiting_bytes -= file.waiting_bytes
        if file.write() >= self._settings.target_bytes:
            self._close(values)

    def _close(self, values: Values) -> None:
        file = self._parts[values]
        self._waiting_bytes -= file.waiting_bytes
        self._files.append(file.close())
        del self._parts[values]
        self._open.pop(values, None)

    def _close_all(self) -> None:
        # Those that are open first: the others are opened to be closed.
        begun = [*self._open]
        for values in begun + [each for each in self._parts if each not in self._open]:
            self._close(values)

    def _writing(self) -> AbstractContextManager[None]:
        what = "a file of the table cannot be written"
        return failing_as("SINK_UNWRITABLE", what, table=self._table)


class PartFile:
    """A file, which `create` begins with its first group, and rows that wait to be written to
    it."""

    def __init__(
        self,
        create: Callable[[str], pa.NativeFile],
        name: str,
        schema: pa.Schema,
        partition: Mapping[str, str | None],
        codec: str,
    ) -> None:
        self._name = name
        self._schema = schema
        self._partition = partition
        self._written: list[pq.FileMetaData] = []
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.waiting_rows = 0
        self._codec = codec
        self._create = create
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.RecordBatch) -> int:
        """How many bytes wait more than before."""
        size: int = rows.nbytes + _BATCH_BYTES + _ARRAY_BYTES * rows.num_columns
        self._waiting.append(rows)
        self.waiting_bytes += size
        self.waiting_rows += rows.num_rows
        return size

    @property
    def is_begun(self) -> bool:
        return self._writer is not None

    def to_bytes(self) -> bytes:
        """What waits as a file of its own."""
        out = pa.BufferOutputStream()
        rows = pa.Table.from_batches(self._waiting)
        pq.write_table(rows, out, compression=self._codec, write_page_checksum=True)
        data: bytes = out.getvalue().to_pybytes()
        return data

    def write(self) -> int:
        """Write what waits as a group; how long the file is now."""
        rows = pa.Table.from_batches(self._waiting, self._schema)
        if self._stream is None or self._writer is None:
            self._stream = self._create(self._name)
            self._writer = pq.ParquetWriter(
                self._stream,
                self._schema,
                compression=self._codec,
                use_dictionary=repeating(rows),
                metadata_collector=self._written,
                write_page_checksum=True,
            )
        self._writer.write_table(rows)
        self._waiting, self.waiting_bytes, self.waiting_rows = [], 0, 0
        return int(self._stream.tell())

    def close(self) -> DataFile:
        if self._waiting:
            self.write()
        assert self._stream is not None
        assert self._writer is not None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        [metadata] = self._written
        statistics = statistics_of(metadata, self._schema)
        return DataFile(self._name, size, metadata.num_rows, statistics, self._partition)

    def abandon(self) -> None:
        let_go(self._writer, self._stream)


def repeating(rows: pa.Table) -> list[str]:
    """The columns whose values are to be written once and then by their numbers, as Parquet's paths
    have them: all nested ones, and flat ones whose first values often repeat. With offsets, keys
    and times Parquet would begin a dictionary in every group, and give it up when it is full:
    without, records of 200 bytes were written 1.45 times as fast, and not to larger files."""
    first = rows.slice(0, _SAMPLE_ROWS)
    found = []
    for name, column in zip(first.column_names, first.columns, strict=True):
        if pa.types.is_nested(column.type):
            found += leaves(name, column.type)
        elif len(column.unique()) * _REPEATED <= len(column):
            found.append(name)
    return found


def leaves(path: str, kind: pa.DataType) -> list[str]:
    """The paths of a column's values in Parquet."""
    if pa.types.is_struct(kind):
        return [each for field in kind for each in leaves(f"{path}.{field.name}", field.type)]
    if pa.types.is_map(kind):
        entries = f"{path}.key_value"
        return leaves(f"{entries}.key", kind.key_type) + leaves(f"{entries}.value", kind.item_type)
    if pa.types.is_nested(kind):
        return leaves(f"{path}.list.element", kind.value_type)
    return [path]


def statistics_of(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """What Delta's log keeps of a file, from the file's footer: how many rows, of flat columns how
    many are null, and of some types the least and the greatest value."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    indexed = schema.names[:_INDEXED_COLUMNS]
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        name = column.name
        # Field b of a struct a has the path of a column named a.b, and another name.
        if (
            name != column.path
            or name not in indexed
            or pa.types.is_nested(schema.field(name).type)
        ):
            continue
        told = [group.column(at).statistics for group in groups]
        if not all(each is not None and each.has_null_count for each in told):
            continue
        nulls[name] = sum(each.null_count for each in told)
        # A group of nothing but nulls has neither a least nor a greatest value.
        told = [each for each in told if each.has_min_max or each.num_values]
        if told and all(each.has_min_max for each in told):
            bounds = _bounds(schema.field(name).type, told)
            if bounds is not None:
                least[name], greatest[name] = bounds
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _bounds(kind: pa.DataType, told: Sequence[Any]) -> tuple[Any, Any] | None:
    """The least and the greatest value as the log holds them; None where it is to hold none."""
    least, greatest = min(each.min_raw for each in told), max(each.max_raw for each in told)
    if pa.types.is_integer(kind):
        return least, greatest
    try:
        if pa.types.is_string(kind):
            texts = least.decode(), greatest.decode()
            return texts if max(map(len, texts)) <= _TEXT_MAX else None
        if pa.types.is_timestamp(kind):
            # The log has milliseconds.
            return _time(least // 1000, kind), _time(-(-greatest // 1000), kind)
        if pa.types.is_date32(kind):
            first, last = (_EPOCH.date() + timedelta(days=day) for day in (least, greatest))
            return first.isoformat(), last.isoformat()
    except (OverflowError, UnicodeDecodeError):
        # Texts that Spark has cast of bytes may be no UTF-8.
        pass
    return None


def _time(ms: int, kind: pa.TimestampType) -> str:
    at = _EPOCH + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds") + ("Z" if kind.tz else "")
