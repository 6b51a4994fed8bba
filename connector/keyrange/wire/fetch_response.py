"""A fetch response, parsed so that the records stay where they were received.

kafka-python decodes the same message but copies the records out of the buffer; here only the fields
that the reader needs become objects, and `records_at`, `records_end` point into the buffer.
Versions 11 to 13 of the message (kafka.apache.org/protocol, "Fetch API"): 12 brought compact
lengths and tagged fields, 13 topic ids in place of names.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from keyrange.errors import error

VERSION_MIN: Final = 11
VERSION_MAX: Final = 13
_FLEXIBLE: Final = 12
_TOPIC_IDS: Final = 13

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of a fetch response: the producer, and the first offset of what it aborted."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """A broker's answer for one partition; its records are `buffer[records_at:records_end]`."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    preferred_read_replica: int
    aborted: tuple[AbortedTransaction, ...]
    records_at: int
    records_end: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    throttle_time_ms: int
    error_code: int
    partitions: tuple[FetchedPartition, ...]


class _Fields:
    """Reads fields one after the other and never past the end."""

    def __init__(self, buffer: memoryview, flexible: bool) -> None:
        self._buffer = buffer
        self._flexible = flexible
        self.at = 0

    def take(self, count: int) -> int:
        at = self.at
        if count < 0 or count > len(self._buffer) - at:
            raise error(
                "CORRUPT_FRAME", "a fetch response is shorter than its fields", at=at, bytes=count
            )
        self.at = at + count
        return at

    def i16(self) -> int:
        return int(_I16.unpack_from(self._buffer, self.take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack_from(self._buffer, self.take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack_from(self._buffer, self.take(8))[0])

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._buffer[self.take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise error("CORRUPT_FRAME", "a fetch response holds an endless number", at=self.at)

    def length(self) -> int:
        """Of an array or of bytes; -1 is a null."""
        return self.uvarint() - 1 if self._flexible else self.i32()

    def string(self) -> str:
        count = self.uvarint() - 1 if self._flexible else self.i16()
        at = self.take(count)
        return bytes(self._buffer[at : at + count]).decode("utf-8", "replace")

    def skip_tags(self) -> None:
        if self._flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())


def header_bytes(version: int) -> int:
    """How long the response header is that lies before what `parse_fetch_response` reads."""
    return 5 if version >= _FLEXIBLE else 4


def parse_fetch_response(buffer: memoryview, version: int) -> FetchResponse:
    """`buffer` begins behind the response header. Raises CorruptError (CORRUPT_FRAME).

    A topic is named by its name, or from version 13 on by its id in hexadecimal.
    """
    fields = _Fields(buffer, version >= _FLEXIBLE)
    throttle_time_ms = fields.i32()
    error_code = fields.i16()
    fields.i32()  # session id
    partitions: list[FetchedPartition] = []
    for _ in range(fields.length()):
        if version >= _TOPIC_IDS:
            at = fields.take(16)
            topic = bytes(buffer[at : at + 16]).hex()
        else:
            topic = fields.string()
        partitions.extend(_partition(fields, topic) for _ in range(fields.length()))
        fields.skip_tags()
    fields.skip_tags()
    return FetchResponse(throttle_time_ms, error_code, tuple(partitions))


def _partition(fields: _Fields, topic: str) -> FetchedPartition:
    partition = fields.i32()
    error_code = fields.i16()
    high_watermark = fields.i64()
    last_stable_offset = fields.i64()
    fields.i64()  # log start offset
    aborted = tuple(_transaction(fields) for _ in range(fields.length()))
    preferred_read_replica = fields.i32()
    count = max(fields.length(), 0)
    records_at = fields.take(count)
    fields.skip_tags()
    return FetchedPartition(
        topic,
        partition,
        error_code,
        high_watermark,
        last_stable_offset,
        preferred_read_replica,
        aborted,
        records_at,
        records_at + count,
    )


def _transaction(fields: _Fields) -> AbortedTransaction:
    producer_id, first_offset = fields.i64(), fields.i64()
    fields.skip_tags()
    return AbortedTransaction(producer_id, first_offset)
