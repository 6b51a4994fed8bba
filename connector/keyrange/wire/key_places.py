"""Where keys of a column lie: their hashes, and the partitions that Kafka's producers choose."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyrange.wire import record_kernels

Numbers = NDArray[np.int64]

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)


def hashes_of_keys(keys: pa.Array) -> Numbers:
    """The hash of each key of a binary column without nulls, as `keyrange.model.key_ranges.hash_of`
    has it."""
    ends, data = _bytes_of(keys)
    records = np.zeros(len(keys), record_kernels.RECORD)
    records["key_at"], records["key_bytes"] = ends[:-1], np.diff(ends)
    hashes = np.empty(len(keys), np.int64)
    record_kernels.hash_keys(data, records, len(keys), False, hashes)
    return hashes


def partitions_of_keys(keys: pa.Array, partitions: int) -> Numbers:
    """The partition that the default partitioner of Java's producer sends each key to: murmur2 of
    the key, its sign bit cleared, modulo the partitions. A binary column without nulls."""
    ends, data = _bytes_of(keys)
    lengths = np.diff(ends)
    hashes = np.empty(len(keys), np.uint32)
    # Keys of one length are hashed at once, four bytes of each at a time.
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2(data, ends[:-1][rows], length)
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def _murmur2(data: NDArray[np.uint8], at: Numbers, length: int) -> NDArray[np.uint32]:
    """As Kafka's `Utils.murmur2` does it, of keys that begin `at` and have one length."""
    found = np.full(len(at), _SEED ^ np.uint32(length & 0xFFFFFFFF), np.uint32)
    whole = length - length % 4
    for word in range(0, whole, 4):
        mixed = _little(data, at + word, 4) * _FACTOR
        mixed ^= mixed >> np.uint32(24)
        found = (found * _FACTOR) ^ (mixed * _FACTOR)
    if length > whole:
        found = (found ^ _little(data, at + whole, length - whole)) * _FACTOR
    found ^= found >> np.uint32(13)
    found *= _FACTOR
    return found ^ (found >> np.uint32(15))


def _little(data: NDArray[np.uint8], at: Numbers, count: int) -> NDArray[np.uint32]:
    """`count` bytes from each place on as one number, the lowest first."""
    found = np.zeros(len(at), np.uint32)
    for byte in range(count):
        found |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found


def _bytes_of(keys: pa.Array) -> tuple[Numbers, NDArray[np.uint8]]:
    """Where each key begins, and behind them where the last one ends, in the bytes of all."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    if data is None or not len(keys):
        return np.zeros(len(keys) + 1, np.int64), np.zeros(0, np.uint8)
    # A copy, since kernels take no arrays that are read-only, as those of messages are.
    found = np.array(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]])
    return ends.astype(np.int64) - ends[0], found
