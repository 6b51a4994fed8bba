"""The compiled passes that copy texts and bytes out of a batch of payloads, and read what bytes are
written as."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called
from keyrange.wire.kernel_helpers import copy_bytes, halves

# What a character of Base64 stands for; -1 where it is none.
_SIX_BITS = np.full(256, -1, np.int64)
_SIX_BITS[list((ascii_uppercase + ascii_lowercase + digits + "+/").encode())] = range(64)
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


@compiled_when_called(
    types.void(
        _READ_ONLY, types.int32[::1], types.int32[::1], types.boolean[::1], types.int32[::1],
        types.uint8[::1], types.boolean[::1],
    ),
    allocates=False,
)  # fmt: skip
def decode_base64(data, starts, sizes, taken, ends, target, bad):
    """The bytes of the texts taken, one after the other, each of which takes three quarters of its
    text at most. What is `bad` has other characters, or lacks some at the end."""
    to = 0
    ends[0] = 0
    for place in range(len(taken)):
        at, end = starts[place], starts[place] + sizes[place]
        if taken[place] and sizes[place] % 4 != 0:
            bad[place] = True
        elif taken[place]:
            padding = 0
            if end > at and data[end - 1] == 61:
                padding = 2 if data[end - 2] == 61 else 1
            last = end - 4 if padding else end
            while at < end:
                first, second = _SIX_BITS[data[at]], _SIX_BITS[data[at + 1]]
                third, fourth = _SIX_BITS[data[at + 2]], _SIX_BITS[data[at + 3]]
                if at == last:
                    third = 0 if padding == 2 else third
                    fourth = 0
                if first | second | third | fourth < 0:
                    bad[place] = True
                    break
                bits = first << 18 | second << 12 | third << 6 | fourth
                target[to] = bits >> 16
                to += 1
                if at != last or padding < 2:
                    target[to] = (bits >> 8) & 255
                    to += 1
                if at != last:
                    target[to] = bits & 255
                    to += 1
                at += 4
        ends[place + 1] = to


@compiled_when_called(
    types.void(
        types.uint8[::1], types.int32[::1], types.boolean[::1], types.int64[:, ::1],
        types.boolean[::1],
    ),
    allocates=False,
)  # fmt: skip
def read_unscaled(data, ends, taken, numbers, bad):
    """Numbers of two's complement, the highest byte first: the lower half of each, and the upper
    one. What is `bad` has no byte, or more than these hold."""
    for place in range(len(taken)):
        start, end = ends[place], ends[place + 1]
        if taken[place] and not 1 <= end - start <= 16:
            bad[place] = True
        elif taken[place]:
            numbers[place, 1], numbers[place, 0] = halves(data, start, end)
