"""The columns of rows that become records, as the arrays that kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from keyrange.errors import KeyrangeError, error
from keyrange.wire.produced_partitions import ANY_PARTITION

_Array = np.ndarray[Any, Any]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

_PER_MS: Final = {"us": 1_000, "ns": 1_000_000}
_NAMES: Final = ("key", "value", "headers", "timestamp", "partition")


@dataclass(frozen=True, slots=True, eq=False)
class BytesColumn:
    """Bytes of rows, not copied: those of row r begin at `data[at[r]]` and are `sizes[r]`, -1 where
    there are none."""

    at: Numbers
    sizes: Numbers
    data: _Array

    @classmethod
    def of(cls, values: pa.Array) -> BytesColumn:
        """All rows of a column of bytes or texts, slices too."""
        rows, kind = len(values), values.type
        if not (kinds.is_binary(kind) or kinds.is_string(kind)):
            # In most forms that is one already.
            text = kinds.is_large_string(kind) or kinds.is_string_view(kind)
            values = values.cast(pa.large_string() if text else pa.large_binary())
        wide = kinds.is_large_binary(values.type) or kinds.is_large_string(values.type)
        _, offsets, data = values.buffers()
        if not rows:
            return cls.absent(0)
        found = np.frombuffer(offsets, np.int64 if wide else np.int32)
        ends = found[values.offset : values.offset + rows + 1].astype(np.int64)
        sizes = np.diff(ends)
        if values.null_count:
            sizes[values.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(ends[:-1], sizes, np.frombuffer(data or b"", np.uint8))

    @property
    def arrays(self) -> tuple[Numbers, Numbers, _Array]:
        """As kernels take a column."""
        return self.at, self.sizes, self.data

    @classmethod
    def absent(cls, rows: int) -> BytesColumn:
        """A column of nulls."""
        return cls(np.zeros(rows, np.int64), np.full(rows, -1, np.int64), np.zeros(0, np.uint8))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of some rows. The headers of row r are the `header_counts[r]` ones from
    `header_starts[r]` on; a row that names no partition has ANY_PARTITION."""

    key: BytesColumn
    value: BytesColumn
    header_starts: Numbers
    header_counts: Numbers
    header_names: BytesColumn
    header_values: BytesColumn
    timestamps_ms: Numbers
    partitions: Numbers

    @classmethod
    def of(cls, batch: pa.RecordBatch, now_ms: int) -> Columns:
        """Raises INVALID_TOPIC_COLUMNS for a column that is missing, unknown, or of another
        type."""
        names = batch.schema.names
        if "value" not in names:
            raise _refused(f"there is no column value, but {', '.join(names)}")
        if unknown := [name for name in names if name not in _NAMES]:
            raise _refused(f"no part of a record: {', '.join(unknown)}")
        if len(set(names)) < len(names):
            raise _refused("two columns have one name")
        rows = batch.num_rows
        found = {name: batch.column(name) for name in names}
        key, value = (_bytes_of(name, found.get(name), rows) for name in ("key", "value"))
        headers = _headers(found.get("headers"), rows)
        times = _timestamps(found.get("timestamp"), rows, now_ms)
        return cls(key, value, *headers, times, _partitions(found.get("partition"), rows))


def _bytes_of(name: str, column: pa.Array | None, rows: int) -> BytesColumn:
    if column is None or kinds.is_null(column.type):
        return BytesColumn.absent(rows)
    if not _is_bytes(column.type):
        raise _wrong(name, column.type, "bytes or text")
    return BytesColumn.of(column)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary)
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view, kinds.is_binary_view)
    return any(test(kind) for test in (*tests, *texts))


def _headers(
    column: pa.Array | None, rows: int
) -> tuple[Numbers, Numbers, BytesColumn, BytesColumn]:
    none = np.zeros(rows, np.int64)
    if column is None or kinds.is_null(column.type):
        return none, none, BytesColumn.absent(0), BytesColumn.absent(0)
    kind = column.type
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind)
    element = kind.value_type if is_list else kind
    fields = (
        {each.name: each.type for each in element} if is_list and kinds.is_struct(element) else {}
    )
    if fields.keys() != {"key", "value"} or not all(map(_is_bytes, fields.values())):
        raise _wrong("headers", kind, "a list of structs of key (text) and value (bytes)")
    ends = column.offsets.to_numpy().astype(np.int64)
    counts = np.diff(ends)
    if column.null_count:
        counts[column.is_null().to_numpy(zero_copy_only=False)] = 0
    # Flattened, a null struct is two nulls.
    parts = dict(zip(fields, column.values.flatten(), strict=True))
    return ends[:-1], counts, BytesColumn.of(parts["key"]), BytesColumn.of(parts["value"])


def _timestamps(column: pa.Array | None, rows: int, now_ms: int) -> Numbers:
    """In ms since 1970, rounded down."""
    if column is None or kinds.is_null(column.type):
        return np.full(rows, now_ms, np.int64)
    if not kinds.is_timestamp(column.type):
        raise _wrong("timestamp", column.type, "timestamps")
    if column.type.unit == "s":
        column = column.cast(pa.timestamp("ms", column.type.tz))
    numbers: Numbers = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    numbers = numbers // _PER_MS.get(column.type.unit, 1)
    if column.null_count:
        numbers[column.is_null().to_numpy(zero_copy_only=False)] = now_ms
    return np.ascontiguousarray(numbers)


def _partitions(column: pa.Array | None, rows: int) -> Numbers:
    if column is None or kinds.is_null(column.type):
        return np.full(rows, ANY_PARTITION, np.int64)
    if not kinds.is_integer(column.type) or column.type == pa.uint64():
        raise _wrong("partition", column.type, "integers")
    wide = column.cast(pa.int64()).fill_null(ANY_PARTITION)
    return np.array(wide.to_numpy(zero_copy_only=False), np.int64)


def _wrong(name: str, kind: pa.DataType, wanted: str) -> KeyrangeError:
    return _refused(f"column {name} is {kind}, and has to be {wanted}")


def _refused(what: str) -> KeyrangeError:
    return error("INVALID_TOPIC_COLUMNS", what)
