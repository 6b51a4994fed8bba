"""LZ4 frames written by hand, as the LZ4 Frame Format 1.6.4 has it: for what encoders cannot write.

Rule of this file: nothing of keyrange is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import lz4.block

MAGIC = 0x184D2204
INDEPENDENT, BLOCK_CHECKSUMS, CONTENT_SIZE, CONTENT_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0 (xxHash specification 0.1.1)."""
    one, two, three, four, five = _PRIMES

    def left(word: int, bits: int) -> int:
        word %= 1 << 32
        return (word << bits | word >> 32 - bits) % (1 << 32)

    at, hashed = 0, five
    if len(data) >= 16:
        lanes = [one + two, two, 0, -one]
        while len(data) - at >= 16:
            words = struct.unpack_from("<4I", data, at)
            lanes = [
                left(lane + word * two, 13) * one for lane, word in zip(lanes, words, strict=True)
            ]
            at += 16
        hashed = sum(left(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    hashed += len(data)
    while len(data) - at >= 4:
        hashed = left(hashed + struct.unpack_from("<I", data, at)[0] * three, 17) * four
        at += 4
    for byte in data[at:]:
        hashed = left(hashed + byte * five, 11) * one
    hashed %= 1 << 32
    hashed = (hashed ^ hashed >> 15) * two % (1 << 32)
    hashed = (hashed ^ hashed >> 13) * three % (1 << 32)
    return hashed ^ hashed >> 16


@dataclass(frozen=True)
class Block:
    """A block as it stands in a frame: compressed data, or data that is stored as it is."""

    data: bytes
    stored: bool = False

    @classmethod
    def packed(cls, data: bytes) -> Block:
        return cls(lz4.block.compress(data, store_size=False))

    def encoded(self, checksum: bool) -> bytes:
        word = struct.pack("<I", len(self.data) | self.stored << 31)
        return word + self.data + (struct.pack("<I", xxh32(self.data)) if checksum else b"")


def header(flags: int = 0, size_code: int = 4, content_bytes: int | None = None) -> bytes:
    """Magic and descriptor of version 1, with a true checksum."""
    if content_bytes is not None:
        flags |= CONTENT_SIZE
    descriptor = bytes([0x40 | flags, size_code << 4])
    if content_bytes is not None:
        descriptor += struct.pack("<Q", content_bytes)
    return struct.pack("<I", MAGIC) + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF])


def frame(
    blocks: Iterable[Block],
    flags: int = INDEPENDENT,
    size_code: int = 4,
    content_bytes: int | None = None,
    content: bytes = b"",
) -> bytes:
    """A whole frame; `content` is what a content checksum is of."""
    body = b"".join(block.encoded(bool(flags & BLOCK_CHECKSUMS)) for block in blocks)
    tail = struct.pack("<I", xxh32(content)) if flags & CONTENT_CHECKSUM else b""
    return header(flags, size_code, content_bytes) + body + bytes(4) + tail
