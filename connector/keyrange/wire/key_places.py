"""Where keys of a column lie: their hashes, and the partitions that Kafka's producers choose."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyrange.wire import produced_partitions, record_kernels

Numbers = NDArray[np.int64]


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
    rows = len(keys)
    given = np.full(rows, produced_partitions.ANY_PARTITION)
    zeros, found = np.zeros(rows, np.int64), np.empty(rows, np.int64)
    produced_partitions.choose_partitions(
        *(given, ends[:-1], np.diff(ends), data, zeros, partitions, 0),
        *(np.zeros(2, np.int64), found, np.zeros(rows, np.int8)),
    )
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
