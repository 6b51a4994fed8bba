"""A second decoder of message format v2, slow and strict, to compare the compiled one with.

It says what a fetched chunk is: rows, or rows up to where it is malformed, and the condition.
Decompression is left to libraries that the connector does not use.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass, field

import lz4.frame
import zstandard

from samples.strategies import CONTROL, CRC_FROM, HEADER, LOG_APPEND, TIMESTAMP_MS_MAX, Row, crc32c

OFFSET_MAX = 2**63 - 1
RECORD_BYTES_MIN = 7


class Malformed(Exception):
    """The condition that is to be reported."""


@dataclass
class Reading:
    """What came of a chunk. `condition` is empty where all of it was right."""

    rows: list[Row] = field(default_factory=list)
    condition: str = ""


class Fields:
    """Reads one record's fields, never beyond its end."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self.at >= self.end:
                break
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= 2**64 - 1
                return (value >> 1) ^ -(value & 1)
        raise Malformed("CORRUPT_BATCH")

    def sized(self, least: int) -> bytes | None:
        size = self.varint()
        if size < least or size > self.end - self.at:
            raise Malformed("CORRUPT_BATCH")
        self.at += max(size, 0)
        return None if size < 0 else self.data[self.at - size : self.at]


def read(data: bytes, from_offset: int, until_offset: int, headers: bool = True) -> Reading:
    """The rows of a chunk fetched at `from_offset`."""
    reading = Reading()
    try:
        for at, end in _batches(data, from_offset):
            _read_batch(data[at:end], from_offset, until_offset, headers, reading.rows)
    except Malformed as malformed:
        reading.condition = str(malformed)
    return reading


def _batches(data: bytes, expected: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    at = 0
    while len(data) - at >= 17:
        (size,) = struct.unpack_from(">i", data, at + 8)
        end = at + 12 + size
        if data[at + 16] != 2:
            raise Malformed("UNSUPPORTED_BATCH_VERSION")
        if end - at < HEADER.size:
            raise Malformed("CORRUPT_BATCH")
        if end > len(data):
            break
        base, _, _, _, crc, attributes, last_delta, *_, count = HEADER.unpack_from(data, at)
        if crc != crc32c(data[at + CRC_FROM : end]):
            raise Malformed("CORRUPT_BATCH")
        if last_delta < 0 or not 0 <= count <= last_delta + 1:
            raise Malformed("CORRUPT_BATCH")
        if attributes & 7 == 0 and count > (end - at - HEADER.size) // RECORD_BYTES_MIN:
            raise Malformed("CORRUPT_BATCH")
        if base < 0 or not expected <= base + last_delta < OFFSET_MAX:
            raise Malformed("CORRUPT_BATCH")
        if spans and base < expected:
            raise Malformed("CORRUPT_BATCH")
        expected = base + last_delta + 1
        spans.append((at, end))
        at = end
    if data and not spans:
        raise Malformed("CORRUPT_BATCH")
    return spans


def _read_batch(
    batch: bytes, from_offset: int, until_offset: int, headers: bool, rows: list[Row]
) -> None:
    base, _, _, _, _, attributes, last_delta, first, newest, *_, count = HEADER.unpack_from(batch)
    if attributes & CONTROL or base + last_delta < from_offset or base >= until_offset:
        return
    payload = _decompress(attributes & 7, batch[HEADER.size :])
    if count > len(payload) // RECORD_BYTES_MIN:
        raise Malformed("CORRUPT_BATCH")
    fields = Fields(payload, 0, len(payload))
    previous = -1
    for _ in range(count):
        size = fields.varint()
        if not RECORD_BYTES_MIN - 1 <= size <= len(payload) - fields.at:
            raise Malformed("CORRUPT_BATCH")
        record = Fields(payload, fields.at + 1, fields.at + size)
        fields.at += size
        stamp, delta = first + record.varint(), record.varint()
        if not previous < delta <= last_delta:
            raise Malformed("CORRUPT_BATCH")
        previous = delta
        key, value = record.sized(-1), record.sized(-1)
        count_headers = record.varint()
        if not 0 <= count_headers <= (record.end - record.at) // 2:
            raise Malformed("CORRUPT_BATCH")
        if count_headers == 0 and record.at != record.end:
            raise Malformed("CORRUPT_BATCH")
        if not from_offset <= base + delta < until_offset:
            continue
        append = bool(attributes & LOG_APPEND)
        stamp = newest if append else stamp
        if abs(stamp) > TIMESTAMP_MS_MAX:
            raise Malformed("KAFKA_MALFORMED_RECORD_TIMESTAMP")
        tags = None
        if headers:
            tags = [((record.sized(0) or b""), record.sized(-1)) for _ in range(count_headers)]
            if record.at != record.end:
                raise Malformed("CORRUPT_BATCH")
        named = [(name.decode("utf-8", "replace"), tag) for name, tag in tags or []]
        rows.append(Row(base + delta, stamp * 1000, int(append), key, value, named or None))
    if fields.at != len(payload):
        raise Malformed("CORRUPT_BATCH")


def _decompress(codec: int, payload: bytes) -> bytes:
    try:
        if codec == 0:
            return payload
        if codec == 1:
            return gzip.decompress(payload)
        if codec == 2:
            return _snappy(payload)
        if codec == 3:
            return bytes(lz4.frame.decompress(payload))
        if codec == 4:
            return zstandard.ZstdDecompressor().decompressobj().decompress(payload)
    except (
        EOFError,
        IndexError,
        OSError,
        zlib.error,
        RuntimeError,
        ValueError,
        zstandard.ZstdError,
    ):
        raise Malformed("CORRUPT_BATCH") from None
    raise Malformed("UNSUPPORTED_COMPRESSION")


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(b"\x82SNAPPY\0"):
        return snappy_block(payload)
    out, at = b"", 16
    while at < len(payload):
        if len(payload) - at < 4:
            raise ValueError("block header")
        (size,) = struct.unpack_from(">i", payload, at)
        if not 0 <= size <= len(payload) - at - 4:
            raise ValueError("block size")
        out += snappy_block(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return out


def snappy_block(block: bytes) -> bytes:
    """One raw snappy block: a length, then literals and copies (google/snappy)."""
    size = at = shift = 0
    while True:
        size |= (block[at] & 0x7F) << shift
        shift += 7
        at += 1
        if block[at - 1] < 0x80:
            break
    out = bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            count, extra = (tag >> 2) + 1, max((tag >> 2) - 59, 0)
            if extra:
                count = int.from_bytes(block[at : at + extra], "little") + 1
            at += extra + count
            out += block[at - count : at]
            if at > len(block):
                raise ValueError("literal")
            continue
        if tag & 3 == 1:
            count, extra, high = (tag >> 2 & 7) + 4, 1, tag >> 5 << 8
        else:
            count, extra, high = (tag >> 2) + 1, (tag & 3) * 2 - 2, 0
        if extra > len(block) - at:
            raise ValueError("copy")
        back = high | int.from_bytes(block[at : at + extra], "little")
        at += extra
        if not 0 < back <= len(out):
            raise ValueError("copy")
        for _ in range(count):
            out.append(out[-back])
    if len(out) != size:
        raise ValueError("length")
    return bytes(out)
