"""The compiled pass over Avro's bytes: one interpreter for all schemas.

A pair of schemas is a program (`keyrange.formats.avro.program`), an array of OP. The pass runs it
once for each row and writes the cells of `keyrange.formats.cells`. The rules of
`keyrange.wire.record_kernels` hold here too. The pass judges nothing: whatever it does not read
itself makes a row SLOW, takes back the row's cells, and `keyrange.formats.avro.rows` reads that row
again. A length is compared with what is left of the row before it is used.
"""

from __future__ import annotations

import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called, inlined
from keyrange.wire.kernel_helpers import (
    halves,
    host_i32,
    host_i64,
    is_utf8,
    keys_may_be_twice,
    take_back,
    varint,
    zigzag,
)

# The columns of a program, one row per step: what it does, the scope of its node, where the node's
# flags and slots begin. What A, B and C are is said where the steps are named.
OP, SCOPE, FLAG_AT, SLOT_AT, A, B, C = range(7)

# Steps that read a value into the place of a node.
INTEGER = 0  # of A bits, times B
INTEGER_TO_FLOAT = 1  # of A bits
INTEGER_TO_DOUBLE = 2  # of A bits
FLOAT = 3
FLOAT_TO_DOUBLE = 4
DOUBLE = 5
BOOLEAN = 6
TEXT = 7
BYTES = 8
FIXED = 9  # of A bytes
DECIMAL = 10  # of A bytes, or of as many as it says; its limits stand in the table at B
SYMBOL = 11  # one of A; in the table at B the reader's
PRESENT = 12  # nothing is read: the node has a value
# Steps that read a value and leave it.
SKIP_VARINT = 13  # of `A` bits, and of a symbol one of `B`
SKIP_BOOLEAN = 14
SKIP_BYTES = 15
SKIP_FIXED = 16  # `A` bytes
# Steps that say which step comes next.
JUMP = 17  # `A`
BRANCH = 18  # of `A` branches; in the table at `B` where each is, or -1
# `A` is the step behind the loop; an element has `B` bytes at least, and is in scope `C` or left.
LOOP = 19
NEXT = 20  # `A` is the step behind the LOOP; the others are the same
CLOSE = 21  # the list or map of scope `C` is there; `A` is where the slots of its keys begin, or -1
CALL = 22  # of a record that is left, at `A`
RETURN = 23
SLOWLY = 24
END = 25

# What the stack keeps of a loop: elements left of the block, elements, where the block ends or -1.
# Of a call it keeps the step behind it.
LEFT, TOTAL, UNTIL = 0, 1, 2

FAST = 0
SLOW = 1

# Calls and loops in each other.
DEPTH_MAX = 200

_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)
_I32_READ = types.Array(types.int32, 1, "C", readonly=True)
_STEPS = types.int64[:, ::1]
_I64 = types.int64[::1]


@inlined
def _varint(data, at, end):
    """(the number, the position behind it or -1)."""
    raw, behind = varint(data, at, end)
    return zigzag(raw), behind


@inlined
def _integer(data, at, end, bits):
    value, behind = _varint(data, at, end)
    if bits == 32 and not -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return value, np.int64(-1)
    return value, behind


@inlined
def _below(high, low, other_high, other_low):
    """Whether one number of 128 bits is smaller than another."""
    # Flipped in their highest bit, lower halves compare as if they had no sign.
    flip = np.int64(-0x8000_0000_0000_0000)
    return high < other_high or (high == other_high and (low ^ flip) < (other_low ^ flip))


@inlined
def _decimal(data, at, size, limits, table, slots, slot):
    """Whether these bytes are a number between the limits, which is written then."""
    if size < 1 or size > 16:
        return False
    high, low = halves(data, at, at + size)
    if not _below(high, low, table[limits], table[limits + 1]):
        return False
    if not _below(table[limits + 2], table[limits + 3], high, low):
        return False
    slots[slot] = low
    slots[slot + 1] = high
    return True


@inlined
def _number(data, at, end, steps, step, slot, slots, doubles, bits, float_of_bits):
    """A number, or a boolean: the position behind it or -1."""
    op = steps[step, OP]
    if op <= INTEGER_TO_DOUBLE:
        value, at = _integer(data, at, end, steps[step, A])
        if op == INTEGER:
            if steps[step, B] == 1:
                slots[slot] = value
                return at
            slots[slot] = value * steps[step, B]
            return at if slots[slot] // steps[step, B] == value else np.int64(-1)
        if op == INTEGER_TO_DOUBLE:
            doubles[slot] = np.float64(value)
        else:
            float_of_bits[0] = np.float32(value)
            slots[slot] = bits[0]
        return at
    if op == BOOLEAN:
        if at >= end or data[at] > 1:
            return np.int64(-1)
        slots[slot] = data[at]
        return at + 1
    size = np.int64(8) if op == DOUBLE else np.int64(4)
    if end - at < size:
        return np.int64(-1)
    if op == DOUBLE:
        slots[slot] = host_i64(data, at)
    elif op == FLOAT:
        slots[slot] = host_i32(data, at)
    else:
        bits[0] = host_i32(data, at)
        doubles[slot] = np.float64(float_of_bits[0])
    return at + size


@inlined
def _value(data, at, end, steps, step, place, table, flags, slots, doubles, bits, float_of_bits):
    """One of the steps that fill a place: the position behind the value or -1."""
    op = steps[step, OP]
    flags[steps[step, FLAG_AT] + place] = 1
    if op == PRESENT:
        return at
    if op <= BOOLEAN:
        slot = steps[step, SLOT_AT] + place
        return _number(data, at, end, steps, step, slot, slots, doubles, bits, float_of_bits)
    if op == SYMBOL:
        value, at = _varint(data, at, end)
        if at < 0 or not 0 <= value < steps[step, A] or table[steps[step, B] + value] < 0:
            return np.int64(-1)
        slots[steps[step, SLOT_AT] + place] = table[steps[step, B] + value]
        return at
    size = steps[step, A]
    if op <= BYTES or size < 0:
        size, at = _varint(data, at, end)
    if at < 0 or not 0 <= size <= end - at:
        return np.int64(-1)
    if op == DECIMAL:
        slot = steps[step, SLOT_AT] + 2 * place
        return (
            at + size
            if _decimal(data, at, size, steps[step, B], table, slots, slot)
            else np.int64(-1)
        )
    if op == TEXT and not is_utf8(data, at, at + size):
        return np.int64(-1)
    slots[steps[step, SLOT_AT] + place] = (at << 32) | size
    return at + size


@inlined
def _skipped(data, at, end, steps, step):
    op, size = steps[step, OP], steps[step, A]
    if op == SKIP_BOOLEAN:
        return at + 1 if at < end and data[at] <= 1 else np.int64(-1)
    if op != SKIP_FIXED:
        size, at = _integer(data, at, end, size)
        if op == SKIP_VARINT:
            limit = steps[step, B]
            return at if limit == 0 or 0 <= size < limit else np.int64(-1)
    if at < 0 or not 0 <= size <= end - at:
        return np.int64(-1)
    return at + size


@inlined
def _block(data, at, end, least):
    """The head of a block: (elements, where it ends or -1, the position behind or -1)."""
    count, at = _varint(data, at, end)
    until = np.int64(-1)
    if count < 0 and at >= 0:
        size, at = _varint(data, at, end)
        count = -count
        if at < 0 or count < 0 or not 0 <= size <= end - at:
            return count, until, np.int64(-1)
        until = at + size
    # Elements without bytes may be as many as anyone says.
    if at >= 0 and count > 0 and (least == 0 or count > (end - at) // least):
        return count, until, np.int64(-1)
    return count, until, at


@inlined
def _closed(data, steps, step, total, counts, flags, slots):
    """Whether the list or map of so many elements is read; else its keys have to be looked at."""
    place = counts[steps[step, SCOPE]]
    flags[steps[step, FLAG_AT] + place] = 1
    slots[steps[step, SLOT_AT] + place] = total
    if steps[step, A] < 0:
        return True
    last = steps[step, A] + counts[steps[step, C]]
    return not keys_may_be_twice(data, slots, last - total, last, True)


@inlined
def _row(data, at, end, steps, table, room, counts, flags, slots, doubles, bits, float_of_bits,
         stack):  # fmt: skip
    """FAST or SLOW; or, of a scope that has too little room, 2 and its number."""
    after, depth = np.int64(0), np.int64(0)
    while True:
        step = after
        after = step + 1
        op = steps[step, OP]
        if op <= PRESENT:
            place = counts[steps[step, SCOPE]]
            at = _value(data, at, end, steps, step, place, table, flags, slots, doubles, bits,
                        float_of_bits)  # fmt: skip
            if at < 0:
                return SLOW
        elif op <= SKIP_FIXED:
            at = _skipped(data, at, end, steps, step)
            if at < 0:
                return SLOW
        elif op == JUMP:
            after = steps[step, A]
        elif op == BRANCH:
            branch, at = _varint(data, at, end)
            if at < 0 or not 0 <= branch < steps[step, A] or table[steps[step, B] + branch] < 0:
                return SLOW
            after = table[steps[step, B] + branch]
        elif op <= NEXT:
            if op == LOOP:
                if depth >= DEPTH_MAX:
                    return SLOW
                stack[depth, TOTAL] = 0
                depth += 1
            else:
                stack[depth - 1, LEFT] -= 1
                if steps[step, C] >= 0:
                    counts[steps[step, C]] += 1
                if stack[depth - 1, LEFT] > 0:
                    after = steps[step, A]
                    continue
                if stack[depth - 1, UNTIL] >= 0 and stack[depth - 1, UNTIL] != at:
                    return SLOW
            left, until, at = _block(data, at, end, steps[step, B])
            if at < 0:
                return SLOW
            if left > 0:
                if steps[step, C] >= 0 and left > room[steps[step, C]] - counts[steps[step, C]]:
                    return 2 + steps[step, C]
                stack[depth - 1, LEFT] = left
                stack[depth - 1, TOTAL] += left
                stack[depth - 1, UNTIL] = until
                after = steps[step, A] if op == NEXT else after
            else:
                depth -= 1
                after = steps[step, A] if op == LOOP else after
        elif op == CLOSE:
            if not _closed(data, steps, step, stack[depth, TOTAL], counts, flags, slots):
                return SLOW
        elif op == CALL:
            if depth >= DEPTH_MAX:
                return SLOW
            stack[depth, LEFT] = after
            depth += 1
            after = steps[step, A]
        elif op == RETURN:
            depth -= 1
            after = stack[depth, LEFT]
        else:
            return FAST if op == END and at == end else SLOW


@compiled_when_called(
    types.int64(
        _READ_ONLY, _I32_READ, _I32_READ, types.boolean[::1], _STEPS, _I64, _STEPS, _I64, _I64,
        types.uint8[::1], _I64, types.float64[::1], types.int32[::1], types.float32[::1],
        types.uint8[::1], _I64, types.int64[:, ::1],
    ),
    allocates=False,
)  # fmt: skip
def read_rows(data, begins, ends, present, steps, table, nodes, room, counts, flags, slots,
              doubles, bits, float_of_bits, status, before, stack):  # fmt: skip
    """Row r is `data[begins[r]:ends[r]]`: fill its cells, or say that it is SLOW.

    The number of a scope that has too little room, or -1. `doubles` is `slots`, and
    `float_of_bits` is `bits`, as numbers of another kind."""
    for row in range(len(present)):
        counts[0] = row
        if not present[row]:
            continue
        for scope in range(1, len(counts)):
            before[scope] = counts[scope]
        found = _row(data, np.int64(begins[row]), np.int64(ends[row]), steps, table, room,
                     counts, flags, slots, doubles, bits, float_of_bits, stack)  # fmt: skip
        if found >= 2:
            return found - 2
        status[row] = found
        if found == SLOW:
            take_back(nodes, row, before, counts, room, flags, slots)
    counts[0] = len(present)
    return -1
