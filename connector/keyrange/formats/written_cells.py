"""What a compiled pass writes payloads of: columns as flags and slots, as it reads them.

The other way round than `keyrange.formats.cells`, and with the same words: each node of a schema
has a region in two arrays, with a place for each value that may be there.

- `flags`, uint8: ABSENT where there is none, UNFIT where the schema cannot hold it.
- `slots`, int64: an integer, a boolean, days, a count of time; the bits of a float; the number of a
  symbol; of a decimal two halves, the lower one first. Of texts, bytes, lists and maps where each
  begins, and behind them where the last one ends: texts in the memory of their column, lists in the
  places of what is in them. A struct has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from keyrange.formats.written_kernels import ABSENT, THERE, UNFIT

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """What a column has in its places. `unfit`, bool: values that the schema cannot hold. `kept` is
    what has the memory at `address`."""

    numbers: _Array
    unfit: _Array | None = None
    address: int = 0
    kept: Any = None


ReadSlots = Callable[[pa.Array], Slots]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A node: which part of the column of its `parent` it is (the field of a struct; of a list 0,
    of a map 0 for its keys and 1 for its values), and how slots are made of it. `path` and `unfit`
    are for errors: where it is, and what it means that a value is unfit. With `skips_zero` a value
    that is zero, or empty, is as good as none."""

    parent: int
    part: int
    read: ReadSlots
    path: str
    unfit: str = ""
    skips_zero: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WrittenCells:
    """`nodes` as the kernel takes them. By node: `places`, how many it has, and `sizes`, the bytes
    of its texts."""

    nodes: _Array
    flags: _Array
    slots: _Array
    places: _Array
    sizes: _Array
    kept: Sequence[Any]


def cells_of(sources: Sequence[Source], column: pa.Array) -> WrittenCells:
    """Each source stands behind its parent; the first one is the column itself."""
    columns: list[pa.Array] = []
    read: list[Slots] = []
    flags: list[_Array] = []
    for each in sources:
        own = column if each.parent < 0 else _part(columns[each.parent], each.part)
        found = each.read(own)
        columns.append(own)
        read.append(found)
        flags.append(_flags(own, found, each.skips_zero))
    places = np.array([len(each) for each in flags], np.int64)
    counts = np.array([len(each.numbers) for each in read], np.int64)
    addresses = np.array([each.address for each in read], np.int64)
    nodes = np.stack([places.cumsum() - places, counts.cumsum() - counts, addresses], axis=1)
    sizes = [int(each.numbers[-1] - each.numbers[0]) if each.address else 0 for each in read]
    return WrittenCells(
        np.ascontiguousarray(nodes),
        np.concatenate(flags),
        np.concatenate([each.numbers for each in read]),
        places,
        np.array(sizes, np.int64),
        [columns, *(each.kept for each in read)],
    )


def _part(column: pa.Array, part: int) -> pa.Array:
    kind = column.type
    if kinds.is_struct(kind):
        return column.field(part)
    ends = _ends(column)
    inside = column.values if not kinds.is_map(kind) else (column.keys, column.items)[part]
    return inside.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _flags(column: pa.Array, found: Slots, skips_zero: bool) -> _Array:
    flags: _Array = np.full(len(column), THERE, np.uint8)
    if column.null_count:
        flags = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    if found.unfit is not None and found.unfit.any():
        flags[found.unfit & (flags == THERE)] = UNFIT
    if skips_zero and len(column):
        numbers = found.numbers
        zero = numbers == 0 if len(numbers) == len(column) else np.diff(numbers) == 0
        flags[zero & (flags == THERE)] = ABSENT
    return flags


def _ends(column: pa.Array) -> _Array:
    """Where each of a column's texts or lists begins, and where the last one ends, int64."""
    kind = column.type
    wide = kinds.is_large_binary(kind) or kinds.is_large_string(kind) or kinds.is_large_list(kind)
    if not len(column):
        return np.zeros(1, np.int64)
    found = np.frombuffer(column.buffers()[1], np.int64 if wide else np.int32)
    return found[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _values(column: pa.Array, kind: str) -> _Array:
    """The numbers of a column, not copied; anything where there is none."""
    if not len(column):
        return np.zeros(0, kind)
    found: _Array = np.frombuffer(column.buffers()[1], kind)
    return found[column.offset : column.offset + len(column)]


def read_nothing(column: pa.Array) -> Slots:  # noqa: ARG001
    """Of structs and nulls, which have no slots."""
    return Slots(np.zeros(0, np.int64))


def read_list(column: pa.Array) -> Slots:
    ends = _ends(column)
    return Slots(ends - ends[0])


def read_bytes(size: int = -1) -> ReadSlots:
    """Of texts and bytes; unfit where they have another `size`."""

    def read(column: pa.Array) -> Slots:
        if kinds.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())
        ends = _ends(column)
        unfit = None if size < 0 else np.diff(ends) != size
        data = column.buffers()[2] if len(column) else None
        return Slots(ends, unfit, 0 if data is None else data.address, column)

    return read


def read_integers(
    lowest: int = -(2**63), highest: int = 2**63 - 1, *, mask: int = -1, divisor: int = 1
) -> ReadSlots:
    """Also of days, and of microseconds in larger units, rounded down. Unfit beyond these; `mask`
    leaves the lower bits of what is written."""

    def read(column: pa.Array) -> Slots:
        bits = column.type.bit_width
        numbers = _values(column, f"i{bits // 8}").astype(np.int64)
        unfit = None
        if lowest > -(1 << (bits - 1)) or highest < (1 << (bits - 1)) - 1:
            unfit = (numbers < lowest) | (numbers > highest)
        numbers = numbers if divisor == 1 else numbers // divisor
        return Slots(numbers if mask == -1 else numbers & mask, unfit)

    return read


def read_booleans(column: pa.Array) -> Slots:
    return Slots(_values(column.cast(pa.int8()), "i1").astype(np.int64))


def read_floats(kind: pa.DataType) -> ReadSlots:
    """The bits of numbers of this type, in the lower half where they are 32."""

    def read(column: pa.Array) -> Slots:
        bits = _values(column.cast(kind), f"i{kind.bit_width // 8}")
        return Slots(bits.astype(np.int64))

    return read


def read_symbols(names: Sequence[str], numbers: Sequence[int]) -> ReadSlots:
    """The number of each name; unfit are others."""
    texts, by_place = pa.array(names, pa.string()), np.array([*numbers, 0], np.int64)

    def read(column: pa.Array) -> Slots:
        places = pc.index_in(column.cast(pa.string()), texts).fill_null(-1)
        at = places.to_numpy(zero_copy_only=False)
        return Slots(by_place[at], at < 0)

    return read


def read_decimals(precision: int, scale: int) -> ReadSlots:
    """With a scale that is not smaller than the column's; unfit are numbers of more digits."""

    def read(column: pa.Array) -> Slots:
        more = scale - column.type.scale
        unfit = None
        if column.type.precision + more > precision:
            unfit = _beyond(_values_of_decimals(column), 10 ** max(precision - more, 0))
        if more:
            if unfit is not None:
                column = pc.if_else(pa.array(unfit), pa.scalar(None, column.type), column)
            column = column.cast(pa.decimal128(38, scale))
        return Slots(_values_of_decimals(column).ravel(), unfit)

    return read


def _values_of_decimals(column: pa.Array) -> _Array:
    """Two halves for each, the lower one first."""
    if not len(column):
        return np.zeros((0, 2), np.int64)
    found: _Array = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return found[column.offset : column.offset + len(column)]


def _beyond(halves: _Array, limit: int) -> _Array:
    """Whether a number is not between the limit and its negative, neither of which belongs."""
    low, high = np.ascontiguousarray(halves[:, 0]).view(np.uint64), halves[:, 1]

    def not_below(number: int) -> _Array:
        of_high, of_low = number >> 64, np.uint64(number & (2**64 - 1))
        found: _Array = (high > of_high) | ((high == of_high) & (low >= of_low))
        return found

    return not_below(limit) | ~not_below(1 - limit)
