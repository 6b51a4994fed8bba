"""Unsigned LEB128 varints, a whole array at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.uint64]]

_BYTES_MAX = 10
_AT: Final = np.arange(_BYTES_MAX)
_SHIFTS: Final = (7 * _AT).astype(np.uint64)
# From which value on one more byte is needed.
_FROM: Final = np.array([1 << (7 * at) for at in range(1, _BYTES_MAX)], np.uint64)
_LOW = np.uint64(0x7F)
_MORE = np.uint8(0x80)


def write_varints(values: Integers) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    lasts = np.searchsorted(_FROM, values, side="right")[:, np.newaxis]
    parts = ((values[:, np.newaxis] >> _SHIFTS) & _LOW).astype(np.uint8)
    parts[lasts > _AT] |= _MORE
    return parts[lasts >= _AT].tobytes()


def read_varints(data: bytes) -> Integers:
    """The values that `write_varints` wrote.

    Raises ValueError where the last one is cut off, and for one that is too large or longer than it
    has to be: what can be read can be written in one way only.
    """
    source = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(source < _MORE) + 1
    if (int(ends[-1]) if len(ends) else 0) != len(source):
        raise ValueError("the last number is cut off")
    if not len(ends):
        return np.empty(0, np.uint64)
    starts = np.concatenate(([0], ends[:-1]))
    sizes = ends - starts
    last = source[ends - 1]
    if (sizes > _BYTES_MAX).any() or (last[sizes == _BYTES_MAX] > 1).any():
        raise ValueError("a number has more than 64 bits")
    if ((last == 0) & (sizes > 1)).any():
        raise ValueError("a number is longer than it has to be")
    shifts = _SHIFTS[np.arange(len(source)) - np.repeat(starts, sizes)]
    return np.bitwise_or.reduceat((source.astype(np.uint64) & _LOW) << shifts, starts)


def zigzag(values: np.ndarray[Any, np.dtype[np.int64]]) -> Integers:
    """Small numbers of either sign as small numbers without one."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(values: Integers) -> np.ndarray[Any, np.dtype[np.int64]]:
    half = (values >> np.uint64(1)).view(np.int64)
    return half ^ -(values & np.uint64(1)).view(np.int64)
