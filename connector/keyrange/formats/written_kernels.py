"""The compiled pass that writes payloads: one interpreter for all schemas of all binary formats.

A schema and the type of a column are a program (`keyrange.formats.written_program`), an array of
OP. The pass runs it once for each row on the cells of `keyrange.formats.written_cells`.

It writes backwards, from the last byte of the last row to the first byte of the first one, and so
runs the steps of a row from its last field on. What says how long something is stands before it,
and is known by then: no pass measures what another one writes.

The pass judges nothing by itself: a place whose flag is UNFIT, or ABSENT where something has to be,
is a fault of its row, of which nothing is left.
"""

from __future__ import annotations

import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called, inlined
from keyrange.wire.kernel_helpers import copy_from

# The columns of a program, one row per step: what it does, and for which node. LEAD_BYTES of the
# constants from LEAD_AT on stand before what it writes. Of a place that is ABSENT: how many bytes
# of the constants from NULL_AT on are written, -1 where that is a fault, and where to go on.
OP, NODE, LEAD_AT, LEAD_BYTES, NULL_AT, NULL_BYTES, NULL_NEXT, A, B = range(9)

CONST = 0  # the lead alone
ZIGZAG = 1
VARINT = 2
BYTE = 3
FIXED4 = 4  # the lowest byte first
FIXED8 = 5
BYTES = 6  # behind their length as A: ZIGZAG, VARINT, or CONST where nobody says it
DECIMAL = 7  # of A bytes, the highest first; -1: of as few as hold it, behind their number
TIMESTAMP = 8  # a message of seconds and nanoseconds, of microseconds
OPEN = 9  # a struct whose parts follow
OPEN_SIZED = 10  # the same, before which its size stands
SIZE = 11  # of what was opened last
LOOP = 12  # a list; A is the step behind its NEXT; B bytes are zero behind its elements
NEXT = 13  # A is the first step of an element
COUNT = 14  # of the elements of the list that was left last, where there are any
PACKED = 15  # the size of that list, where it has elements; without any there is no lead
CHOOSE = 16  # of the B nodes in the table from A on at most one is there: its step is beside it
JUMP = 17  # to A
END = 18

# What a place has.
ABSENT, THERE, UNFIT = 0, 1, 2
# A fault of a row is one of the step that found it: `step * FAULTS + fault`.
FAULT_NULL, FAULT_UNFIT, FAULT_SEVERAL = 0, 1, 2
FAULTS = 3

# The columns of the nodes: where flags and slots begin, the memory that slots count in.
FLAG_AT, SLOT_AT, ADDRESS = range(3)
# What a stack keeps of a list: the place that it is at, its first element, its elements, where it
# ends. Of a struct it keeps where it ends.
PLACE, FIRST, ELEMENTS, UNTIL = range(4)

_I64 = types.int64[::1]
_STEPS = types.int64[:, ::1]
_BYTES = types.uint8[::1]


@inlined
def _put_varint(out, at, raw):
    """Before `at`; the position where it begins."""
    raw = np.uint64(raw)
    if raw < np.uint64(0x80):
        out[at - 1] = np.uint8(raw)
        return at - 1
    size, left = np.int64(1), raw >> np.uint64(7)
    while left:
        size += 1
        left >>= np.uint64(7)
    at -= size
    for each in range(size - 1):
        out[at + each] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
    out[at + size - 1] = np.uint8(raw)
    return at


@inlined
def _zigzag(value):
    return (value << 1) ^ (value >> 63)


@inlined
def _put_fixed(out, at, value, size):
    at -= size
    for each in range(size):
        out[at + each] = np.uint8((value >> (8 * each)) & 255)
    return at


@inlined
def _put_const(out, at, consts, begin, size):
    at -= size
    for each in range(size):
        out[at + each] = consts[begin + each]
    return at


@inlined
def _put_decimal(out, at, low, high, size):
    """Two halves, the highest byte first; of `size` bytes, or of as few as hold them."""
    said = size < 0
    if said:
        size = np.int64(16)
        # Bytes that only repeat the sign of the next one say nothing.
        while size > 1:
            byte = _byte_of(low, high, size - 1)
            below = _byte_of(low, high, size - 2)
            if not ((byte == 0 and below < 128) or (byte == 255 and below >= 128)):
                break
            size -= 1
    at -= size
    for each in range(size):
        out[at + each] = np.uint8(_byte_of(low, high, size - 1 - each))
    return _put_varint(out, at, size << 1) if said else at


@inlined
def _byte_of(low, high, place):
    """A byte of 128 bits by its place from the lowest on; beyond them those of the sign."""
    if place < 8:
        return (low >> (8 * place)) & 255
    if place < 16:
        return (high >> (8 * (place - 8))) & 255
    return (high >> 63) & 255


@inlined
def _put_timestamp(out, at, micros):
    """Both fields are left out where they are zero, as of any message; with its size."""
    until = at
    seconds = micros // 1_000_000
    nanos = (micros - seconds * 1_000_000) * 1_000
    if nanos:
        at = _put_varint(out, at, nanos)
        at -= 1
        out[at] = np.uint8(0x10)
    if seconds:
        at = _put_varint(out, at, seconds)
        at -= 1
        out[at] = np.uint8(0x08)
    return _put_varint(out, at, until - at)


@inlined
def _value(out, at, op, steps, step, nodes, node, slots, place, least):
    """One of the steps that write a value without others in it; -1 where there is too little
    room."""
    slot = nodes[node, SLOT_AT]
    if op == BYTES:
        begin = slots[slot + place]
        size = slots[slot + place + 1] - begin
        if at - size < least:
            return np.int64(-1)
        at -= size
        copy_from(out, at, nodes[node, ADDRESS] + begin, size)
        length = steps[step, A]
        if length == ZIGZAG:
            return _put_varint(out, at, size << 1)
        return _put_varint(out, at, size) if length == VARINT else at
    if op == DECIMAL:
        slot += 2 * place
        return _put_decimal(out, at, slots[slot], slots[slot + 1], steps[step, A])
    value = slots[slot + place]
    if op == ZIGZAG:
        return _put_varint(out, at, _zigzag(value))
    if op == VARINT:
        return _put_varint(out, at, value)
    if op == BYTE:
        out[at - 1] = np.uint8(value)
        return at - 1
    if op == FIXED8:
        return _put_fixed(out, at, value, 8)
    if op == FIXED4:
        return _put_fixed(out, at, value, 4)
    return _put_timestamp(out, at, value)


@inlined
def _chosen(nodes, flags, table, first, count, place):
    """(how many of the nodes in the table are there, the step of the last one)."""
    found, after = np.int64(0), np.int64(-1)
    for each in range(first, first + 2 * count, 2):
        if flags[nodes[table[each], FLAG_AT] + place] != ABSENT:
            found += 1
            after = table[each + 1]
    return found, after


@inlined
def _absent(out, at, consts, steps, step):
    """(where what stands for no value begins, the step to go on with or -1)."""
    size = steps[step, NULL_BYTES]
    if size < 0:
        return at, np.int64(-1)
    return _put_const(out, at, consts, steps[step, NULL_AT], size), steps[step, NULL_NEXT]


@inlined
def _entered(stack, depth, place, first, last, at):
    """The place of the last element of a list, of which the stack keeps the rest."""
    stack[depth, PLACE], stack[depth, FIRST] = place, first
    stack[depth, ELEMENTS], stack[depth, UNTIL] = last - first, at
    return last - 1


@inlined
def _row(out, at, row, steps, nodes, consts, table, flags, slots, stack, least):
    """(where the row begins, -1 or its fault); (-1, -1) where there is too little room."""
    step, after, depth, place = np.int64(0), np.int64(0), np.int64(0), np.int64(row)
    elements, until = np.int64(0), np.int64(0)  # of the list that was left last
    while True:
        if after < 0:
            return at, step * FAULTS + FAULT_NULL
        step = after
        after = step + 1
        op, node = steps[step, OP], steps[step, NODE]
        if at < least:
            return np.int64(-1), np.int64(-1)
        if node >= 0:
            flag = flags[nodes[node, FLAG_AT] + place]
            if flag == ABSENT:
                at, after = _absent(out, at, consts, steps, step)
                continue
            if flag == UNFIT:
                return at, step * FAULTS + FAULT_UNFIT
        if op <= TIMESTAMP:
            if op != CONST:
                at = _value(out, at, op, steps, step, nodes, node, slots, place, least)
                if at < 0:
                    return at, np.int64(-1)
        elif op <= OPEN_SIZED:
            if op == OPEN_SIZED:
                stack[depth, UNTIL] = at
                depth += 1
            continue
        elif op == SIZE:
            depth -= 1
            at = _put_varint(out, at, stack[depth, UNTIL] - at)
        elif op == LOOP:
            if steps[step, B]:
                at -= 1
                out[at] = 0
            slot = nodes[node, SLOT_AT] + place
            elements, until = slots[slot + 1] - slots[slot], at
            if elements > 0:
                place = _entered(stack, depth, place, slots[slot], slots[slot + 1], at)
                depth += 1
            else:
                after = steps[step, A]
            continue
        elif op == NEXT:
            if place > stack[depth - 1, FIRST]:
                place -= 1
                after = steps[step, A]
            else:
                depth -= 1
                place = stack[depth, PLACE]
                elements, until = stack[depth, ELEMENTS], stack[depth, UNTIL]
            continue
        elif op <= PACKED:
            if elements:
                at = _put_varint(out, at, elements << 1 if op == COUNT else until - at)
            elif op == PACKED:
                continue
        elif op == CHOOSE:
            count, after = _chosen(nodes, flags, table, steps[step, A], steps[step, B], place)
            if count > 1:
                return at, step * FAULTS + FAULT_SEVERAL
            if count == 0:
                at, after = _absent(out, at, consts, steps, step)
            continue
        elif op == JUMP:
            after = steps[step, A]
        else:
            return at, np.int64(-1)
        at = _put_const(out, at, consts, steps[step, LEAD_AT], steps[step, LEAD_BYTES])


@compiled_when_called(
    types.int64(
        _BYTES, _I64, _BYTES, _I64, _STEPS, _STEPS, _BYTES, _I64, _BYTES, _I64, _STEPS,
        types.int64,
    ),
    allocates=False,
)  # fmt: skip
def write_rows(out, begins, present, faults, steps, nodes, consts, table, flags, slots, stack,
               least):  # fmt: skip
    """Row r becomes `out[begins[r]:begins[r + 1]]`, of nothing where it is not `present`, or where
    `faults[r]` is not -1. Where the first row begins; -1 where `out` is too small: the step of no
    schema writes more than `least` bytes beside those of a text."""
    at = np.int64(len(out))
    begins[len(present)] = at
    for row in range(len(present) - 1, -1, -1):
        if present[row]:
            begin, fault = _row(out, at, row, steps, nodes, consts, table, flags, slots, stack,
                                least)  # fmt: skip
            if begin < 0:
                return begin
            faults[row] = fault
            at = begin if fault < 0 else at
        begins[row] = at
    return at
