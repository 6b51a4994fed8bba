"""JSON values to typed Arrow columns.

Meant is what Spark's `from_json` makes of the same value and schema. A field that is missing or
null is null, other fields are left aside, of two fields of one name the last one counts, and a
value that is empty or blank is a row of nulls. A timestamp without a zone is one of the zone of the
schema's type. Where keyrange is stricter than Spark, guides/table-jobs.md has a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.wire import json_cells, json_rows
from keyrange.wire import json_kernels as kernels
from keyrange.wire.time_zones import instants, zone_of

_INTEGERS = {pa.from_numpy_dtype(each): np.dtype(each) for each in ("i1", "i2", "i4", "i8")}
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class BadValues:
    """The rows that no schema fits, in order, and why: names and kinds, nothing of the values."""

    rows: np.ndarray[Any, np.dtype[np.int64]]
    errors: list[str]


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    type: pa.DataType
    fields: tuple[_Field, ...]


@dataclass(frozen=True, slots=True)
class _Cells:
    """What the pass over a batch of values found."""

    data: _Array
    kinds: _Array
    starts: _Array
    sizes: _Array
    status: _Array

    def of(self, field: _Field) -> tuple[_Array, _Array, _Array, _Array]:
        number = field.number
        return self.data, self.kinds[number], self.starts[number], self.sizes[number]


class JsonDecoder:
    """Reads batches of values by one schema. It may be used again, and pickled never."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._root = pa.struct(list(schema))
        self._fields, self._names, self._tree = _numbered(self._root)

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, BadValues]:
        """One row per value in order; rows of null values and of bad ones are null throughout."""
        cells = self._found(values)
        columns = [_column(cells, each) for each in self._fields]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        slow = np.flatnonzero(cells.status)
        if not len(slow):
            return batch, BadValues(slow, [])
        return self._replaced(batch, values, slow)

    def _found(self, values: pa.BinaryArray) -> _Cells:
        rows = len(values)
        _, ends, data = values.buffers()
        shape = (len(self._tree), rows)
        cells = _Cells(
            np.frombuffer(data or b"", np.uint8),
            np.zeros(shape, np.uint8),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(rows, np.uint8),
        )
        if not rows:
            return cells
        positions = np.frombuffer(ends, np.int32)[values.offset : values.offset + rows + 1]
        present = values.is_valid().to_numpy(zero_copy_only=False)
        if not _is_utf8(values):
            for row in np.flatnonzero(present):
                cells.status[row] = not _is_utf8(values.slice(row, 1))
        kernels.find_fields(
            cells.data,
            positions,
            present & (cells.status == kernels.FAST),
            self._names,
            self._tree,
            cells.kinds,
            cells.starts,
            cells.sizes,
            cells.status,
        )
        # What a row had before the pass gave it up says nothing.
        cells.kinds[:, cells.status != kernels.FAST] = kernels.MISSING
        return cells

    def _replaced(
        self, batch: pa.RecordBatch, values: pa.BinaryArray, slow: _Array
    ) -> tuple[pa.RecordBatch, BadValues]:
        """The batch with these rows read one by one."""
        rows: list[dict[str, Any] | None] = []
        bad: list[int] = []
        errors: list[str] = []
        for row in slow.tolist():
            try:
                rows.append(json_rows.read_row(values[row].as_py(), self._root))
            except json_rows.BadValue as failure:
                rows.append(None)
                bad.append(row)
                errors.append(str(failure))
        read = pa.array([row or {} for row in rows], self._root)
        places = np.arange(len(batch))
        places[slow] = len(batch) + np.arange(len(slow))
        columns = [
            pa.concat_arrays([column, read.field(number)]).take(pa.array(places))
            for number, column in enumerate(batch.columns)
        ]
        replaced = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return replaced, BadValues(np.array(bad, np.int64), errors)


def _numbered(root: pa.StructType) -> tuple[tuple[_Field, ...], _Array, _Array]:
    """The fields with their numbers, their names, and the rows of the kernel's tree."""
    names = bytearray()
    rows: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]

    def number(parent: int, struct: pa.StructType) -> tuple[_Field, ...]:
        first = len(rows)
        rows[parent] = (*rows[parent][:2], first, len(struct))
        for field in struct:
            name = field.name.encode()
            rows.append((len(names), len(name), 0, -1))
            names.extend(name)
        return tuple(
            _Field(
                first + at,
                field.type,
                number(first + at, field.type) if pa.types.is_struct(field.type) else (),
            )
            for at, field in enumerate(struct)
        )

    fields = number(0, root)
    return fields, np.frombuffer(bytes(names) or b"\0", np.uint8), np.array(rows, kernels.FIELD)


def _is_utf8(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _column(cells: _Cells, field: _Field) -> pa.Array:
    kind = field.type
    kinds = cells.kinds[field.number]
    if pa.types.is_struct(kind):
        return _structs(cells, field)
    if pa.types.is_boolean(kind):
        _only(cells, kinds <= kernels.NULL, (kinds == kernels.TRUE) | (kinds == kernels.FALSE))
        return pa.array(kinds == kernels.TRUE, mask=kinds <= kernels.NULL)
    if pa.types.is_string(kind):
        plain = (kinds >= kernels.STRING) & (kinds <= kernels.FALSE) & (kinds != kernels.FLOAT)
        _only(cells, kinds <= kernels.NULL, plain)
        return _texts(cells, field, plain)
    if pa.types.is_floating(kind):
        return _floats(cells, field)
    if kind in _INTEGERS:
        values = np.zeros(len(kinds), np.int64)
        limit = 1 << (8 * _INTEGERS[kind].itemsize - 1)
        json_cells.read_integers(*cells.of(field), -limit, limit - 1, values, cells.status)
        return pa.array(values.astype(_INTEGERS[kind]), mask=kinds <= kernels.NULL)
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return _times(cells, field)
    return _one_by_one(cells, field)


def _only(cells: _Cells, null: _Array, read: _Array) -> None:
    """Rows whose cell is neither are read slowly."""
    cells.status[~(null | read)] = kernels.SLOW


def _structs(cells: _Cells, field: _Field) -> pa.Array:
    kinds = cells.kinds[field.number]
    _only(cells, kinds <= kernels.NULL, kinds == kernels.OBJECT)
    children = [_column(cells, each) for each in field.fields]
    null = pa.array(kinds != kernels.OBJECT)
    if not children:
        return pa.array([None if each else {} for each in null.to_pylist()], field.type)
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=null)


def _texts(cells: _Cells, field: _Field, taken: _Array) -> pa.Array:
    sizes = cells.sizes[field.number]
    target = np.empty(int(sizes[taken].sum(dtype=np.int64)), np.uint8)
    ends = np.empty(len(taken) + 1, np.int32)
    json_cells.gather_texts(*cells.of(field), taken, ends, target)
    valid = pa.array(taken).buffers()[1]
    return pa.StringArray.from_buffers(len(taken), pa.py_buffer(ends), pa.py_buffer(target), valid)


def _times(cells: _Cells, field: _Field) -> pa.Array:
    kind, null = field.type, cells.kinds[field.number] <= kernels.NULL
    values, local = np.zeros(len(null), np.int64), np.zeros(len(null), np.bool_)
    dates = pa.types.is_date32(kind)
    zoned = not dates and kind.tz is not None
    json_cells.read_times(*cells.of(field), dates, zoned, values, local, cells.status)
    if zoned and local.any():
        values[local] = instants(values[local], zone_of(kind.tz))
    return pa.array(values.astype(np.int32) if dates else values, mask=null).view(kind)


def _floats(cells: _Cells, field: _Field) -> pa.Array:
    kinds = cells.kinds[field.number]
    numbers = (kinds == kernels.INTEGER) | (kinds == kernels.FLOAT)
    _only(cells, kinds <= kernels.NULL, numbers)
    try:
        return pc.cast(_texts(cells, field, numbers), field.type)
    except pa.ArrowInvalid:  # some number is too large or too small
        return _one_by_one(cells, field)


def _one_by_one(cells: _Cells, field: _Field) -> pa.Array:
    data, kinds, starts, sizes = cells.of(field)
    read: list[Any] = [None] * len(kinds)
    for row in np.flatnonzero((kinds > kernels.NULL) & (cells.status == kernels.FAST)).tolist():
        quotes = 1 if kinds[row] in (kernels.STRING, kernels.ESCAPED) else 0
        start, end = int(starts[row]) - quotes, int(starts[row] + sizes[row]) + quotes
        try:
            read[row] = json_rows.read_cell(data[start:end].tobytes().decode(), field.type)
        except json_rows.BadValue:
            cells.status[row] = kernels.SLOW
    return pa.array(read, field.type)
