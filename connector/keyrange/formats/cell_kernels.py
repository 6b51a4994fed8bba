"""The compiled pass that copies texts and bytes out of a batch of payloads."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keyrange.wire.compiling import compiled_when_called

_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)


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


@compiled_when_called(
    types.void(
        _READ_ONLY, types.int64[::1], types.boolean[::1], types.int32[::1], types.uint8[::1]
    ),
    allocates=False,
)  # fmt: skip
def gather_spans(data, spans, taken, ends, target):
    """The bytes of the spans taken, one after the other; `target` has the sum of their sizes."""
    to = 0
    ends[0] = 0
    for place in range(len(taken)):
        if taken[place]:
            start, size = spans[place] >> 32, spans[place] & 0xFFFF_FFFF
            copy_bytes(target, to, data, start, size)
            to += size
        ends[place + 1] = to
