"""The compiled passes over Kafka's bytes: scan batches, index records, gather columns.

Rules of this file:
- Every kernel has an explicit signature, so it is compiled when this module is imported (those that
  few tasks need, when first called), once per host: the machine code is cached on disk, and a lock
  file makes other processes wait and load it.
- All kernels and the helpers they inline live in this file or in `keyrange.wire.kernel_helpers`,
  because numba invalidates its cache by the source file of the kernel alone, and `compiling` by
  that one: a helper in another file could change unseen.
- numba checks no bounds. Every length is compared with what is left before it is used, and no size
  that came over the wire is ever allocated from.
- Kernels return a status code and never raise; `keyrange.wire.record_batches` and
  `keyrange.wire.chunk_decoder` turn a code into the typed error that names topic, partition and
  offset.

The layouts are Kafka's: record batches and records of message format v2
(kafka.apache.org/documentation, "Message Format").
"""

from __future__ import annotations

import platform
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keyrange.wire.compiling import compiled, compiled_when_called
from keyrange.wire.kernel_helpers import big_i32, big_i64, copy_bytes, host_i64

# One row per record batch of a fetched chunk. Positions count bytes from the start of the region
# that holds the records: the chunk itself, or the scratch region once a batch is decompressed.
BATCH = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("at", np.int64),
        ("records_at", np.int64),
        ("records_end", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("count", np.int32),
        ("leader_epoch", np.int32),
        ("attributes", np.int16),
        ("keep", np.int16),
    ],
    align=True,
)

# One row per record. A length of -1 is a null.
RECORD = np.dtype(
    [
        ("offset", np.int64),
        ("timestamp_us", np.int64),
        ("key_at", np.int64),
        ("value_at", np.int64),
        ("headers_at", np.int64),
        ("headers_end", np.int64),
        ("key_bytes", np.int32),
        ("value_bytes", np.int32),
        ("header_count", np.int32),
        ("timestamp_type", np.int32),
    ],
    align=True,
)

# Where an index pass stands between two calls: the row of the batch, the byte in the region, the
# records done of that batch; what it has seen since the caller reset it: rows, bytes of keys and
# values, headers and the memory that they take; and the offset that a failure is about.
CURSOR = np.dtype(
    [
        ("batch", np.int64),
        ("at", np.int64),
        ("done", np.int64),
        ("rows", np.int64),
        ("key_bytes", np.int64),
        ("value_bytes", np.int64),
        ("header_count", np.int64),
        ("header_bytes", np.int64),
        ("failed_offset", np.int64),
        ("last_delta", np.int64),
    ],
    align=True,
)

OK = 0
BAD_LENGTH = 1
BAD_MAGIC = 2
BAD_CRC = 3
BAD_COUNT = 4
BAD_ORDER = 5
BAD_RECORD = 6
BAD_TIMESTAMP = 7

# What an index pass counts towards the bytes of an Arrow batch.
COUNT_KEYS = 1
COUNT_VALUES = 2
COUNT_HEADERS = 4

HEADER_BYTES = 61
# A record is at least: length, attributes, timestamp delta, offset delta, key length, value length,
# header count, one byte each.
RECORD_BYTES_MIN = 7
# A header's row in the index of headers: four int64.
HEADER_PLACE_BYTES = 32
TIMESTAMP_TYPE_LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_BATCHES = types.Array(numba.from_dtype(BATCH), 1, "C")
_RECORDS = types.Array(numba.from_dtype(RECORD), 1, "C")
_CURSOR = types.Array(numba.from_dtype(CURSOR), 1, "C")
_BYTES = types.uint8[::1]
_I32 = types.int32[::1]
_I64 = types.int64[::1]
_INT = types.int64


_X86 = platform.machine().lower() in ("x86_64", "amd64")
_ARM = platform.machine().lower() in ("aarch64", "arm64")


def _host_has_crc32c() -> bool:
    """Whether the processor has an instruction for CRC32C (SSE 4.2, or ARMv8's CRC extension)."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return (_X86 and features.get("sse4.2", False)) or (_ARM and features.get("crc", False))


@intrinsic
def _crc32c_step8(typing_context, crc, word):
    """The processor's CRC32C of eight bytes."""
    signature = types.uint64(types.uint64, types.int64)

    def generate(context, builder, sig, args):
        i32, i64 = ir.IntType(32), ir.IntType(64)
        if _X86:
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64"
            )
            return builder.call(function, [args[0], args[1]])
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(i32, [i32, i64]), "llvm.aarch64.crc32cx"
        )
        return builder.zext(builder.call(function, [builder.trunc(args[0], i32), args[1]]), i64)

    return signature, generate


def _crc32c_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Slicing-by-8 tables of the Castagnoli polynomial (reflected 0x82F63B78)."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 8):
        for byte in range(256):
            previous = int(tables[row - 1, byte])
            tables[row, byte] = (previous >> 8) ^ int(tables[0, previous & 0xFF])
    return tables


_TABLES = _crc32c_tables()


def _crc32c_in_software(source, at, end):
    crc = np.uint32(0xFFFFFFFF)
    while end - at >= 8:
        word = np.uint64(host_i64(source, at)) ^ np.uint64(crc)
        crc = np.uint32(0)
        for lane in range(8):
            crc ^= _TABLES[7 - lane, (word >> np.uint64(8 * lane)) & np.uint64(0xFF)]
        at += 8
    while at < end:
        crc = (crc >> np.uint32(8)) ^ _TABLES[0, (crc ^ np.uint32(source[at])) & np.uint32(0xFF)]
        at += 1
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


def _crc32c_in_hardware(source, at, end):
    crc = np.uint64(0xFFFFFFFF)
    while end - at >= 8:
        crc = _crc32c_step8(crc, host_i64(source, at))
        at += 8
    tail = np.uint32(crc)
    while at < end:
        tail = (tail >> np.uint32(8)) ^ _TABLES[0, (tail ^ np.uint32(source[at])) & np.uint32(0xFF)]
        at += 1
    return np.uint32(tail ^ np.uint32(0xFFFFFFFF))


_CRC_SIGNATURE = types.uint32(_BYTES, types.int64, types.int64)
if _host_has_crc32c():
    crc32c = compiled(_CRC_SIGNATURE)(_crc32c_in_hardware)
    crc32c_in_software = compiled_when_called(_CRC_SIGNATURE)(_crc32c_in_software)
else:
    crc32c = crc32c_in_software = compiled(_CRC_SIGNATURE)(_crc32c_in_software)


_OFFSET_MAX = 2**63 - 1


@compiled(types.UniTuple(types.int64, 3)(_BYTES, types.int64, types.int64, _BATCHES, types.int64))
def scan_batches(chunk, at, end, table, expected_offset):
    """Fill `table` with the complete record batches of `chunk[at:end]`, each checked by its CRC32C.

    A batch that the broker cut off at the end of the response is left out, as Kafka means it.
    Batches must not overlap; only the chunk's first one, at 0, may begin before `expected_offset`.
    Returns (status, rows filled, position of the first byte not consumed); on a status other than
    OK the position is that of the faulty batch.
    """
    rows = 0
    while rows < len(table) and end - at >= 17:
        base_offset = big_i64(chunk, at)
        size = big_i32(chunk, at + 8) + 12
        if chunk[at + 16] != 2:
            return BAD_MAGIC, rows, at
        if size < HEADER_BYTES:
            return BAD_LENGTH, rows, at
        if end - at < size:
            break
        stored = np.uint32(big_i32(chunk, at + 17))
        if crc32c(chunk, at + 21, at + size) != stored:
            return BAD_CRC, rows, at
        attributes = np.int16(np.int64(chunk[at + 21]) << 8 | np.int64(chunk[at + 22]))
        last_delta = big_i32(chunk, at + 23)
        count = big_i32(chunk, at + 57)
        if last_delta < 0 or count < 0 or count > last_delta + 1:
            return BAD_COUNT, rows, at
        if attributes & 7 == 0 and count > (size - HEADER_BYTES) // RECORD_BYTES_MIN:
            return BAD_COUNT, rows, at
        if base_offset < 0 or base_offset >= _OFFSET_MAX - last_delta:
            return BAD_ORDER, rows, at
        if base_offset + last_delta < expected_offset:
            return BAD_ORDER, rows, at
        if at > 0 and base_offset < expected_offset:
            return BAD_ORDER, rows, at
        row = table[rows]
        row.base_offset = base_offset
        row.last_offset = base_offset + last_delta
        row.at = at
        row.records_at = at + HEADER_BYTES
        row.records_end = at + size
        row.base_timestamp = big_i64(chunk, at + 27)
        row.max_timestamp = big_i64(chunk, at + 35)
        row.producer_id = big_i64(chunk, at + 43)
        row.count = count
        row.leader_epoch = big_i32(chunk, at + 12)
        row.attributes = attributes
        row.keep = 0 if attributes & CONTROL else 1
        expected_offset = base_offset + last_delta + 1
        rows += 1
        at += size
    return OK, rows, at


@compiled(types.UniTuple(types.int64, 2)(_BYTES, types.int64, types.int64))
def _varint(source, at, end):
    """A zigzag varint of at most ten bytes: (value, next position), position -1 if it is broken."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = np.uint64(source[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return np.int64(0), np.int64(-1)


_HASH_C1 = np.uint64(0x87C37B91114253D5)
_HASH_C2 = np.uint64(0x4CF5AD432745937F)


@numba.njit(inline="always")
def _rotated(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@numba.njit(inline="always")
def _mixed(word):
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xFF51AFD7ED558CCD)
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))


@numba.njit(inline="always")
def _finished_hash(first, second, low, high, size):
    """The end of the hash: the last `size % 16` bytes as two words, then the final mix."""
    second ^= _rotated(high * _HASH_C2, 33) * _HASH_C1
    first ^= _rotated(low * _HASH_C1, 31) * _HASH_C2
    first ^= np.uint64(size)
    second ^= np.uint64(size)
    first += second
    second += first
    return np.int64((_mixed(first) + _mixed(second)) >> np.uint64(1))


@numba.njit
def _key_hash(source, at, size):
    """The place of a key in the hash space: MurmurHash3 x64 128 (seed 0), the first 64 bits shifted
    right by one."""
    first = np.uint64(0)
    second = np.uint64(0)
    end = at + size
    while end - at >= 16:
        first ^= _rotated(np.uint64(host_i64(source, at)) * _HASH_C1, 31) * _HASH_C2
        first = (_rotated(first, 27) + second) * np.uint64(5) + np.uint64(0x52DCE729)
        second ^= _rotated(np.uint64(host_i64(source, at + 8)) * _HASH_C2, 33) * _HASH_C1
        second = (_rotated(second, 31) + first) * np.uint64(5) + np.uint64(0x38495AB5)
        at += 16
    low = np.uint64(0)
    high = np.uint64(0)
    if end - at >= 8:
        low = np.uint64(host_i64(source, at))
        for byte in range(at + 8, end):
            high |= np.uint64(source[byte]) << np.uint64(8 * (byte - at - 8))
    else:
        for byte in range(at, end):
            low |= np.uint64(source[byte]) << np.uint64(8 * (byte - at))
    return _finished_hash(first, second, low, high, size)


@numba.njit(inline="always")
def _offset_hash(offset):
    """The hash of an offset's eight bytes as Kafka writes them, most significant first."""
    low = np.uint64(0)
    for byte in range(8):
        low |= ((np.uint64(offset) >> np.uint64(56 - 8 * byte)) & np.uint64(0xFF)) << np.uint64(
            8 * byte
        )
    return _finished_hash(np.uint64(0), np.uint64(0), low, np.uint64(0), 8)


@compiled_when_called(types.void(_BYTES, _RECORDS, types.int64, types.boolean, types.int64[::1]))
def hash_keys(region, records, rows, nulls_first, hashes):
    """The places of records' keys in the hash space.

    A null key has no order to keep: its place is the hash of its offset, which does not depend on
    how the space is cut, or with `nulls_first` the first of all.
    """
    for row in range(rows):
        record = records[row]
        if record.key_bytes >= 0:
            hashes[row] = _key_hash(region, record.key_at, np.int64(record.key_bytes))
        elif nulls_first:
            hashes[row] = 0
        else:
            hashes[row] = _offset_hash(record.offset)


@compiled_when_called(types.void(_RECORDS, types.int64, types.int64[::1]))
def hash_offsets(records, rows, hashes):
    """The places of records for which no order is kept: the hashes of their offsets."""
    for row in range(rows):
        hashes[row] = _offset_hash(records[row].offset)


_TIMESTAMP_MS_MAX = 9223372036854775


@compiled(_INT(_BYTES, _BATCHES, _INT, _CURSOR, _RECORDS, _INT, _INT, _INT, _INT))
def index_records(
    region, batches, batch_end, cursor, records, from_offset, until_offset, bytes_max, counted
):
    """Fill `records` with where the records of `batches[cursor.batch:batch_end]` lie in `region`.

    Stops when `records` is full, when the keys, values and headers that `counted` names (`COUNT_*`)
    reach `bytes_max` since the caller reset the cursor (after the record that reaches it), or when
    the batches are done; the next call goes on from the cursor. Only records in [from_offset,
    until_offset) are kept.
    """
    state = cursor[0]
    key_share = np.int64(counted & COUNT_KEYS != 0)
    value_share = np.int64(counted & COUNT_VALUES != 0)
    header_share = np.int64(counted & COUNT_HEADERS != 0)
    while state.batch < batch_end:
        batch = batches[state.batch]
        if state.at < 0:
            state.at = batch.records_at
            state.done = 0
            state.last_delta = -1
        end = batch.records_end
        skip = (
            batch.keep == 0 or batch.last_offset < from_offset or batch.base_offset >= until_offset
        )
        log_append = batch.attributes & TIMESTAMP_TYPE_LOG_APPEND
        while not skip and state.done < batch.count:
            held_bytes = (
                key_share * state.key_bytes
                + value_share * state.value_bytes
                + header_share * state.header_bytes
            )
            if state.rows == len(records) or held_bytes >= bytes_max:
                return OK
            state.failed_offset = batch.base_offset + state.last_delta + 1
            size, at = _varint(region, state.at, end)
            if at < 0 or size < RECORD_BYTES_MIN - 1 or size > end - at:
                return BAD_RECORD
            record_end = at + size
            at += 1
            timestamp_delta, at = _varint(region, at, record_end)
            if at < 0:
                return BAD_RECORD
            offset_delta, at = _varint(region, at, record_end)
            if at < 0 or offset_delta <= state.last_delta:
                return BAD_RECORD
            if offset_delta > batch.last_offset - batch.base_offset:
                return BAD_RECORD
            offset = batch.base_offset + offset_delta
            key_bytes, at = _varint(region, at, record_end)
            if at < 0 or key_bytes < -1 or key_bytes > record_end - at:
                return BAD_RECORD
            key_at = at
            if key_bytes > 0:
                at += key_bytes
            value_bytes, at = _varint(region, at, record_end)
            if at < 0 or value_bytes < -1 or value_bytes > record_end - at:
                return BAD_RECORD
            value_at = at
            if value_bytes > 0:
                at += value_bytes
            header_count, at = _varint(region, at, record_end)
            if at < 0 or header_count < 0 or header_count > (record_end - at) // 2:
                return BAD_RECORD
            if header_count == 0 and at != record_end:
                return BAD_RECORD
            state.at = record_end
            state.last_delta = offset_delta
            state.done += 1
            if offset < from_offset or offset >= until_offset:
                continue
            timestamp_ms = (
                batch.max_timestamp
                if log_append
                else np.int64(np.uint64(batch.base_timestamp) + np.uint64(timestamp_delta))
            )
            # Added unsigned: a signed sum that overflows is undefined, and its test optimised away.
            wrapped = not log_append and (
                (timestamp_ms < batch.base_timestamp) != (timestamp_delta < 0)
            )
            if wrapped or timestamp_ms > _TIMESTAMP_MS_MAX or timestamp_ms < -_TIMESTAMP_MS_MAX:
                state.failed_offset = offset
                return BAD_TIMESTAMP
            record = records[state.rows]
            record.offset = offset
            record.timestamp_us = timestamp_ms * 1000
            record.key_at = key_at
            record.value_at = value_at
            record.headers_at = at
            record.headers_end = record_end
            record.key_bytes = key_bytes
            record.value_bytes = value_bytes
            record.header_count = header_count
            record.timestamp_type = 1 if log_append else 0
            state.rows += 1
            state.key_bytes += max(key_bytes, 0)
            state.value_bytes += max(value_bytes, 0)
            state.header_count += header_count
            state.header_bytes += record_end - at + HEADER_PLACE_BYTES * header_count
        if not skip and state.at != end:
            state.failed_offset = batch.last_offset
            return BAD_RECORD
        state.batch += 1
        state.at = -1
    return OK


@compiled(types.void(_RECORDS, types.int64, types.int64[::1], types.int64[::1], types.int32[::1]))
def gather_numbers(records, rows, offsets, timestamps_us, timestamp_types):
    """The offset, timestamp and timestamp type columns."""
    for row in range(rows):
        record = records[row]
        offsets[row] = record.offset
        timestamps_us[row] = record.timestamp_us
        timestamp_types[row] = record.timestamp_type


@compiled(
    types.int64(_BYTES, _RECORDS, types.int64, types.boolean, types.int32[::1], _BYTES, _BYTES)
)
def gather_bytes(region, records, rows, key, ends, data, valid):
    """The keys (`key`) or values of `records[:rows]` as Arrow's binary layout.

    `ends` has rows + 1 places, `data` exactly the bytes that the index pass counted, and `valid` is
    a bitmap of ones, cleared where a field is null. Returns the number of nulls.
    """
    at = np.int64(0)
    nulls = np.int64(0)
    ends[0] = 0
    for row in range(rows):
        record = records[row]
        size = np.int64(record.key_bytes) if key else np.int64(record.value_bytes)
        if size > 0:
            copy_bytes(data, at, region, record.key_at if key else record.value_at, size)
            at += size
        if size < 0:
            nulls += 1
            valid[row >> 3] &= ~np.uint8(1 << (row & 7))
        ends[row + 1] = at
    return nulls


@compiled_when_called(
    types.UniTuple(types.int64, 3)(_BYTES, _RECORDS, types.int64, types.int64[:, ::1])
)
def index_headers(region, records, rows, headers):
    """Where the headers of `records[:rows]` lie: rows of (key at, key bytes, value at, value
    bytes).

    Returns (bytes of keys, bytes of values, row of a broken record or -1). A value's length of -1
    is a null; header keys are never null. The headers must end where their record ends.
    """
    filled = 0
    key_total = np.int64(0)
    value_total = np.int64(0)
    for row in range(rows):
        record = records[row]
        at = record.headers_at
        end = record.headers_end
        for _ in range(record.header_count):
            key_bytes, at = _varint(region, at, end)
            if at < 0 or key_bytes < 0 or key_bytes > end - at:
                return key_total, value_total, np.int64(row)
            headers[filled, 0] = at
            headers[filled, 1] = key_bytes
            at += key_bytes
            value_bytes, at = _varint(region, at, end)
            if at < 0 or value_bytes < -1 or value_bytes > end - at:
                return key_total, value_total, np.int64(row)
            headers[filled, 2] = at
            headers[filled, 3] = value_bytes
            at += max(value_bytes, 0)
            key_total += key_bytes
            value_total += max(value_bytes, 0)
            filled += 1
        if at != end:
            return key_total, value_total, np.int64(row)
    return key_total, value_total, np.int64(-1)


@compiled_when_called(_INT(_BYTES, types.int64[:, ::1], _INT, _INT, _I32, _BYTES, _BYTES))
def gather_header_bytes(region, headers, rows, column, ends, data, valid):
    """Header keys (`column` 0) or values (2) as Arrow's binary layout; returns the nulls."""
    at = np.int64(0)
    nulls = np.int64(0)
    ends[0] = 0
    for row in range(rows):
        size = headers[row, column + 1]
        if size > 0:
            copy_bytes(data, at, region, headers[row, column], size)
            at += size
        if size < 0:
            nulls += 1
            valid[row >> 3] &= ~np.uint8(1 << (row & 7))
        ends[row + 1] = at
    return nulls


@numba.njit(inline="always")
def _count_anew(state):
    state.rows = 0
    state.key_bytes = 0
    state.value_bytes = 0
    state.header_count = 0
    state.header_bytes = 0


@numba.njit(inline="always")
def _count(state, record):
    state.rows += 1
    state.key_bytes += max(record.key_bytes, 0)
    state.value_bytes += max(record.value_bytes, 0)
    state.header_count += record.header_count
    state.header_bytes += (
        record.headers_end - record.headers_at + HEADER_PLACE_BYTES * record.header_count
    )


@numba.njit(inline="always")
def _first_not_below(sorted_hashes, key_hash):
    low = 0
    high = len(sorted_hashes)
    while low < high:
        middle = (low + high) >> 1
        if sorted_hashes[middle] < key_hash:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_when_called(
    types.void(_BYTES, _RECORDS, _I64, _CURSOR, _I64, _I64, _BYTES, types.boolean)
)
def keep_keys(region, records, hashes, cursor, wanted, wanted_ends, wanted_bytes, wanted_null):
    """Keep only the records with certain keys, in their order, and count them anew in `cursor`.

    `wanted` are the keys' places, in order; the bytes of key i end at `wanted_ends[i + 1]`. A place
    alone says nothing: other keys share it.
    """
    state = cursor[0]
    rows = state.rows
    _count_anew(state)
    for row in range(rows):
        record = records[row]
        size = np.int64(record.key_bytes)
        kept = size < 0 and wanted_null
        at = _first_not_below(wanted, hashes[row]) if size >= 0 else len(wanted)
        while at < len(wanted) and wanted[at] == hashes[row] and not kept:
            first = wanted_ends[at]
            kept = wanted_ends[at + 1] - first == size
            byte = 0
            while kept and byte < size:
                kept = wanted_bytes[first + byte] == region[record.key_at + byte]
                byte += 1
            at += 1
        if kept:
            hashes[state.rows] = hashes[row]
            records[state.rows] = record
            _count(state, record)


@compiled_when_called(types.void(_RECORDS, _I64, _CURSOR, _I64, _I64, _I64, _I64))
def keep_delivered(records, hashes, cursor, uppers, froms, untils, offsets):
    """Keep only the records at `offsets`, and those whose offset is in [froms, untils) of the range
    that their key falls into, in their order, and count them anew in `cursor`.

    Range i ends at `uppers[i]`, included. `offsets` are in order.
    """
    state = cursor[0]
    rows = state.rows
    _count_anew(state)
    for row in range(rows):
        record = records[row]
        offset = record.offset
        at = _first_not_below(offsets, offset)
        kept = at < len(offsets) and offsets[at] == offset
        if not kept and len(uppers):
            at = _first_not_below(uppers, hashes[row])
            kept = at < len(uppers) and froms[at] <= offset < untils[at]
        if kept:
            hashes[state.rows] = hashes[row]
            records[state.rows] = record
            _count(state, record)


@compiled_when_called(types.void(_RECORDS, _I64, _CURSOR, _I64, _I32, _I32, _RECORDS, _I64, _I64))
def sort_by_reader(records, hashes, cursor, uppers, owners, cells, placed, placed_hashes, starts):
    """Sort records by who reads their key range, each reader's in their order, into `placed`.

    Range i ends at `uppers[i]`, included, and is read by `owners[i]`; a negative owner's records
    are left out. `starts` has a place more than there are readers: the rows of reader n are
    [starts[n], starts[n + 1]). `cells` is room for a number per row. What is kept is counted anew
    in `cursor`.
    """
    state = cursor[0]
    rows = state.rows
    _count_anew(state)
    starts[:] = 0
    for row in range(rows):
        at = _first_not_below(uppers, hashes[row])
        owner = owners[at] if at < len(owners) else np.int32(-1)
        cells[row] = owner
        if owner >= 0:
            starts[owner + 1] += 1
            _count(state, records[row])
    for reader in range(1, len(starts)):
        starts[reader] += starts[reader - 1]
    for row in range(rows):
        owner = cells[row]
        if owner >= 0:
            to = starts[owner]
            placed[to] = records[row]
            placed_hashes[to] = hashes[row]
            starts[owner] = to + 1
    for reader in range(len(starts) - 1, 0, -1):
        starts[reader] = starts[reader - 1]
    starts[0] = 0
