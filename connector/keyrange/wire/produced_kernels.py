"""The compiled passes from columns to Kafka's bytes: measure records, write batches.

The rules of `keyrange.wire.record_kernels` hold here too. A column of bytes is three arrays: where
each row's bytes begin in `data`, how many they are (-1 where the row is null), and `data`. The
sizes that `measure_records` finds are what memory is taken by, and `write_batches` writes no more.

The layouts are Kafka's: record batches and records of message format v2
(kafka.apache.org/documentation, "Message Format").
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called, inlined
from keyrange.wire.kernel_helpers import copy_bytes

# A row for each batch: its bytes are region[at:end], its records are those of rows[first:] of which
# there are `count`.
WRITTEN = np.dtype(
    [("at", np.int64), ("end", np.int64), ("first", np.int64), ("count", np.int64)], align=True
)

# Why a row becomes no record.
TOO_LARGE = 1
HEADER_WITHOUT_NAME = 2
NO_SUCH_PARTITION = 3
BAD_TIMESTAMP = 4

HEADER_BYTES = 61
# Of a record beside what `measure_records` counts: its length, and the deltas of its timestamp and
# its offset.
MORE_BYTES_MAX = 5 + 10 + 5

_WRITTEN = types.Array(numba.from_dtype(WRITTEN), 1, "C")
_BYTES = types.uint8[::1]
_DATA = types.Array(types.uint8, 1, "C", readonly=True)
_I8 = types.int8[::1]
_I64 = types.int64[::1]
_INT = types.int64
# A column of bytes: where each row's begin, their sizes, the bytes.
_COLUMN = types.Tuple((_I64, _I64, _DATA))


@inlined
def _varint_bytes(value):
    """How many bytes a zigzag varint takes."""
    raw = np.uint64((value << 1) ^ (value >> 63))
    count = np.int64(1)
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        count += 1
    return count


@inlined
def _put_varint(region, at, value):
    """Write a zigzag varint; returns the position behind it."""
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw >= np.uint64(0x80):
        region[at] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        at += 1
    region[at] = np.uint8(raw)
    return at + 1


@inlined
def _put_bytes(region, at, data, begin, size):
    """Write a length and so many bytes, or -1 alone for a null."""
    at = _put_varint(region, at, size)
    if size > 0:
        copy_bytes(region, at, data, begin, size)
        at += size
    return at


@inlined
def _put_number(region, at, value, count):
    """Write the lowest `count` bytes of a number, the highest first."""
    for byte in range(count):
        region[at + byte] = np.uint8((value >> (8 * (count - 1 - byte))) & 0xFF)
    return at + count


@inlined
def _sized(size):
    """The bytes that a field takes with its length."""
    return _varint_bytes(size) + max(size, 0)


@compiled_when_called(
    _INT(_I64, _I64, _I64, _I64, _I64, _I64, _I64, _INT, _I64, _I8), allocates=False
)
def measure_records(
    key_sizes,
    value_sizes,
    header_starts,
    header_counts,
    name_sizes,
    header_value_sizes,
    timestamps_ms,
    request_bytes_max,
    sizes,
    faults,
):
    """The bytes of each row's record beside `MORE_BYTES_MAX`, and which rows become none.

    A record is too large if a batch of it alone, not compressed, exceeds `request_bytes_max`.
    Returns the sum of the sizes of those that are not at fault.
    """
    total = np.int64(0)
    for row in range(len(sizes)):
        count = header_counts[row]
        size = 1 + _sized(key_sizes[row]) + _sized(value_sizes[row]) + _varint_bytes(count)
        fault = np.int8(0)
        for header in range(header_starts[row], header_starts[row] + count):
            if name_sizes[header] < 0:
                fault = np.int8(HEADER_WITHOUT_NAME)
            size += _sized(name_sizes[header]) + _sized(header_value_sizes[header])
        if timestamps_ms[row] < 0:
            fault = np.int8(BAD_TIMESTAMP)
        if HEADER_BYTES + _sized(size + 2) > request_bytes_max:
            fault = np.int8(TOO_LARGE)
        sizes[row] = size
        faults[row] = fault
        total += size if fault == 0 else 0
    return total


@inlined
def _finish(region, written, attributes, base_timestamp, max_timestamp):
    """Write the header of a batch whose records are there. No producer, no checksum: `seal`."""
    at = _put_number(region, written.at, np.int64(0), 8)
    at = _put_number(region, at, written.end - written.at - 12, 4)
    at = _put_number(region, at, np.int64(-1), 4)
    region[at] = 2
    at = _put_number(region, at + 1, np.int64(0), 4)
    at = _put_number(region, at, attributes, 2)
    at = _put_number(region, at, written.count - 1, 4)
    at = _put_number(region, at, base_timestamp, 8)
    at = _put_number(region, at, max_timestamp, 8)
    at = _put_number(region, at, np.int64(-1), 8)
    at = _put_number(region, at, np.int64(-1), 2)
    at = _put_number(region, at, np.int64(-1), 4)
    _put_number(region, at, written.count, 4)


@compiled_when_called(
    types.UniTuple(_INT, 2)(
        *(_I64, _INT, _INT, _COLUMN, _COLUMN, _I64, _I64, _COLUMN, _COLUMN),
        *(_I64, _I64, _INT, _INT, _WRITTEN, _BYTES, _INT),
    ),
    allocates=False,
)
def write_batches(
    rows,
    first,
    until,
    keys,
    values,
    header_starts,
    header_counts,
    header_names,
    header_values,
    timestamps_ms,
    sizes,
    batch_bytes_max,
    attributes,
    table,
    region,
    at,
):
    """Write the records of rows[first:until] from `region[at]` on, in batches of at most
    `batch_bytes_max` bytes each; a record that exceeds them has a batch of its own.

    `table` and `region` have to have room for it. Returns how many batches there are, and the
    position behind them.
    """
    filled = 0
    base_timestamp = np.int64(0)
    max_timestamp = np.int64(0)
    count = np.int64(0)
    for place in range(first, until):
        row = rows[place]
        delta = timestamps_ms[row] - base_timestamp if count else np.int64(0)
        size = sizes[row] + _varint_bytes(delta) + _varint_bytes(count)
        if count and at - table[filled].at + _sized(size) > batch_bytes_max:
            table[filled].end = at
            table[filled].count = count
            _finish(region, table[filled], attributes, base_timestamp, max_timestamp)
            filled += 1
            count = np.int64(0)
            delta = np.int64(0)
            size = sizes[row] + 2
        if count == 0:
            table[filled].at = at
            table[filled].first = place
            at += HEADER_BYTES
            base_timestamp = timestamps_ms[row]
            max_timestamp = base_timestamp
        max_timestamp = max(max_timestamp, timestamps_ms[row])
        at = _put_varint(region, at, size)
        region[at] = 0
        at = _put_varint(region, at + 1, delta)
        at = _put_varint(region, at, count)
        at = _put_bytes(region, at, keys[2], keys[0][row], keys[1][row])
        at = _put_bytes(region, at, values[2], values[0][row], values[1][row])
        headers = header_counts[row]
        at = _put_varint(region, at, headers)
        for header in range(header_starts[row], header_starts[row] + headers):
            begin, size = header_names[0][header], header_names[1][header]
            at = _put_bytes(region, at, header_names[2], begin, size)
            begin, size = header_values[0][header], header_values[1][header]
            at = _put_bytes(region, at, header_values[2], begin, size)
        count += 1
    if count:
        table[filled].end = at
        table[filled].count = count
        _finish(region, table[filled], attributes, base_timestamp, max_timestamp)
        filled += 1
    return np.int64(filled), at
