"""Decode the LZ4 frames that Kafka's Java producer and librdkafka write: blocks into the room.

The library's frame decoder hands out 8 KB at a time through buffers of its own, its block decoder
writes where it is told to. So a frame of independent blocks is taken apart here (LZ4 Frame Format
1.6.4). `parse` and `decode` answer None for everything else that the format allows (linked blocks,
checksums of blocks or content, dictionaries, skippable frames, a second frame) and for everything
that is damaged: the library's frame decoder has the last word on those, and names what is wrong.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Final

import cramjam

_MAGIC: Final = 0x184D2204
_HEAD: Final = struct.Struct("<IBB")
_WORD: Final = struct.Struct("<I")
# With the checksum of the header and the end mark.
_HEADER_BYTES_MIN: Final = _HEAD.size + 1 + _WORD.size
_CONTENT_SIZE: Final = struct.Struct("<Q")
# Version 1 and independent blocks; the flag of a content size is the only one that may be there.
_FLAGS: Final = 0x60
_HAS_CONTENT_SIZE: Final = 0x08
_BLOCK_BYTES_MAX: Final = {code << 4: 1 << (8 + 2 * code) for code in (4, 5, 6, 7)}
_STORED: Final = 0x80000000
# One byte of a block stands for at most as many: a length of 255 that goes on.
_RATIO_MAX: Final = 255
# What comes in more blocks is either larger than the cap, or cut so small that calls cost most.
_BLOCKS_MAX: Final = 4096


@dataclass(slots=True)
class Frame:
    """A frame of independent blocks: (start, end, the most that it becomes, whether it is stored).

    `bytes_max` is the most that the frame becomes, and the room that `decode` needs;
    `content_bytes` is -1 where the frame does not say how large it becomes.
    """

    blocks: list[tuple[int, int, int, bool]]
    bytes_max: int
    content_bytes: int


def parse(source: memoryview) -> Frame | None:
    """The blocks of a source that is one whole frame of independent blocks."""
    left = len(source)
    if left < _HEADER_BYTES_MIN:
        return None
    magic, flags, descriptor = _HEAD.unpack_from(source)
    block_bytes_max = _BLOCK_BYTES_MAX.get(descriptor)
    if magic != _MAGIC or flags & ~_HAS_CONTENT_SIZE != _FLAGS or block_bytes_max is None:
        return None
    at, content_bytes = _HEAD.size, -1
    if flags & _HAS_CONTENT_SIZE:
        if left < _HEADER_BYTES_MIN + _CONTENT_SIZE.size:
            return None
        (content_bytes,) = _CONTENT_SIZE.unpack_from(source, at)
        at += _CONTENT_SIZE.size
    if source[at] != _header_checksum(bytes(source[4:at])):
        return None
    return _blocks(source, at + 1, block_bytes_max, content_bytes)


def _blocks(source: memoryview, at: int, block_bytes_max: int, content_bytes: int) -> Frame | None:
    """The blocks from `at` on, where the end mark behind them is the end of the source."""
    frame = Frame([], 0, content_bytes)
    end = len(source)
    while end - at >= _WORD.size and len(frame.blocks) < _BLOCKS_MAX:
        (word,) = _WORD.unpack_from(source, at)
        at += _WORD.size
        if word == 0:
            return frame if at == end else None
        size = word & ~_STORED
        if not 0 < size <= block_bytes_max:
            return None
        most = size if word & _STORED else min(block_bytes_max, _RATIO_MAX * size)
        frame.blocks.append((at, at + size, most, word != size))
        frame.bytes_max += most
        at += size
    return None


def decode(frame: Frame, source: memoryview, room: memoryview) -> int | None:
    """Decode a frame's blocks into at least `frame.bytes_max` bytes; returns how many came."""
    filled = 0
    for at, end, most, stored in frame.blocks:
        if stored:
            room[filled : filled + most] = source[at:end]
            filled += most
            continue
        try:
            count = cramjam.lz4.decompress_block_into(
                source[at:end], room[filled : filled + most], most
            )
        except cramjam.DecompressionError:
            return None
        # What cramjam cannot decode it tries once more with the first four bytes as the size: what
        # may have come that way is not taken. (Behind each block the next one's size follows.)
        if count <= _WORD.unpack_from(source, at)[0] <= most:
            return None
        filled += count
    return filled if frame.content_bytes in (-1, filled) else None


@functools.lru_cache(maxsize=64)
def _header_checksum(descriptor: bytes) -> int:
    """The second byte of a descriptor's XXH32, as the header ends with: of 2 or 10 bytes."""
    hashed, at = 374761393 + len(descriptor), 0
    while len(descriptor) - at >= 4:
        hashed += _WORD.unpack_from(descriptor, at)[0] * 3266489917
        hashed = _rotated(hashed, 17) * 668265263
        at += 4
    for byte in descriptor[at:]:
        hashed = _rotated(hashed + byte * 374761393, 11) * 2654435761
    hashed &= 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * 2246822519 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 3266489917 & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) >> 8 & 0xFF


def _rotated(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF
