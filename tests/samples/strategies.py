"""Kafka logs for the tests: an encoder of message format v2, and strategies over whole logs.

Rule of this file: nothing of keyrange is used. The format is written here a second time, byte by
byte from Kafka's description ("Message Format"), with the standard library and with codecs that are
not the connector's, so that both sides cannot be wrong in the same way.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import lz4.frame
import numpy as np
import snappy
import zstandard
from hypothesis import strategies as st

TIMESTAMP_MS_MAX: Final = 9223372036854775
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC_AT: Final = 17
CRC_FROM: Final = 21

LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """What Spark is to see of a record, the constant columns aside."""

    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass(frozen=True)
class Record:
    """A record by its deltas, as it is written."""

    delta: int = 0
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Headers = ()


@dataclass(frozen=True)
class Batch:
    """A record batch. `last_delta` None is that of the last record."""

    base_offset: int = 0
    records: tuple[Record, ...] = ()
    codec: str = "none"
    flags: int = 0
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int = 1_700_000_000_000
    producer_id: int = -1
    leader_epoch: int = 0
    last_delta: int | None = None

    @property
    def last_offset(self) -> int:
        if self.last_delta is not None:
            return self.base_offset + self.last_delta
        return self.base_offset + (self.records[-1].delta if self.records else 0)

    def rows(self) -> list[Row]:
        """What is to be read of it."""
        log_append = bool(self.flags & LOG_APPEND)
        return [
            Row(
                self.base_offset + record.delta,
                1000
                * (
                    self.max_timestamp
                    if log_append
                    else self.base_timestamp + record.timestamp_delta
                ),
                int(log_append),
                record.key,
                record.value,
                list(record.headers) or None,
            )
            for record in self.records
        ]


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC32C byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """Zigzag varint of a 64-bit number."""
    left = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record) -> bytes:
    headers = b"".join(_sized(key.encode()) + _sized(value) for key, value in record.headers)
    body = (
        b"\0"
        + varint(record.timestamp_delta)
        + varint(record.delta)
        + _sized(record.key)
        + _sized(record.value)
        + varint(len(record.headers))
        + headers
    )
    return varint(len(body)) + body


def snappy_literals(data: bytes) -> bytes:
    """A raw snappy block of literals only, written by hand."""
    out, left = bytearray(), len(data)
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out.append((len(piece) - 1) << 2)
        out += piece
    return bytes(out)


def xerial(data: bytes, block_bytes: int = 100) -> bytes:
    """snappy-java's stream: a magic, two versions, then blocks with their sizes."""
    blocks = [
        snappy.compress(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)
    ]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed


COMPRESS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy": (2, snappy.compress),
    "snappy-literals": (2, snappy_literals),
    "xerial": (2, xerial),
    "lz4": (3, lz4.frame.compress),
    "zstd": (4, zstandard.ZstdCompressor().compress),
}


def encode_batch(batch: Batch) -> bytes:
    codec, compress = COMPRESS[batch.codec]
    payload = b"".join(map(encode_record, batch.records))
    return raw_batch(batch, codec, compress(payload) if codec else payload, len(batch.records))


def raw_batch(batch: Batch, codec: int, payload: bytes, count: int) -> bytes:
    """A batch around a payload as it is, with a true length and checksum."""
    head = HEADER.pack(
        batch.base_offset,
        HEADER.size - 12 + len(payload),
        batch.leader_epoch,
        2,
        0,
        batch.flags | codec,
        batch.last_offset - batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        0 if batch.producer_id >= 0 else -1,
        0 if batch.producer_id >= 0 else -1,
        count,
    )
    return sealed(head + payload)


def sealed(batch: bytes) -> bytes:
    """The batch with the checksum of what it holds now."""
    return batch[:CRC_AT] + struct.pack(">I", crc32c(batch[CRC_FROM:])) + batch[CRC_FROM:]


def marker(offset: int, producer_id: int, commit: bool) -> Batch:
    """A control batch: the end of a transaction."""
    record = Record(key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, 0))
    return Batch(offset, (record,), flags=TRANSACTIONAL | CONTROL, producer_id=producer_id)


@dataclass(frozen=True)
class Log:
    """Batches in offset order, and what the broker would say about aborted transactions."""

    batches: tuple[Batch, ...]
    aborted: tuple[tuple[int, int], ...] = ()
    aborted_batches: frozenset[int] = frozenset()

    @property
    def start(self) -> int:
        return self.batches[0].base_offset

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1

    def encode(self) -> bytes:
        return b"".join(map(encode_batch, self.batches))

    def rows(self, committed: bool = False) -> list[Row]:
        return [
            row
            for index, batch in enumerate(self.batches)
            if not batch.flags & CONTROL
            if not (committed and index in self.aborted_batches)
            for row in batch.rows()
        ]


def array(data: bytes) -> Any:
    """Bytes as the connector holds them: a writable array."""
    return np.frombuffer(bytearray(data), np.uint8)


def rows_of(batches: Iterable[Any]) -> list[Row]:
    """Arrow batches as rows; every batch is checked in full."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns = {name: batch.column(name) for name in batch.schema.names}
        stamps = columns["timestamp"].view("int64").to_pylist()
        headers = columns["headers"].to_pylist() if "headers" in columns else [None] * len(batch)
        rows += [
            Row(*row, None if tags is None else [(tag["key"], tag["value"]) for tag in tags])
            for *row, tags in zip(
                columns["offset"].to_pylist(),
                stamps,
                columns["timestampType"].to_pylist(),
                columns["key"].to_pylist(),
                columns["value"].to_pylist(),
                headers,
                strict=True,
            )
        ]
    return rows


def within(rows: Sequence[Row], from_offset: int, until_offset: int, headers: bool) -> list[Row]:
    kept = [row for row in rows if from_offset <= row.offset < until_offset]
    return kept if headers else [row._replace(headers=None) for row in kept]


_bytes = st.one_of(
    st.none(), st.binary(max_size=12), st.sampled_from([b"", b"x" * 300, bytes(range(64))])
)
_headers = st.one_of(
    st.just(()),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=6)), max_size=3).map(
        tuple
    ),
)
records = st.builds(
    Record,
    delta=st.sampled_from([0, 0, 0, 1, 60]),  # offsets missing before it, see `batch_of`
    timestamp_delta=st.sampled_from([0, 1, -5, 1000, 2**40]),
    key=_bytes,
    value=_bytes,
    headers=_headers,
)
codecs = st.sampled_from(sorted(COMPRESS))


def batch_of(offset: int, gapped: Sequence[Record], **fields: Any) -> Batch:
    """A batch whose records' `delta` so far counts the offsets missing in front of each."""
    placed, at = [], 0
    for record in gapped:
        at += record.delta
        placed.append(replace(record, delta=at))
        at += 1
    return Batch(offset, tuple(placed), **fields)


@st.composite
def batches(draw: Any, offset: int = 0, flags: int = 0, producer_id: int = -1) -> Batch:
    base_timestamp = draw(st.sampled_from([0, -1, 1_700_000_000_000, TIMESTAMP_MS_MAX - 2**41]))
    batch = batch_of(
        offset,
        draw(st.lists(records, max_size=6)),
        codec=draw(codecs),
        flags=flags | draw(st.sampled_from([0, 0, LOG_APPEND])),
        base_timestamp=base_timestamp,
        max_timestamp=draw(st.sampled_from([base_timestamp, 1_800_000_000_000])),
        producer_id=producer_id,
        leader_epoch=draw(st.sampled_from([0, 5, -1])),
    )
    beyond = draw(st.sampled_from([0, 0, 1, 30]))  # the last records were compacted away
    last_delta = batch.last_offset - offset + beyond
    # The cleaner writes a batch that it emptied without a codec.
    codec = batch.codec if batch.records else "none"
    return replace(batch, last_delta=last_delta, codec=codec)


@st.composite
def logs(draw: Any, transactions: bool = True) -> Log:
    """A log with gaps, batches without records, and transactions that overlap."""
    offset = draw(st.sampled_from([0, 3, 2**31 - 2, 2**53]))
    kinds = ["plain", "plain", "idempotent"]
    kinds += ["data", "data", "data", "commit", "abort", "abort", "ghost"] if transactions else []
    built: list[Batch] = []
    aborted: list[tuple[int, int]] = []
    left_out: set[int] = set()
    open_at: dict[int, list[int]] = {}
    for _ in range(draw(st.integers(1, 9))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 40]))
        kind, producer = draw(st.sampled_from(kinds)), draw(st.integers(1, 3))
        if kind == "plain":
            batch = draw(batches(offset))
        elif kind == "idempotent":
            batch = draw(batches(offset, 0, producer + 100))
        elif kind == "data":
            batch = draw(batches(offset, TRANSACTIONAL, producer))
            open_at.setdefault(producer, []).append(len(built))
        else:
            mine = open_at.pop(producer, [])
            if kind == "ghost" and not mine:
                # All that the transaction wrote was compacted away; its entry and marker are left.
                aborted.append((producer, offset))
                offset += 2
            elif kind != "commit" and mine:
                aborted.append((producer, built[mine[0]].base_offset))
                left_out.update(mine)
            batch = marker(offset, producer, kind == "commit")
        built.append(batch)
        offset = batch.last_offset + 1
    return Log(tuple(built), tuple(aborted), frozenset(left_out))
