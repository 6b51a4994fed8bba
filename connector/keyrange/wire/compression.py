"""Decompress the records of one batch into a scratch region, never beyond a cap.

Kafka's four codecs: gzip, snappy (framed as snappy-java's xerial stream or one raw block), lz4
(frame format) and zstd. A batch does not say how large it becomes, so the room offered grows until
it fits or the cap is reached: a hostile batch costs at most the cap.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam
import numpy as np

from keyrange.errors import KeyrangeError, error

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
# What cramjam says when the output has no room left; everything else it says is about the input.
_NO_ROOM = "failed to write whole buffer"
# How many times larger a batch becomes, before the first one has shown it.
_FIRST_RATIO = 4.0


class _NoRoom(Exception):
    """The decompressed bytes do not fit in the room that was offered."""


def _stream(decompress_into: Callable[..., int]) -> Callable[[Bytes, Bytes], int]:
    def into(source: Bytes, room: Bytes) -> int:
        try:
            return decompress_into(source, room)
        except cramjam.DecompressionError as failure:
            if _NO_ROOM in str(failure):
                raise _NoRoom from None
            raise

    return into


def _snappy(source: Bytes, room: Bytes) -> int:
    data = source.tobytes()
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, room)
    at, filled = _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        if len(data) - at < 4:
            raise cramjam.DecompressionError("xerial block header is cut off")
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0 or size > len(data) - at:
            raise cramjam.DecompressionError(f"xerial block of {size} bytes in {len(data) - at}")
        filled += _snappy_block(data[at : at + size], room[filled:])
        at += size
    return filled


def _snappy_block(block: bytes, room: Bytes) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(room):
        raise _NoRoom
    return cramjam.snappy.decompress_raw_into(block, room.data)


_DECOMPRESS: Final[dict[int, Callable[[Bytes, Bytes], int]]] = {
    1: _stream(cramjam.gzip.decompress_into),
    2: _snappy,
    3: _stream(cramjam.lz4.decompress_into),
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
        room_bytes = min(max(int(1.5 * self._ratio * len(source)), 4096), self._bytes_max)
        while True:
            room = self._room(room_bytes)
            try:
                count = decompress(source, room)
            except _NoRoom:
                if len(room) >= self._bytes_max:
                    raise self._too_large(where) from None
                room_bytes = min(4 * room_bytes, self._bytes_max)
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
        """At least `room_bytes` behind what is there, at most the cap."""
        needed = self.filled + room_bytes
        if needed > len(self.region):
            # Doubled, so that filling the region batch by batch copies each byte about once.
            grown = np.empty(max(needed, 2 * len(self.region)), np.uint8)
            grown[: self.filled] = self.region[: self.filled]
            self.region = grown
        return self.region[self.filled : self.filled + max(room_bytes, 0)]

    def _too_large(self, where: dict[str, Any]) -> KeyrangeError:
        return error(
            "BATCH_TOO_LARGE",
            f"a record batch decompresses to more than {self._bytes_max} bytes",
            **where,
        )
