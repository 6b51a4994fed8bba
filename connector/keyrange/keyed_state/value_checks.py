"""Whether a row of Python values fits its columns, of a state or of a job's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

Check = Callable[[Any], None]

# What a row of a key may take: a file's column of a block has 2 GiB.
VALUE_BYTES_MAX: Final = 16 << 20
_INT_BITS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def check_of(kinds: Sequence[pa.DataType]) -> Check:
    """For a row of columns of these types: raises one of `UNFIT` where a value is none that its
    column takes."""
    accepts = [_accepts(kind) for kind in kinds]
    columns = list(zip(accepts, kinds, strict=True))

    def check(row: Sequence[Any]) -> None:
        for (is_plain, kind), value in zip(columns, row, strict=True):
            # What is not plain Arrow decides.
            if not (value is None or is_plain(value)):
                pa.array([value], kind)

    if len(kinds) == 1:
        [first] = accepts
        return lambda row: None if first(row[0]) else check(row)
    if len(kinds) == 2:
        # Most rows are short, and this is done for each record.
        first, second = accepts
        return lambda row: None if first(row[0]) and second(row[1]) else check(row)
    return check


def _accepts(kind: pa.DataType) -> Callable[[Any], bool]:
    if kind in _INT_BITS:
        most = 1 << _INT_BITS[kind]
        return lambda value: type(value) is int and -most <= value < most
    if pa.types.is_float64(kind):
        return lambda value: type(value) is float
    if pa.types.is_boolean(kind):
        return lambda value: type(value) is bool
    if pa.types.is_string(kind):
        return lambda value: type(value) is str and value.isascii() and _is_small(value)
    if pa.types.is_binary(kind):
        return lambda value: type(value) is bytes and _is_small(value)
    return lambda _: False


def _is_small(value: str | bytes) -> bool:
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"a value of {len(value):,} bytes is larger than a state takes")
    return True
