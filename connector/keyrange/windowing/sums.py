"""Sums and extremes of many slots at once, exact where numbers are."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.windowing.operators import Numbers
from keyrange.windowing.slots import Slots

# Doubles hold all integers up to here.
_EXACT: Final = 1 << 53
_LOW: Final = (1 << 32) - 1
# So many numbers of 32 bits have a sum that a double holds.
_PIECE: Final = 1 << 20
_WIDE_PRECISION: Final = 76


def summed(values: pa.Array, slots: Slots, kind: pa.DataType) -> pa.Array:
    """The sum of the values of each slot that are not null; null where all are. `kind` is long,
    double or a decimal. Raises ValueError where a sum does not fit."""
    values, of, is_none = _valid(values, slots)
    if pa.types.is_decimal(kind):
        return _decimals(values, of, slots.count, kind)
    numbers = values.to_numpy()
    if pa.types.is_floating(kind):
        sums = np.bincount(of, numbers, slots.count)
    else:
        sums = _longs(numbers, of, slots.count)
    return pa.array(sums, kind, mask=is_none)


def _valid(values: pa.Array, slots: Slots) -> tuple[pa.Array, Numbers, NDArray[np.bool_]]:
    """The values that are not null, their slots, and which slots have none."""
    of = slots.of
    if values.null_count:
        valid = values.is_valid()
        values, of = values.filter(valid), of[valid.to_numpy(zero_copy_only=False)]
    return values, of, np.bincount(of, minlength=slots.count) == 0


def _longs(numbers: Numbers, of: Numbers, count: int) -> Numbers:
    if not len(numbers):
        return np.zeros(count, np.int64)
    if max(int(numbers.max()), -int(numbers.min())) * len(numbers) < _EXACT:
        return np.bincount(of, numbers, count).astype(np.int64)
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for start in range(0, len(numbers), _PIECE):
        piece, at = numbers[start : start + _PIECE], of[start : start + _PIECE]
        high += np.bincount(at, piece >> 32, count).astype(np.int64)
        low += np.bincount(at, piece & _LOW, count).astype(np.int64)
    high += low >> 32
    if int(high.max()) >= 1 << 31 or int(high.min()) < -(1 << 31):
        raise ValueError("a sum of integers is beyond 64 bits")
    return (high << 32) | (low & _LOW)


def _decimals(values: pa.Array, of: Numbers, count: int, kind: pa.DataType) -> pa.Array:
    wide = values.cast(pa.decimal256(_WIDE_PRECISION, kind.scale))
    table = pa.table({"slot": of, "value": wide})
    sums = table.group_by("slot", use_threads=False).aggregate([("value", "sum")])
    rows = np.full(count, -1, np.int64)
    rows[sums.column("slot").to_numpy()] = np.arange(sums.num_rows)
    found = sums.column("value_sum").combine_chunks().take(pa.array(rows, mask=rows < 0))
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        raise ValueError(f"a sum of decimals is beyond {kind}") from None


def extremes(values: pa.Array, slots: Slots, is_greatest: bool) -> pa.Array:
    """The greatest value of each slot, or the least, of numbers and times; null where all are. NaN
    is greater than all others."""
    values, of, is_none = _valid(values, slots)
    chosen: np.ufunc
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy()
        # Of a number and NaN `fmin` takes the number, and `maximum` NaN.
        begin, chosen = (-np.inf, np.maximum) if is_greatest else (np.nan, np.fmin)
    else:
        numbers = values.view(f"int{values.type.bit_width}").to_numpy()
        limits = np.iinfo(numbers.dtype)
        begin, chosen = (limits.min, np.maximum) if is_greatest else (limits.max, np.minimum)
    found = np.full(slots.count, begin, numbers.dtype)
    with np.errstate(invalid="ignore"):
        chosen.at(found, of, numbers)
    return pa.array(found, mask=is_none).view(values.type)


def quotients(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Sums by counts that are not zero, as a double, or a decimal with its last digit rounded half
    up as Spark does."""
    if pa.types.is_floating(kind):
        return pc.divide(sums, counts.cast(kind))
    wide = sums.cast(pa.decimal256(sums.type.precision, sums.type.scale))
    divided = pc.divide(wide, counts.cast(pa.decimal256(19, 0)))
    return pc.round(divided, kind.scale, "half_towards_infinity").cast(kind)
