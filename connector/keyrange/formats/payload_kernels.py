"""The compiled pass that copies payloads."""

from __future__ import annotations

from numba import types

from keyrange.wire.compiling import compiled_when_called

_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)
_I32 = types.Array(types.int32, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)


@compiled_when_called(types.void(_READ_ONLY, _I32, _FLAGS, _I32, types.uint8[::1]))
def gather(data, starts, taken, ends, target):
    """Row r of those taken, from `data[starts[r]]` on, to `target[ends[r]:ends[r + 1]]`."""
    for row in range(len(taken)):
        if taken[row]:
            shift = starts[row] - ends[row]
            for to in range(ends[row], ends[row + 1]):
                target[to] = data[shift + to]
