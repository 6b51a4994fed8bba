"""Decompress the records of one batch into a scratch region, never beyond a cap.

Kafka's four codecs: gzip, snappy (framed as snappy-java's xerial stream or one raw block), lz4
(frame format) and zstd. Where the data says how large it becomes, that room is offered; elsewhere
the room grows until it fits or the cap is reached: a hostile batch costs at most the cap.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam
import numpy as np

from keyrange.errors import error
from keyrange.wire import lz4_frames

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
# Decompress a source into a room; returns the number of bytes that came.
Decompress = Callable[[memoryview, memoryview], int]

CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
# What cramjam says when the output has no room left; everything else it says is about the input.
_NO_ROOM = "failed to write whole buffer"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER_BYTES_MAX = 18
# A size that came over the wire is believed up to so many times the bytes that came with it.
_BELIEVED_RATIO = 64
# What is offered grows by a factor, so it must not begin at nothing.
_ROOM_BYTES_MIN = 4096
# How many times larger a batch becomes, before the first one has shown it.
_FIRST_RATIO = 4.0


class _NoRoom(Exception):
    """The decompressed bytes do not fit in the room that was offered."""


def _stream(decompress_into: Callable[..., int]) -> Decompress:
    def into(source: memoryview, room: memoryview) -> int:
        try:
            return decompress_into(source, room)
        except cramjam.DecompressionError as failure:
            if _NO_ROOM in str(failure):
                raise _NoRoom from None
            raise

    return into


_lz4_frames = _stream(cramjam.lz4.decompress_into)


def _snappy(source: memoryview, room: memoryview) -> int:
    if source[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(source, room)
    at, filled = _XERIAL_HEADER_BYTES, 0
    while at < len(source):
        if len(source) - at < 4:
            raise cramjam.DecompressionError("xerial block header is cut off")
        (size,) = struct.unpack_from(">i", source, at)
        at += 4
        if size < 0 or size > len(source) - at:
            raise cramjam.DecompressionError(f"xerial block of {size} bytes in {len(source) - at}")
        filled += _snappy_block(source[at : at + size], room[filled:])
        at += size
    return filled


def _snappy_block(block: memoryview, room: memoryview) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(room):
        raise _NoRoom
    return cramjam.snappy.decompress_raw_into(block, room)


def _zstd_content_bytes(source: memoryview) -> int | None:
    """What the header of a zstd frame says that the frame becomes, where it says so."""
    head = bytes(source[:_ZSTD_HEADER_BYTES_MAX])
    if not head.startswith(_ZSTD_MAGIC) or len(head) < 6:
        return None
    single, dictionary = head[4] >> 5 & 1, (0, 1, 2, 4)[head[4] & 3]
    size_bytes = (single, 2, 4, 8)[head[4] >> 6]
    at = 6 - single + dictionary
    size = head[at : at + size_bytes]
    if not size_bytes or len(size) < size_bytes:
        return None
    return int.from_bytes(size, "little") + (256 if size_bytes == 2 else 0)


def _lz4(source: memoryview, room: memoryview) -> int:
    count = lz4_frames.decode(source, room)
    return _lz4_frames(source, room) if count is None else count


_DECOMPRESS: Final[dict[int, Decompress]] = {
    1: _stream(cramjam.gzip.decompress_into),
    2: _snappy,
    3: _lz4,
    4: _stream(cramjam.zstd.decompress_into),
}


class Scratch:
    """A region that takes decompressed records, kept and grown from batch to batch.

    `bytes_max` caps what one batch may become; the region as a whole is as large as the caller lets
    it be filled, plus one batch.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.region: Bytes = np.empty(0, np.uint8)
        self.filled = 0
        self._ratio = _FIRST_RATIO

    def clear(self) -> None:
        """Forget what was decompressed; the memory stays for the next batch."""
        self.filled = 0

    def append(self, codec: int, source: Bytes, where: dict[str, Any]) -> int:
        """Decompress one batch's records behind what is there.

        Returns the number of bytes that came. `where` is the context of an error.
        """
        decompress = _DECOMPRESS.get(codec)
        if decompress is None:
            raise error("UNSUPPORTED_COMPRESSION", f"compression codec {codec}", **where)
        # A little more than the last batch would have needed: too little means doing it again.
        room_bytes = int(1.5 * self._ratio * len(source))
        if codec == 4 and (size := _zstd_content_bytes(source.data)) is not None:
            room_bytes = min(size, _BELIEVED_RATIO * len(source))
        room_bytes = min(max(room_bytes, _ROOM_BYTES_MIN), self._bytes_max)
        while True:
            room = self._room(room_bytes)
            try:
                count = decompress(source.data, room.data)
            except _NoRoom:
                if len(room) >= self._bytes_max:
                    raise error(
                        "BATCH_TOO_LARGE",
                        f"a record batch decompresses to more than {self._bytes_max} bytes",
                        **where,
                    ) from None
                room_bytes = min(4 * len(room), self._bytes_max)
                continue
            except cramjam.DecompressionError as failure:
                raise error(
                    "CORRUPT_BATCH",
                    f"the records cannot be decompressed with {CODECS[codec]}: {failure}",
                    **where,
                ) from None
            self.filled += count
            self._ratio = max(count / max(len(source), 1), 0.9 * self._ratio)
            return count

    def _room(self, room_bytes: int) -> Bytes:
        """All of the region behind what is there: at least `room_bytes`, at most the cap."""
        needed = self.filled + room_bytes
        if needed > len(self.region):
            # Doubled, so that filling the region batch by batch copies each byte about once.
            grown = np.empty(max(needed, 2 * len(self.region)), np.uint8)
            grown[: self.filled] = self.region[: self.filled]
            self.region = grown
        return self.region[self.filled : self.filled + self._bytes_max]
