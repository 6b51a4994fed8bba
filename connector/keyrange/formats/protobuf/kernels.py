"""The compiled pass over Protobuf's bytes: one walk for all schemas.

A message is two tables (`keyrange.formats.protobuf.program`), an array of FIELD and one of MESSAGE.
The pass writes the cells of `keyrange.formats.cells`. The rules of `keyrange.wire.record_kernels`
hold here too. The pass judges nothing: whatever it does not read itself makes a row SLOW, takes
back the row's cells, and `keyrange.formats.protobuf.rows` reads that row again. A length is
compared with what is left of its message before it is used.
"""

from __future__ import annotations

import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called, inlined
from keyrange.wire.kernel_helpers import (
    host_i32,
    host_i64,
    is_utf8,
    keys_may_be_twice,
    take_back,
    varint,
    zigzag,
)

# The columns of FIELD. SCOPE is that of the field's values, which are at FLAG_AT and SLOT_AT.
# COUNT_AT: where the slots of a list or map begin, which count its values, or -1. IMPLICIT: the
# field is there where it is not zero or empty. ONEOF: where in the table the flags of the other
# members are told, a count first, or -1. MESSAGE: of a message or group the row of its fields. ENUM
# where in the table the numbers of a closed one are told in order, a count first.
KIND, WIRE, SCOPE, FLAG_AT, SLOT_AT, COUNT_AT, IMPLICIT, ONEOF, MESSAGE, ENUM = range(10)

# The columns of MESSAGE. LOOKUP: where in the lookups the rows of fields by number begin, of which
# there are NUMBERS; the rows of larger ones are in the table at MORE: a count, then pairs. CLOSING:
# 1 where its end has something to do. In the table: at REQUIRED a count, then where the flags of
# required fields begin; at MAPS a count, then of each map where its counts begin, the scope of its
# keys, where their slots begin, and whether they are texts; at ENTRY of a map's entry a count, then
# of its key and its value where flags and slots begin, the slot of a missing one, and whether a
# missing one is read slowly.
LOOKUP, NUMBERS, MORE, CLOSING, REQUIRED, MAPS, ENTRY = range(7)

# Kinds of fields. Those before MESSAGES are written into a slot.
INT32, INT64, SINT32, SINT64, BOOL, CLOSED_ENUM, FIXED32, FIXED64, TEXT, BYTES, TIMESTAMP = range(
    11
)
MESSAGES, GROUPS, SLOWLY = 11, 12, 13

VARINT, WIDE, BLOCK, OPEN, CLOSE, NARROW = range(6)

FAST, SLOW = 0, 1
# Messages and groups in each other. The reference library gives up at 100.
DEPTH_MAX = 64

_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)
_I32_READ = types.Array(types.int32, 1, "C", readonly=True)
_TABLE = types.int64[:, ::1]
_I64 = types.int64[::1]
_LOW_32 = 0xFFFF_FFFF
_SECONDS_MAX = 9_223_372_036_850


@inlined
def _short_varint(data, at, end):
    """(32 bits without a sign, the position behind them or -1): of a tag or a length."""
    value, behind = varint(data, at, end)
    if behind - at > 5 or value < 0 or value > _LOW_32:
        return np.int64(0), np.int64(-1)
    return value, behind


@inlined
def _block(data, at, end):
    """(where the bytes of a length begin or -1, where they end)."""
    size, start = _short_varint(data, at, end)
    if start < 0 or size > end - start:
        return np.int64(-1), np.int64(-1)
    return start, start + size


@inlined
def _is_among(table, first, number):
    """Whether a number is one of those in order that stand behind their count."""
    low, high = first + 1, first + 1 + table[first]
    while low < high:
        middle = (low + high) >> 1
        if table[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < first + 1 + table[first] and table[low] == number


@inlined
def _timestamp(data, at, end):
    """(microseconds, the position behind it or -1): seconds and nanoseconds, at most once."""
    start, until = _block(data, at, end)
    if start < 0:
        return np.int64(0), np.int64(-1)
    seconds, nanos, last = np.int64(0), np.int64(0), 0
    at = start
    while at < until:
        tag = data[at]
        number, at = varint(data, at + 1, until)
        if at < 0:
            return np.int64(0), np.int64(-1)
        if tag == 8 and last < 1:
            seconds, last = number, 1
        elif tag == 16 and last < 2:
            # An int32 is the lower half of what is written.
            nanos, last = (number << 32) >> 32, 2
        else:
            return np.int64(0), np.int64(-1)
    if not -_SECONDS_MAX < seconds < _SECONDS_MAX:
        return np.int64(0), np.int64(-1)
    # Towards zero, as the JVM does.
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    return seconds * 1_000_000 + micros, until


@inlined
def _number(data, at, end, kind, enum, table):
    """(the slot of a value that is no text, the position behind it or -1)."""
    if kind == FIXED64:
        if end - at < 8:
            return np.int64(0), np.int64(-1)
        return host_i64(data, at), at + 8
    if kind == FIXED32:
        if end - at < 4:
            return np.int64(0), np.int64(-1)
        return host_i32(data, at), at + 4
    value, at = varint(data, at, end)
    if kind == INT32:
        value = (value << 32) >> 32
    elif kind == BOOL:
        value = np.int64(value != 0)
    elif kind == SINT64:
        value = zigzag(value)
    elif kind == SINT32:
        value = ((((value & _LOW_32) >> 1) ^ -(value & 1)) << 32) >> 32
    elif kind == CLOSED_ENUM:
        value = (value << 32) >> 32
        if not _is_among(table, enum, value):
            return value, np.int64(-1)
    return value, at


@inlined
def _value(data, at, end, kind, enum, table):
    """(the slot, whether it is zero or empty, the position behind the value or -1)."""
    if kind in (TEXT, BYTES):
        start, until = _block(data, at, end)
        if start < 0 or (kind == TEXT and not is_utf8(data, start, until)):
            return np.int64(0), True, np.int64(-1)
        return start << 32 | (until - start), until == start, until
    if kind == TIMESTAMP:
        value, at = _timestamp(data, at, end)
        return value, False, at
    value, at = _number(data, at, end, kind, enum, table)
    return value, value == 0, at


@inlined
def _tag(data, at, stop):
    """(the number of the next field, how it is written, the position behind that or -1); number 0
    at the end of a message."""
    if at >= stop:
        return np.int64(0), np.int64(CLOSE), at
    tag, at = _short_varint(data, at, stop)
    return tag >> 3, tag & 7, at if tag >> 3 else np.int64(-1)


@inlined
def _skipped_value(data, at, end, wire):
    """The position behind a value that is no group, or -1."""
    if wire == VARINT:
        _, at = varint(data, at, end)
        return at
    if wire == BLOCK:
        _, at = _block(data, at, end)
        return at
    size = 8 if wire == WIDE else 4
    return at + size if wire in (WIDE, NARROW) and size <= end - at else np.int64(-1)


@inlined
def _skipped(data, at, end, wire, number, stack, depth):
    """The position behind a field that has no column, or -1. Of groups the stack is used from
    `depth` on."""
    first = depth
    while True:
        if wire == OPEN:
            if depth >= DEPTH_MAX:
                return np.int64(-1)
            stack[depth, 0] = number
            depth += 1
        elif wire == CLOSE:
            depth -= 1
            if depth < first or stack[depth, 0] != number:
                return np.int64(-1)
        else:
            at = _skipped_value(data, at, end, wire)
        if at < 0 or depth == first:
            return at
        number, wire, at = _tag(data, at, end)
        if at < 0 or number == 0:
            return np.int64(-1)


@inlined
def _field_of(messages, message, number, lookup, table):
    """The row of a field by its number, or -1."""
    if number < messages[message, NUMBERS]:
        return np.int64(lookup[messages[message, LOOKUP] + number])
    first = messages[message, MORE]
    for at in range(first + 1, first + 1 + 2 * table[first], 2):
        if table[at] == number:
            return table[at + 1]
    return np.int64(-1)


@inlined
def _has_other_member(table, first, place, flags):
    found = False
    for at in range(first + 1, first + 1 + table[first]):
        found |= flags[table[at] + place] != 0
    return found


@inlined
def _closed(data, messages, message, place, table, counts, flags, slots):
    """Whether a message that ends has what it needs; the pass reads no others."""
    if not messages[message, CLOSING]:
        return True
    first = messages[message, REQUIRED]
    for at in range(first + 1, first + 1 + table[first]):
        if not flags[table[at] + place]:
            return False
    first = messages[message, MAPS]
    for at in range(first + 1, first + 1 + 4 * table[first], 4):
        last = table[at + 2] + counts[table[at + 1]]
        keys_at = last - slots[table[at] + place]
        if keys_may_be_twice(data, slots, keys_at, last, table[at + 3] != 0):
            return False
    first = messages[message, ENTRY]
    for at in range(first + 1, first + 1 + 4 * table[first], 4):
        if not flags[table[at] + place]:
            if table[at + 3]:
                return False
            flags[table[at] + place] = 1
            if table[at + 1] >= 0:
                slots[table[at + 1] + place] = table[at + 2]
    return True


@inlined
def _packed(data, at, end, fields, field, place, table, room, counts, flags, slots):
    """Numbers of one field behind a length: the position behind them, -1, or -2 where its scope has
    too little room."""
    kind, scope, enum = fields[field, KIND], fields[field, SCOPE], fields[field, ENUM]
    at, until = _block(data, at, end)
    if at < 0:
        return np.int64(-1)
    first = counts[scope]
    to, most = first, room[scope]
    while at < until:
        if to >= most:
            return np.int64(-2)
        value, at = _number(data, at, until, kind, enum, table)
        if at < 0:
            return np.int64(-1)
        flags[fields[field, FLAG_AT] + to] = 1
        slots[fields[field, SLOT_AT] + to] = value
        to += 1
    counts[scope] = to
    slots[fields[field, COUNT_AT] + place] += to - first
    return until


@inlined
def _into_slot(data, at, end, fields, field, to, table, flags, slots):
    """Reads a value that is no message into a place: the position behind it, or -1."""
    kind, flag = fields[field, KIND], fields[field, FLAG_AT] + to
    # Of two timestamps each may have a part of the whole.
    if kind == TIMESTAMP and flags[flag]:
        return np.int64(-1)
    value, zero, at = _value(data, at, end, kind, fields[field, ENUM], table)
    if at >= 0:
        slots[fields[field, SLOT_AT] + to] = value
        flags[flag] = not (zero and fields[field, IMPLICIT])
    return at


@inlined
def _place(fields, field, place, table, room, counts, flags, slots):
    """Where the value of a field belongs; -1 where another member of its oneof is there, and -2
    where its scope has too little room."""
    count_at = fields[field, COUNT_AT]
    if count_at >= 0:
        scope = fields[field, SCOPE]
        to = counts[scope]
        if to >= room[scope]:
            return np.int64(-2)
        counts[scope] = to + 1
        slots[count_at + place] += 1
        return to
    oneof = fields[field, ONEOF]
    if oneof >= 0 and _has_other_member(table, oneof, place, flags):
        return np.int64(-1)
    return place


@inlined
def _row(data, at, end, row, fields, messages, lookup, table, room, counts, flags, slots, others,
         stack):  # fmt: skip
    """FAST or SLOW; or, of a scope that has too little room, 2 and its number.

    The stack has of each message around the one that is read: its row, its place, its end, and the
    number of the group that it is or 0."""
    depth, message, group = np.int64(0), np.int64(0), np.int64(0)
    place, stop = np.int64(row), np.int64(end)
    while True:
        number, wire, at = _tag(data, at, stop)
        if at < 0:
            return SLOW
        if wire == CLOSE:
            if number != group or not _closed(data, messages, message, place, table, counts, flags,
                                              slots):  # fmt: skip
                return SLOW
            if depth == 0:
                return FAST
            depth -= 1
            message, place = stack[depth, 0], stack[depth, 1]
            stop, group = stack[depth, 2], stack[depth, 3]
            continue
        field = _field_of(messages, message, number, lookup, table)
        if field < 0:
            others[row] = True
            at = _skipped(data, at, stop, wire, number, stack, depth)
            if at < 0:
                return SLOW
            continue
        kind = fields[field, KIND]
        if wire != fields[field, WIRE]:
            # A list of numbers may be written in one piece.
            if fields[field, COUNT_AT] < 0 or wire != BLOCK or kind > FIXED64:
                return SLOW
            at = _packed(data, at, stop, fields, field, place, table, room, counts, flags, slots)
            if at < 0:
                return SLOW if at == -1 else 2 + fields[field, SCOPE]
            continue
        to = _place(fields, field, place, table, room, counts, flags, slots)
        if to < 0:
            return SLOW if to == -1 else 2 + fields[field, SCOPE]
        if kind < MESSAGES:
            at = _into_slot(data, at, stop, fields, field, to, table, flags, slots)
            if at < 0:
                return SLOW
            continue
        start, until = at, stop
        if kind == MESSAGES:
            start, until = _block(data, at, stop)
        if start < 0 or depth >= DEPTH_MAX or kind == SLOWLY:
            return SLOW
        stack[depth, 0], stack[depth, 1] = message, place
        stack[depth, 2], stack[depth, 3] = stop, group
        depth += 1
        if fields[field, FLAG_AT] >= 0:
            flags[fields[field, FLAG_AT] + to] = 1
        at, message, place, stop = start, fields[field, MESSAGE], to, until
        group = number if kind == GROUPS else np.int64(0)


@compiled_when_called(
    types.int64(
        _READ_ONLY, _I32_READ, _I32_READ, types.boolean[::1], _TABLE, _TABLE, types.int32[::1],
        _I64, _TABLE, _I64, _I64, types.uint8[::1], _I64, types.uint8[::1], types.boolean[::1],
        _I64, _TABLE,
    ),
    allocates=False,
)  # fmt: skip
def read_rows(data, begins, ends, present, fields, messages, lookup, table, nodes, room, counts,
              flags, slots, status, others, before, stack):  # fmt: skip
    """Row r is `data[begins[r]:ends[r]]`: fill its cells, or say that it is SLOW. `others`: whether
    a row that is read has fields without columns. `nodes` as `take_back` has them; the root is the
    first one.

    The number of a scope that has too little room, or -1."""
    for row in range(len(present)):
        counts[0] = row
        if not present[row]:
            continue
        for scope in range(1, len(counts)):
            before[scope] = counts[scope]
        flags[nodes[0, 1] + row] = 1
        found = _row(data, np.int64(begins[row]), np.int64(ends[row]), row, fields, messages,
                     lookup, table, room, counts, flags, slots, others, stack)  # fmt: skip
        if found >= 2:
            return found - 2
        status[row] = found
        if found == SLOW:
            take_back(nodes, row, before, counts, room, flags, slots)
    counts[0] = len(present)
    return -1
