"""Parquet files below a Delta table whose log does not name them yet, and what it is to say."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from keyrange.errors import error
from keyrange.storage.directory import FAILURES, Directory

# Rows are kept until they make a group: readers take a group at a time.
_GROUP_BYTES: Final = 32 * 1024 * 1024
_GROUP_ROWS: Final = 1_000_000
# As many columns, and as long texts, as Delta keeps statistics of by default.
_INDEXED_COLUMNS: Final = 32
_TEXT_MAX: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file by its name below the table. `statistics`: JSON, as Delta's log has it."""

    name: str
    size_bytes: int
    rows: int
    statistics: str


class DataFileWriter:
    """Writes rows to one file below a table. A file that was begun and is not in what `finish`
    answers belongs to nobody: Delta's vacuum removes it."""

    def __init__(self, table: str, schema: pa.Schema) -> None:
        self._table = table
        self._schema = schema
        self._name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._written: list[pq.FileMetaData] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Raises SINK_UNWRITABLE."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._waiting_rows += rows.num_rows
        if self._waiting_bytes >= _GROUP_BYTES or self._waiting_rows >= _GROUP_ROWS:
            self._guarded(self._write)

    def finish(self) -> list[DataFile]:
        """The file, closed; none where there was no row. Raises SINK_UNWRITABLE."""
        if self._writer is None and not self._waiting:
            return []
        return [self._guarded(self._close)]

    def abandon(self) -> None:
        """Let go of a file that is not finished."""
        with suppress(*FAILURES):
            if self._writer is not None:
                self._writer.close()
            if self._stream is not None:
                self._stream.close()

    def _write(self) -> None:
        if self._writer is None:
            self._stream = Directory(self._table).create(self._name)
            self._writer = pq.ParquetWriter(
                self._stream, self._schema, metadata_collector=self._written
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0

    def _close(self) -> DataFile:
        if self._waiting:
            self._write()
        assert self._writer is not None
        assert self._stream is not None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        [metadata] = self._written
        statistics = statistics_of(metadata, self._schema)
        return DataFile(self._name, size, metadata.num_rows, statistics)

    def _guarded(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except FAILURES as failure:
            text = f"a file of the table cannot be written: {failure}"
            raise error("SINK_UNWRITABLE", text, table=self._table) from None


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
    if pa.types.is_timestamp(kind):
        # The log has milliseconds.
        low = min(each.min_raw for each in told) // 1000
        high = -(-max(each.max_raw for each in told) // 1000)
        zone = "Z" if kind.tz else ""
        try:
            return _time(low) + zone, _time(high) + zone
        except OverflowError:
            return None
    if pa.types.is_integer(kind):
        return min(each.min_raw for each in told), max(each.max_raw for each in told)
    if pa.types.is_date32(kind):
        days = [min(each.min_raw for each in told), max(each.max_raw for each in told)]
        try:
            first, last = (date(1970, 1, 1) + timedelta(days=day) for day in days)
        except OverflowError:
            return None
        return first.isoformat(), last.isoformat()
    if pa.types.is_string(kind):
        low, high = min(each.min_raw for each in told), max(each.max_raw for each in told)
        first_text, last_text = low.decode(), high.decode()
        if max(len(first_text), len(last_text)) <= _TEXT_MAX:
            return first_text, last_text
    return None


def _time(ms: int) -> str:
    return (
        (_EPOCH + timedelta(milliseconds=ms))
        .replace(tzinfo=None)
        .isoformat(timespec="milliseconds")
    )
