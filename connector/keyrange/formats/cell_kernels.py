"""The compiled pass that copies texts and bytes out of a batch of payloads."""

from __future__ import annotations

from numba import types

from keyrange.wire.compiling import compiled_when_called
from keyrange.wire.kernel_helpers import copy_bytes

_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)


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
