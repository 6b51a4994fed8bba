"""The compiled passes that choose the partition of each row of an output topic, as producers of
Kafka do: the one that it names, that of its key's hash, or one after the other.

The rules of `keyrange.wire.record_kernels` hold here too.
"""

from __future__ import annotations

import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called, inlined
from keyrange.wire.kernel_helpers import host_i32
from keyrange.wire.produced_kernels import NO_SUCH_PARTITION

# What stands for a row that names no partition.
ANY_PARTITION = -(2**63)

_DATA = types.Array(types.uint8, 1, "C", readonly=True)
_I8 = types.int8[::1]
_I64 = types.int64[::1]
_INT = types.int64


@inlined
def _murmur2(data, at, size):
    """The hash of a key that Kafka's producers use (`org.apache.kafka.common.utils.Utils`)."""
    found = np.uint32(0x9747B28C) ^ np.uint32(size)
    factor = np.uint32(0x5BD1E995)
    end = at + size
    while end - at >= 4:
        word = np.uint32(np.uint32(host_i32(data, at)) * factor)
        word = np.uint32((word ^ (word >> np.uint32(24))) * factor)
        found = np.uint32(np.uint32(found * factor) ^ word)
        at += 4
    if at < end:
        for byte in range(end - at):
            found ^= np.uint32(data[at + byte]) << np.uint32(8 * byte)
        found = np.uint32(found * factor)
    found ^= found >> np.uint32(13)
    found = np.uint32(found * factor)
    return found ^ (found >> np.uint32(15))


@compiled_when_called(
    types.void(_I64, _I64, _I64, _DATA, _I64, _INT, _INT, _I64, _I64, _I8), allocates=False
)
def choose_partitions(
    given, key_at, key_sizes, key_data, sizes, partitions, batch_bytes, sticky, targets, faults
):
    """The partition of each row: the `given` one, that of its key, or the sticky one.

    A row without either goes where the one before it went, until `batch_bytes` have gone there;
    `sticky` holds this partition and the bytes, from call to call. Where a row is at fault, nothing
    is chosen; a given partition that is not in [0, partitions) puts it at fault.
    """
    for row in range(len(targets)):
        targets[row] = -1
        if faults[row] != 0:
            continue
        if given[row] != ANY_PARTITION:
            if given[row] < 0 or given[row] >= partitions:
                faults[row] = np.int8(NO_SUCH_PARTITION)
            else:
                targets[row] = given[row]
        elif key_sizes[row] >= 0:
            hashed = _murmur2(key_data, key_at[row], key_sizes[row])
            targets[row] = np.int64(hashed & np.uint32(0x7FFFFFFF)) % partitions
        else:
            if sticky[1] >= batch_bytes:
                sticky[0] = (sticky[0] + 1) % partitions
                sticky[1] = 0
            sticky[1] += sizes[row]
            targets[row] = sticky[0]


@compiled_when_called(types.void(_I64, _I64, _I64), allocates=False)
def sort_by_partition(targets, rows, ends):
    """The rows of partition 0, then those of partition 1 and so on, each in their order.

    `ends` has a place more than there are partitions: the rows of partition n are
    rows[ends[n]:ends[n + 1]]. Rows whose target is negative are left out.
    """
    ends[:] = 0
    for row in range(len(targets)):
        if targets[row] >= 0:
            ends[targets[row] + 1] += 1
    for place in range(1, len(ends)):
        ends[place] += ends[place - 1]
    for row in range(len(targets)):
        target = targets[row]
        if target >= 0:
            rows[ends[target]] = row
            ends[target] += 1
    for place in range(len(ends) - 1, 0, -1):
        ends[place] = ends[place - 1]
    ends[0] = 0
