"""JSON values to typed Arrow columns.

Meant is what Spark's `from_json` makes of the same value and schema. A field that is missing or
null is null, other fields are left aside, of two fields of one name the last one counts, and a
value that is empty or blank is a row of nulls. A timestamp without a zone is one of the zone of the
schema's type. Where keyrange is stricter than Spark, guides/values.md has a table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.cell_kernels import decode_base64
from keyrange.formats.json import cells as passes
from keyrange.formats.json import kernels
from keyrange.formats.json import rows as slow_rows
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.formats.schema_document import in_utc
from keyrange.formats.slow_rows import BadValue, with_slow_rows
from keyrange.formats.time_zones import instants, zone_of

# The type of a field whose JSON is wanted as it is written.
RAW = pa.large_string()

_INTEGERS = {pa.from_numpy_dtype(each): np.dtype(each) for each in ("i1", "i2", "i4", "i8")}
_Array = np.ndarray[Any, Any]


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
    others: _Array

    def of(self, field: _Field) -> tuple[_Array, _Array, _Array, _Array]:
        number = field.number
        return self.data, self.kinds[number], self.starts[number], self.sizes[number]


class JsonDecoder:
    """Reads values into structs of one type. A blank value is a null, as with Spark.

    A time that names no zone is one of the zone of the type's timestamps; `type` has UTC there.
    """

    def __init__(self, kind: pa.StructType, rescues: bool = False) -> None:
        self._kind = kind
        self.type = in_utc(kind)
        self._rescues = rescues
        # What is in lists and maps the passes do not look at.
        self._rescues_all = rescues and _has_structs_within(kind)
        self._objects = _Objects(kind)

    def read(self, payloads: Payloads) -> ReadValues:
        """Rows of null values, of blank and of bad ones are null throughout."""
        read = self._read(payloads.contiguous())
        if self.type != self._kind:
            return replace(read, column=read.column.cast(self.type))
        return read

    def _read(self, payloads: Payloads) -> ReadValues:
        status = np.zeros(len(payloads), np.uint8)
        status[payloads.not_utf8()] = kernels.SLOW
        cells = self._objects.found(payloads, status)
        column = self._objects.column(cells)
        rescued = None
        if self._rescues:
            rescued = payloads.present if self._rescues_all else cells.others
        slow = cells.status != kernels.FAST
        if rescued is not None:
            # What does not fit is rescued too.
            slow |= rescued
        return with_slow_rows(column, payloads, slow, self._read_row, rescued)

    def _read_row(self, value: bytes) -> tuple[Any, str | None]:
        if self._rescues:
            return slow_rows.rescue_row(value, self._kind)
        return slow_rows.read_row(value, self._kind), None


class _Objects:
    """Objects as structs of a type."""

    def __init__(self, kind: pa.StructType) -> None:
        self._kind = kind
        self._fields, self._names, self._tree = _numbered(kind)

    def found(self, payloads: Payloads, status: _Array) -> _Cells:
        """The cells of the payloads that are FAST."""
        shape = (len(self._tree), len(payloads))
        cells = _Cells(
            payloads.data,
            np.zeros(shape, np.uint8),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            status,
            np.zeros(len(payloads), np.bool_),
        )
        kernels.find_fields(
            cells.data,
            payloads.starts,
            payloads.ends,
            payloads.present & (status == kernels.FAST),
            self._names,
            self._tree,
            cells.kinds,
            cells.starts,
            cells.sizes,
            status,
            cells.others,
            np.empty(kernels.DEPTH_MAX, np.int32),
        )
        # What a row had before the pass gave it up says nothing.
        cells.kinds[:, status != kernels.FAST] = kernels.MISSING
        return cells

    def column(self, cells: _Cells) -> pa.StructArray:
        columns = [_column(cells, each) for each in self._fields]
        return _struct(columns, self._kind, cells.kinds[0] == kernels.OBJECT)


@cache
def _objects_of(kind: pa.StructType) -> _Objects:
    return _Objects(kind)


def _has_structs_within(kind: pa.DataType, within: bool = False) -> bool:
    """Whether lists or maps of a type hold structs."""
    if pa.types.is_list(kind):
        return _has_structs_within(kind.value_type, within=True)
    if pa.types.is_map(kind):
        return _has_structs_within(kind.item_type, within=True)
    if not pa.types.is_struct(kind):
        return False
    return within or any(_has_structs_within(field.type) for field in kind)


def _struct(columns: list[pa.Array], kind: pa.StructType, there: _Array) -> pa.StructArray:
    if not columns:
        return pa.array([{} if each else None for each in there.tolist()], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(~there))


def _numbered(root: pa.StructType) -> tuple[tuple[_Field, ...], _Array, _Array]:
    """The fields with their numbers, their names, and the rows of the kernel's tree."""
    names = bytearray()
    rows: list[tuple[int, int, int, int, int]] = [(0, 0, 0, 0, 0)]

    def number(parent: int, struct: pa.StructType) -> tuple[_Field, ...]:
        first = len(rows)
        rows[parent] = (*rows[parent][:2], first, len(struct), rows[parent][4])
        for field in struct:
            name = field.name.encode()
            is_plain = json.dumps(field.name, ensure_ascii=False) == f'"{field.name}"'
            rows.append((len(names), len(name), 0, -1, is_plain))
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


def _column(cells: _Cells, field: _Field) -> pa.Array:
    kind = field.type
    kinds = cells.kinds[field.number]
    if pa.types.is_struct(kind):
        return _structs(cells, field)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _containers(cells, field)
    if kind == RAW:
        return _raw(cells, field)
    if pa.types.is_boolean(kind):
        _only(cells, kinds <= kernels.NULL, (kinds == kernels.TRUE) | (kinds == kernels.FALSE))
        return pa.array(kinds == kernels.TRUE, mask=kinds <= kernels.NULL)
    if pa.types.is_string(kind):
        plain = (kinds >= kernels.STRING) & (kinds <= kernels.FALSE) & (kinds != kernels.FLOAT)
        _only(cells, kinds <= kernels.NULL, plain)
        return _texts(cells, field, plain)
    if pa.types.is_floating(kind):
        return _floats(cells, field)
    if pa.types.is_binary(kind):
        return _binaries(cells, field)
    if kind in _INTEGERS:
        values = np.zeros(len(kinds), np.int64)
        limit = 1 << (8 * _INTEGERS[kind].itemsize - 1)
        passes.read_integers(*cells.of(field), -limit, limit - 1, values, cells.status)
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
    return _struct(children, field.type, kinds == kernels.OBJECT)


def _containers(cells: _Cells, field: _Field) -> pa.Array:
    """Lists and maps: their items are cells again."""
    data, kinds, starts, sizes = cells.of(field)
    is_map = pa.types.is_map(field.type)
    wanted = kernels.OBJECT if is_map else kernels.ARRAY
    _only(cells, kinds <= kernels.NULL, kinds == wanted)
    there = (kinds == wanted) & (cells.status == kernels.FAST)
    # An item and what is behind it are two bytes.
    most = int((sizes[there] // 2).sum(dtype=np.int64))
    shape = (1 + is_map, most)
    ends = np.empty(len(kinds) + 1, np.int32)
    found = np.empty(shape, np.uint8), np.empty(shape, np.int32), np.empty(shape, np.int32)
    kernels.find_items(data, np.where(there, kinds, 0).astype(np.uint8), starts, sizes, wanted,
                       ends, *found)  # fmt: skip
    count = int(ends[-1])
    of_kinds, of_starts, of_sizes = (np.ascontiguousarray(each[:, :count]) for each in found)
    flags = np.zeros(count, np.uint8), np.zeros(count, np.bool_)
    items = _Cells(data, of_kinds, of_starts, of_sizes, *flags)
    children = _items(items, field.type.item_type if is_map else field.type.value_type)
    if is_map:
        names = _texts(items, _Field(1, pa.string(), ()), np.ones(count, np.bool_))
        fields = [field.type.key_field, field.type.item_field]
        children = pa.StructArray.from_arrays([names, children], fields=fields)
    slow = np.repeat(np.arange(len(kinds)), np.diff(ends))[items.status != kernels.FAST]
    cells.status[slow] = kernels.SLOW
    valid = pa.array(there).buffers()[1]
    return pa.Array.from_buffers(
        field.type, len(kinds), [valid, pa.py_buffer(ends)], children=[children]
    )


def _items(cells: _Cells, kind: pa.DataType) -> pa.Array:
    """The first cells as a type."""
    if not pa.types.is_struct(kind):
        return _column(cells, _Field(0, kind, ()))
    kinds, starts, sizes = cells.kinds[0], cells.starts[0], cells.sizes[0]
    _only(cells, kinds == kernels.NULL, kinds == kernels.OBJECT)
    objects = _objects_of(kind)
    payloads = Payloads(cells.data, starts, starts + sizes, kinds == kernels.OBJECT)
    return objects.column(objects.found(payloads, cells.status))


def _raw(cells: _Cells, field: _Field) -> pa.Array:
    data, kinds, starts, sizes = cells.of(field)
    quotes = (kinds == kernels.STRING) | (kinds == kernels.ESCAPED)
    begins = starts - quotes
    ends = begins + sizes + 2 * quotes
    found = Payloads(data, begins.astype(np.int32), ends.astype(np.int32), kinds > kernels.NULL)
    return found.array(pa.string()).cast(RAW)


def _texts(cells: _Cells, field: _Field, taken: _Array) -> pa.Array:
    sizes = cells.sizes[field.number]
    # Arrow keeps the memory of the last batch; numpy asks the system for each array.
    target = pa.allocate_buffer(int(sizes[taken].sum(dtype=np.int64)))
    ends = np.empty(len(taken) + 1, np.int32)
    passes.gather_texts(*cells.of(field), taken, ends, np.frombuffer(target, np.uint8))
    valid = pa.array(taken).buffers()[1]
    return pa.StringArray.from_buffers(len(taken), pa.py_buffer(ends), target, valid)


def _binaries(cells: _Cells, field: _Field) -> pa.Array:
    data, kinds, starts, sizes = cells.of(field)
    taken = kinds == kernels.STRING
    _only(cells, kinds <= kernels.NULL, taken)
    target = np.empty(int((sizes[taken] // 4 * 3).sum(dtype=np.int64)), np.uint8)
    ends, bad = np.empty(len(kinds) + 1, np.int32), np.zeros(len(kinds), np.bool_)
    decode_base64(data, starts, sizes, taken, ends, target, bad)
    cells.status[bad] = kernels.SLOW
    buffers = [pa.array(taken).buffers()[1], pa.py_buffer(ends), pa.py_buffer(target)]
    return pa.BinaryArray.from_buffers(field.type, len(kinds), buffers)


def _times(cells: _Cells, field: _Field) -> pa.Array:
    kind, null = field.type, cells.kinds[field.number] <= kernels.NULL
    values, local = np.zeros(len(null), np.int64), np.zeros(len(null), np.bool_)
    dates = pa.types.is_date32(kind)
    zoned = not dates and kind.tz is not None
    passes.read_times(*cells.of(field), dates, zoned, values, local, cells.status)
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
            read[row] = slow_rows.read_cell(data[start:end].tobytes().decode(), field.type)
        except BadValue:
            cells.status[row] = kernels.SLOW
    return pa.array(read, field.type)
