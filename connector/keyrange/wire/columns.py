"""Indexed records to Arrow: the columns of Spark's Kafka sources, exactly as Spark's schema asks.

All columns are nullable: key binary, value binary, topic string, partition int32, offset int64,
timestamp timestamp[us, UTC], timestampType int32, headers list<struct<key: string, value: binary>>
(null, not empty, where a record has none), keyHash int64. A batch has those that are asked for, in
the order asked for, and no other is made. Spark compares types, order and nullability strictly
(pyspark/sql/worker/plan_data_source_read.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.wire import record_kernels

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Records = np.ndarray[Any, Any]

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]), nullable=True)
)

_JOINED_BYTES = 1024 * 1024

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "keyHash": pa.int64(),
}
# Columns of numbers, and the field of the index that each is taken from.
_NUMBERS = {"offset": "offset", "timestamp": "timestamp_us", "timestampType": "timestamp_type"}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of every batch of these columns that is handed to Spark."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


@dataclass(slots=True)
class _Constant:
    """A column with one value in all rows, built once for the most rows seen and sliced."""

    value: Any
    type: pa.DataType
    longest: pa.Array = field(default_factory=lambda: pa.nulls(0))

    def of(self, rows: int) -> pa.Array:
        if len(self.longest) < rows:
            self.longest = self._repeated(rows)
        return self.longest.slice(0, rows)

    def _repeated(self, rows: int) -> pa.Array:
        """As pa.repeat makes it, whose scalar would import pandas, and with it a third of a second
        and 60 MB in every process that reads."""
        if isinstance(self.value, int):
            numbers = np.full(rows, self.value, self.type.to_pandas_dtype())
            return pa.Array.from_buffers(self.type, rows, [None, pa.py_buffer(numbers)])
        text = self.value.encode()
        ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * rows)]
        return pa.Array.from_buffers(self.type, rows, buffers)


_CONSTANTS = ("topic", "partition")


def _constants(*values: str | int) -> dict[str, _Constant]:
    return {
        name: _Constant(value, _TYPES[name]) for name, value in zip(_CONSTANTS, values, strict=True)
    }


def _allocate(count: int, dtype: Any) -> tuple[pa.Buffer, np.ndarray[Any, Any]]:
    """A buffer of Arrow's own pool, which keeps freed memory: no page faults batch after batch."""
    buffer = pa.allocate_buffer(max(count, 1) * np.dtype(dtype).itemsize)
    return buffer, np.frombuffer(buffer, dtype, count if count else 0)


def _variable(
    kind: pa.DataType, rows: int, data_bytes: int, gather: Callable[..., int]
) -> pa.Array:
    """Texts or bytes. `gather` fills where each ends, all of them, and the bits of those that are
    there, and returns how many are not."""
    ends_buffer, ends = _allocate(rows + 1, np.int32)
    data_buffer, data = _allocate(data_bytes, np.uint8)
    valid_buffer, valid = _allocate((rows + 7) // 8, np.uint8)
    valid.fill(0xFF)
    nulls = gather(ends, data, valid)
    buffers = [valid_buffer if nulls else None, ends_buffer, data_buffer]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def without_constants(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that differ from record to record; one at least, which tells how many there are.

    A topic's name in every row would be a good part of small records.
    """
    return tuple(name for name in columns if name not in _CONSTANTS) or ("offset",)


class ConstantColumns:
    """Makes whole batches of those that lack the columns with one value."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self.schema = arrow_schema(columns)
        self._constants = _constants(topic, partition)

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        made = [
            self._constants[name].of(rows) if name in self._constants else batch.column(name)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def joined(batches: Iterable[pa.RecordBatch], rows_min: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least `rows_min` or `_JOINED_BYTES`, the last one excepted:
    Spark takes many small batches several times slower."""
    small: list[pa.RecordBatch] = []
    rows, size = 0, 0
    for batch in batches:
        small.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= rows_min or size >= _JOINED_BYTES:
            yield as_one(small)
            small, rows, size = [], 0, 0
    if small:
        yield as_one(small)


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of several, at least one; a copy where there are several."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def copied(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """As `as_one`, and always a copy: a slice holds all of the batch that it was cut from."""
    return as_one([*batches, batches[0].slice(0, 0)])


def _utf8(strings: pa.Array) -> pa.Array:
    """Kafka checks no text: what is not UTF-8 reads as Java's consumer reads it, with U+FFFD."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raw = strings.view(pa.binary()).to_pylist()
        return pa.array([each.decode("utf-8", "replace") for each in raw], pa.string())
    return strings


class ColumnWriter:
    """Makes Arrow batches of `columns` of one topic-partition's records."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self.schema = arrow_schema(columns)
        self._constants = _constants(topic, partition)
        self._numbers = [name for name in _NUMBERS if name in columns]

    def write(
        self, region: Bytes, records: Records, cursor: Any, hashes: Any = None
    ) -> pa.RecordBatch | None:
        """One Arrow batch of the records that an index pass left in `records` and counted in
        `cursor`; `hashes` are their places, where column keyHash is wanted.

        Copies what it takes, so `region` and `records` may be reused. Returns None where a record's
        headers are broken; `cursor["failed_offset"]` is then the record's.
        """
        rows = int(cursor["rows"])
        made = self._write_numbers(records, rows)
        for name in self.schema.names:
            if name in ("key", "value"):
                gather = partial(record_kernels.gather_bytes, region, records, rows, name == "key")
                made[name] = _variable(pa.binary(), rows, int(cursor[f"{name}_bytes"]), gather)
            elif name in self._constants:
                made[name] = self._constants[name].of(rows)
            elif name == "headers":
                headers = self._headers(region, records, rows, cursor)
                if headers is None:
                    return None
                made[name] = headers
            elif name == "keyHash":
                buffer, key_hashes = _allocate(rows, np.int64)
                key_hashes[:] = hashes[:rows]
                made[name] = pa.Array.from_buffers(pa.int64(), rows, [None, buffer], 0)
        return pa.RecordBatch.from_arrays(
            [made[name] for name in self.schema.names], schema=self.schema
        )

    def _write_numbers(self, records: Records, rows: int) -> dict[str, pa.Array]:
        """Offset, timestamp and timestamp type: in one pass where all are wanted."""
        buffers, columns = {}, {}
        for name in self._numbers:
            field_type = records.dtype[_NUMBERS[name]]
            buffers[name], columns[name] = _allocate(rows, field_type)
        if len(columns) == len(_NUMBERS):
            record_kernels.gather_numbers(records, rows, *columns.values())
        else:
            for name, column in columns.items():
                column[:] = records[_NUMBERS[name]][:rows]
        return {
            name: pa.Array.from_buffers(_TYPES[name], rows, [None, buffer], 0)
            for name, buffer in buffers.items()
        }

    @staticmethod
    def _headers(region: Bytes, records: Records, rows: int, cursor: Any) -> pa.Array | None:
        total = int(cursor["header_count"])
        locations = np.empty((total, 4), np.int64)
        key_total, value_total, broken = record_kernels.index_headers(
            region, records, rows, locations
        )
        if broken >= 0:
            cursor["failed_offset"] = records[broken]["offset"]
            return None
        gather = partial(record_kernels.gather_header_bytes, region, locations, total)
        columns = [
            _utf8(_variable(pa.string(), total, key_total, partial(gather, 0))),
            _variable(pa.binary(), total, value_total, partial(gather, 2)),
        ]
        structs = pa.StructArray.from_arrays(columns, fields=list(HEADERS.value_type))
        counts = records["header_count"][:rows]
        list_ends = np.zeros(rows + 1, np.int32)
        np.cumsum(counts, out=list_ends[1:])
        present = np.packbits(counts > 0, bitorder="little")
        nulls = int(rows - np.count_nonzero(counts))
        return pa.Array.from_buffers(
            HEADERS,
            rows,
            [pa.py_buffer(present.tobytes()) if nulls else None, pa.py_buffer(list_ends)],
            nulls,
            children=[structs],
        )
