"""Unsigned LEB128 varints, a whole array at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.uint64]]

_BITS = 7
_BYTES_MAX = 10
_MORE = np.uint8(0x80)


def write_varints(values: Integers) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    sizes = np.ones(len(values), np.int64)
    for size in range(1, _BYTES_MAX):
        larger = values >= np.uint64(1 << (_BITS * size))
        if not larger.any():
            break
        sizes += larger
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - sizes
    for at in range(int(sizes.max(initial=0))):
        some = np.flatnonzero(sizes > at)
        low = (values[some] >> np.uint64(_BITS * at)).astype(np.uint8) & np.uint8(0x7F)
        more = np.where(sizes[some] > at + 1, _MORE, np.uint8(0))
        out[starts[some] + at] = low | more
    return out.tobytes()


def read_varints(data: bytes) -> Integers:
    """The values that `write_varints` wrote.

    Raises ValueError where the last one is cut off, and for one that is too large or longer than it
    has to be: what can be read can be written in one way only.
    """
    source = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(source < _MORE) + 1
    if (int(ends[-1]) if len(ends) else 0) != len(source):
        raise ValueError("the last number is cut off")
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    sizes = ends - starts
    last = source[ends - 1]
    if (sizes > _BYTES_MAX).any() or (last[sizes == _BYTES_MAX] > 1).any():
        raise ValueError("a number has more than 64 bits")
    if ((last == 0) & (sizes > 1)).any():
        raise ValueError("a number is longer than it has to be")
    values = np.zeros(len(ends), np.uint64)
    for at in range(int(sizes.max(initial=0))):
        some = np.flatnonzero(sizes > at)
        low = (source[starts[some] + at] & np.uint8(0x7F)).astype(np.uint64)
        values[some] |= low << np.uint64(_BITS * at)
    return values


def zigzag(values: np.ndarray[Any, np.dtype[np.int64]]) -> Integers:
    """Small numbers of either sign as small numbers without one."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(values: Integers) -> np.ndarray[Any, np.dtype[np.int64]]:
    half = (values >> np.uint64(1)).view(np.int64)
    return half ^ -(values & np.uint64(1)).view(np.int64)
