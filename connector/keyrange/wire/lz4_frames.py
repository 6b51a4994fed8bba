"""The LZ4 frames that Kafka's Java producer and librdkafka write: decoded block by block into the
room, and written.

The library's frame decoder hands out 8 KB at a time through buffers of its own, its block decoder
writes where it is told to. So a frame of independent blocks is taken apart here (LZ4 Frame Format
1.6.4). `decode` answers None for everything else that the format allows (linked blocks, checksums
of blocks or content, dictionaries, skippable frames, a second frame) and for everything that is
damaged: the library's frame decoder has the last word on those, and names what is wrong. `encode`
writes such frames: Java's reader takes no linked blocks, which the library's frame encoder writes.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

import cramjam

_MAGIC: Final = b"\x04\x22\x4d\x18"
_WORD: Final = struct.Struct("<I")
# Magic, flags, block size and checksum, and between the last two the size of the content.
_HEADER_BYTES: Final = 7
_CONTENT_SIZE: Final = struct.Struct("<Q")
_decode_block: Final = cramjam.lz4.decompress_block_into
_encode_block: Final = cramjam.lz4.compress_block
# Version 1 and independent blocks; the flag of a content size is the only one that may be there.
_FLAGS: Final = 0x60
_HAS_CONTENT_SIZE: Final = 0x08
_BLOCK_BYTES_MAX: Final = {code << 4: 1 << (8 + 2 * code) for code in (4, 5, 6, 7)}
# Blocks of 64 KiB, as Java's producer writes them.
_WRITTEN_BLOCK_CODE: Final = 4
_STORED: Final = 0x80000000
# More blocks are no producer's: a frame that is cut so small would cost a call for a few bytes.
_BLOCKS_MAX: Final = 4096


def decode(source: memoryview, room: memoryview) -> int | None:
    """Decode a frame of independent blocks; returns how many bytes came, None if that failed."""
    if len(source) < _HEADER_BYTES + _WORD.size:
        return None
    has_content_size = source[len(_MAGIC)] & _HAS_CONTENT_SIZE
    at = _HEADER_BYTES + (_CONTENT_SIZE.size if has_content_size else 0)
    block_bytes_max = _block_bytes_max(bytes(source[:at]))
    count = _decode_blocks(source, at, block_bytes_max, room) if block_bytes_max else None
    if has_content_size and count is not None:
        (content_bytes,) = _CONTENT_SIZE.unpack_from(source, at - 1 - _CONTENT_SIZE.size)
        return count if count == content_bytes else None
    return count


def encode(source: memoryview) -> bytes:
    """A frame of independent blocks, each stored as it is where it does not become smaller."""
    descriptor = bytes((_FLAGS, _WRITTEN_BLOCK_CODE << 4))
    parts: list[bytes | memoryview] = [
        _MAGIC,
        descriptor,
        bytes((_xxh32_of_few(descriptor) >> 8 & 0xFF,)),
    ]
    block_bytes = _BLOCK_BYTES_MAX[_WRITTEN_BLOCK_CODE << 4]
    for at in range(0, len(source), block_bytes):
        block = source[at : at + block_bytes]
        packed = memoryview(_encode_block(block, store_size=False))
        if len(packed) < len(block):
            parts += [_WORD.pack(len(packed)), packed]
        else:
            parts += [_WORD.pack(len(block) | _STORED), block]
    parts.append(_WORD.pack(0))
    return b"".join(parts)


def _decode_blocks(
    source: memoryview, at: int, block_bytes_max: int, room: memoryview
) -> int | None:
    """Decode the blocks from `at` on, up to the end mark that the source must end with."""
    last_word_at, filled = len(source) - _WORD.size, 0
    for _ in range(_BLOCKS_MAX):
        if at > last_word_at:
            return None
        (word,) = _WORD.unpack_from(source, at)
        at += _WORD.size
        if word == 0:
            return filled if at == len(source) else None
        size = word & ~_STORED
        if size > block_bytes_max:
            return None
        block = source[at : at + size]
        target = room[filled : filled + block_bytes_max]
        if word != size:
            if size > len(target) or size > len(block):
                return None
            target[:size] = block
            filled += size
        else:
            try:
                count = _decode_block(block, target, len(target))
            except cramjam.DecompressionError:
                return None
            # What cramjam cannot decode it tries once more with the first four bytes as the size:
            # what may have come that way is not taken.
            if len(block) > 4 and count <= _WORD.unpack_from(block)[0] <= len(target):
                return None
            filled += count
        at += size
    return None


@functools.lru_cache(maxsize=64)
def _block_bytes_max(header: bytes) -> int:
    """The most that a block of the frame becomes; 0 where the header is wrong or not for us."""
    descriptor, checksum = header[len(_MAGIC) : -1], header[-1]
    if not header.startswith(_MAGIC) or descriptor[0] & ~_HAS_CONTENT_SIZE != _FLAGS:
        return 0
    if checksum != _xxh32_of_few(descriptor) >> 8 & 0xFF:
        return 0
    return _BLOCK_BYTES_MAX.get(descriptor[1], 0)


def _xxh32_of_few(data: bytes) -> int:
    """XXH32 of less than 16 bytes."""
    hashed, at = 374761393 + len(data), 0
    while len(data) - at >= 4:
        hashed += _WORD.unpack_from(data, at)[0] * 3266489917
        hashed = _rotated(hashed, 17) * 668265263
        at += 4
    for byte in data[at:]:
        hashed = _rotated(hashed + byte * 374761393, 11) * 2654435761
    hashed &= 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * 2246822519 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 3266489917 & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _rotated(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF
