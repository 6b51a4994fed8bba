"""Compress the records of one batch with Kafka's codecs, framed as Kafka's Java producer frames
them: gzip, snappy as a xerial stream, lz4 in independent blocks, zstd."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

import cramjam

from keyrange.wire import lz4_frames

# Compress a source at a level; who has no levels is given one all the same.
Compress = Callable[[memoryview, int], bytes | memoryview]

# The magic, then the version of the format and the oldest one that can read it.
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024


def _snappy(source: memoryview, _: int) -> bytes:
    parts: list[bytes | memoryview] = [_XERIAL_HEADER]
    for at in range(0, len(source), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(source[at : at + _XERIAL_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _zstd(source: memoryview, level: int) -> memoryview:
    return memoryview(cramjam.zstd.compress(source, level=level))


# By the names of `compression.type`: the codec's number in a batch, its code, and the level that
# Kafka's producer has by default.
CODECS: Final[dict[str, tuple[int, Compress, int]]] = {
    "gzip": (1, partial(gzip.compress, mtime=0), 6),
    "snappy": (2, _snappy, 0),
    "lz4": (3, lambda source, _: lz4_frames.encode(source), 0),
    "zstd": (4, _zstd, 3),
}
