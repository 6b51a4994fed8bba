"""What several files of kernels share: loads and copies as the machine has them, texts, numbers of
seven bits a byte.

`keyrange.wire.compiling` compiles all kernels anew where this file is another one; numba itself
looks at a kernel's own file alone.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keyrange.wire.compiling import inlined

_HIGH_BITS = -0x7F7F_7F7F_7F7F_7F80
_LOW_32 = 0xFFFF_FFFF
# Entries of a map whose keys are compared with one another.
ENTRIES_MAX = 256


@intrinsic
def copy_bytes(typing_context, target, target_at, source, source_at, count):
    """memcpy of `count` bytes: a loop is not recognised as one when the arrays may overlap."""
    integer = types.int64
    signature = types.void(target, integer, source, integer, integer)

    def generate(context, builder, sig, args):
        target_array = context.make_array(sig.args[0])(context, builder, args[0])
        source_array = context.make_array(sig.args[2])(context, builder, args[2])
        to = builder.gep(target_array.data, [args[1]])
        of = builder.gep(source_array.data, [args[3]])
        cgutils.raw_memcpy(builder, to, of, args[4], ir.Constant(ir.IntType(64), 1))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def copy_from(typing_context, target, target_at, address, count):
    """memcpy of `count` bytes from an address: of memory that the caller keeps, which no array of a
    kernel's says."""
    integer = types.int64
    signature = types.void(target, integer, integer, integer)

    def generate(context, builder, sig, args):
        target_array = context.make_array(sig.args[0])(context, builder, args[0])
        to = builder.gep(target_array.data, [args[1]])
        of = builder.inttoptr(args[2], ir.IntType(8).as_pointer())
        cgutils.raw_memcpy(builder, to, of, args[3], ir.Constant(ir.IntType(64), 1))
        return context.get_dummy_value()

    return signature, generate


def _load(source, bits, big):
    """The code of a load of `bits` bits, unaligned, in the host's order or big-endian, as int64."""
    signature = types.int64(source, types.int64)

    def generate(context, builder, sig, args):
        array = context.make_array(sig.args[0])(context, builder, args[0])
        number = ir.IntType(bits)
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), number.as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        value = builder.bswap(loaded) if big else loaded
        return value if bits == 64 else builder.sext(value, ir.IntType(64))

    return signature, generate


@intrinsic
def host_i64(typing_context, source, at):
    return _load(source, 64, big=False)


@intrinsic
def host_i32(typing_context, source, at):
    return _load(source, 32, big=False)


@intrinsic
def big_i64(typing_context, source, at):
    return _load(source, 64, big=True)


@intrinsic
def big_i32(typing_context, source, at):
    return _load(source, 32, big=True)


@inlined
def varint(data, at, end):
    """(64 bits, the position behind them or -1), the lowest seven first."""
    if at < end and data[at] < 128:
        return np.int64(data[at]), at + 1
    raw, shift = np.int64(0), np.int64(0)
    while at < end and shift < 64:
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(-1)
        raw |= (byte & 127) << shift
        if byte < 128:
            return raw, at
        shift += 7
    return np.int64(0), np.int64(-1)


@inlined
def zigzag(raw):
    """The number with a sign that 64 bits are: the highest bit is one of the number."""
    return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1)


@inlined
def is_utf8(data, at, end):
    while end - at >= 8 and host_i64(data, at) & _HIGH_BITS == 0:
        at += 8
    while at < end:
        lead = data[at]
        if lead < 0x80:
            at += 1
            continue
        low, top = np.uint8(0x80), np.uint8(0xBF)
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = np.uint8(0xA0)
            elif lead == 0xED:
                top = np.uint8(0x9F)
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = np.uint8(0x90)
            elif lead == 0xF4:
                top = np.uint8(0x8F)
        else:
            return False
        if end - at <= more or not low <= data[at + 1] <= top:
            return False
        for byte in range(at + 2, at + more + 1):
            if not 0x80 <= data[byte] <= 0xBF:
                return False
        at += more + 1
    return True


@inlined
def same_bytes(data, one, other):
    """Whether the bytes of two spans, each a position << 32 | a size, are the same."""
    size = one & _LOW_32
    if size != other & _LOW_32:
        return False
    at, behind = one >> 32, other >> 32
    same = 0
    while same < size and data[at + same] == data[behind + same]:
        same += 1
    return same == size


@inlined
def keys_may_be_twice(data, slots, first, last, are_texts):
    """Whether two of the keys of a map are the same, or are too many to say."""
    if last - first > ENTRIES_MAX:
        return True
    for one in range(first + 1, last):
        for other in range(first, one):
            if slots[one] == slots[other]:
                return True
            if are_texts and same_bytes(data, slots[one], slots[other]):
                return True
    return False


@inlined
def take_back(nodes, row, before, counts, room, flags, slots):
    """Take back the cells of a row, before which so many places of each scope were taken. `nodes`
    has of each its scope, where its flags begin, and where its counts begin or -1."""
    before[0] = row
    for node in range(len(nodes)):
        scope = nodes[node, 0]
        # The place behind the last one may be half filled, where there is one; of a list of numbers
        # in one piece there may be more, which are written again.
        until = min(counts[scope] + 1, room[scope])
        for place in range(before[scope], until):
            flags[nodes[node, 1] + place] = 0
            if nodes[node, 2] >= 0:
                slots[nodes[node, 2] + place] = 0
    for scope in range(1, len(counts)):
        counts[scope] = before[scope]


@inlined
def halves(data, start, end):
    """The upper and the lower 64 bits of a number of two's complement, the highest byte first, of
    at least one byte and at most 16."""
    high = low = np.int64(-1) if data[start] >= 128 else np.int64(0)
    for at in range(start, end):
        high = (high << 8) | ((low >> 56) & 255)
        low = (low << 8) | np.int64(data[at])
    return high, low
