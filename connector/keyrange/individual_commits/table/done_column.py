"""The form in which a piece's state is stored: column `done` of the commit table.

    codec (1 byte) | body | CRC32C of both (4 bytes, little-endian)

Codec 1: the body is unsigned varints (LEB128). Codec 2: the size of such a body as a varint, then
the body compressed with zstd. The varints are, in this order:

- committed offset, scanned offset, lowest hash, highest hash (included), number of gaps, number of
  pending records;
- for each gap, in order of offset: how many offsets in a row are pending records, how many after
them are
  done. The first gap begins at the committed offset, and all end at the scanned offset, so the done
  ranges stand as gap and length above the committed offset, and say where the pending records are;
- for all pending records in order of offset, column by column: place; deliveries; due_ms and
since_ms, each
  as zigzag differences to the pending record before; cause.

Everything is stored in one way only, and every number is used: whatever differs is damage.
"""

from __future__ import annotations

from typing import Any, Final

import cramjam
import numpy as np

from keyrange.errors import error
from keyrange.individual_commits.model.partition_progress import KeyRangeState, PendingRecord
from keyrange.individual_commits.table.varints import (
    Integers,
    read_varints,
    unzigzag,
    write_varints,
    zigzag,
)
from keyrange.kafka.model.offsets import OFFSET_MAX
from keyrange.ranges.model.key_ranges import HASH_MAX, KeyRange
from keyrange.storage.stored_checksum import crc32c
from keyrange.work.model.outcome import Cause

PLAIN: Final = 1
ZSTD: Final = 2

_CRC_BYTES = 4
_HEAD = 6
_COLUMNS = 5
_DELIVERIES_MAX = 2**31 - 1
# Smaller ones have nothing to gain from zstd.
_COMPRESS_FROM_BYTES = 256
_LEVEL = 3
# 10,000 pending records of a key range are some 300 kB; a size beyond this one was never written.
_BODY_BYTES_MAX = 256 * 1024 * 1024
_CAUSES = frozenset(int(cause) for cause in Cause)

_Signed = np.ndarray[Any, np.dtype[np.int64]]


def write_piece(piece: KeyRangeState) -> bytes:
    """The blob of a piece."""
    body = write_varints(_numbers(piece))
    data = bytes((PLAIN,)) + body
    if len(body) >= _COMPRESS_FROM_BYTES:
        size = write_varints(np.array([len(body)], np.uint64))
        packed = bytes((ZSTD,)) + size + bytes(cramjam.zstd.compress(body, _LEVEL))
        data = min(data, packed, key=len)
    return data + _crc(data)


def read_piece(blob: bytes) -> KeyRangeState:
    """The piece of a blob.

    Raises COMMITS_DAMAGED where one bit of it is not as it was written, UNSUPPORTED_COMMITS for a
    codec that this version does not know.
    """
    try:
        return _piece(read_varints(_body(blob)))
    except ValueError as fault:
        raise error("COMMITS_DAMAGED", f"the done ranges of a key range: {fault}") from None


def _crc(data: bytes) -> bytes:
    return crc32c(data).to_bytes(_CRC_BYTES, "little")


def _body(blob: bytes) -> bytes:
    if len(blob) <= _CRC_BYTES:
        raise ValueError(f"{len(blob)} bytes are no state")
    data, crc = blob[:-_CRC_BYTES], blob[-_CRC_BYTES:]
    # Before the codec: a damaged one is not to be taken for one of a newer version.
    if _crc(data) != crc:
        raise ValueError("the CRC32C does not match the bytes")
    codec, body = data[0], data[1:]
    if codec == PLAIN:
        return body
    if codec != ZSTD:
        raise error("UNSUPPORTED_COMMITS", f"codec {codec} of done ranges is not known")
    at = next((at for at, byte in enumerate(body) if byte < 0x80), len(body)) + 1
    size = sum(int(each) for each in read_varints(body[:at]))
    if not 0 < size <= _BODY_BYTES_MAX:
        raise ValueError(f"a state of {size} bytes")
    room = np.empty(size, np.uint8)
    try:
        filled = cramjam.zstd.decompress_into(body[at:], room.data)
    except cramjam.DecompressionError as fault:
        raise ValueError(f"zstd: {fault}") from None
    if filled != size:
        raise ValueError(f"{filled} bytes where {size} were written")
    return room.tobytes()


def _numbers(piece: KeyRangeState) -> Integers:
    pending = piece.pending
    offsets = np.array([record.offset for record in pending], np.int64)
    lasts = (
        np.append(np.flatnonzero(np.diff(offsets) > 1), len(pending) - 1) if pending else offsets
    )
    gaps = np.diff(lasts, prepend=-1)
    # What is done behind each gap, up to the next one.
    nexts = np.append(offsets[lasts[:-1] + 1], piece.scanned) if pending else offsets
    done = nexts - offsets[lasts] - 1
    span = piece.span
    head = (piece.committed, piece.scanned, span.from_hash, span.until_hash - 1)
    return np.concatenate(
        (
            np.array([*head, len(lasts), len(pending)], np.uint64),
            np.column_stack((gaps, done)).ravel().astype(np.uint64),
            np.array([record.key_hash for record in pending], np.uint64),
            np.array([record.deliveries for record in pending], np.uint64),
            _differences([record.due_ms for record in pending]),
            _differences([record.since_ms for record in pending]),
            np.array([record.cause for record in pending], np.uint64),
        )
    )


def _differences(values: list[int]) -> Integers:
    # They may wrap around at 64 bits, and do so back when they are read.
    column = np.array([0, *values], np.int64)
    return zigzag(column[1:] - column[:-1])


def _sums(values: Integers) -> list[int]:
    return [int(each) for each in np.cumsum(unzigzag(values))]


def _piece(numbers: Integers) -> KeyRangeState:
    if len(numbers) < _HEAD:
        raise ValueError("the head is cut off")
    committed, scanned, lo, hi, gaps, pending = (int(each) for each in numbers[:_HEAD])
    if len(numbers) != _HEAD + 2 * gaps + _COLUMNS * pending:
        raise ValueError(
            f"{len(numbers)} numbers do not make {gaps} gaps and {pending} pending records"
        )
    if not committed <= scanned <= OFFSET_MAX:
        raise ValueError(f"committed up to {committed} and scanned up to {scanned}")
    if not lo <= hi <= HASH_MAX:
        raise ValueError(f"[{lo}, {hi}] is no range of hashes")
    offsets = _pending_offsets(committed, scanned, pending, numbers[_HEAD : _HEAD + 2 * gaps])
    key_hashes, deliveries, dues, sinces, causes = numbers[_HEAD + 2 * gaps :].reshape(
        _COLUMNS, pending
    )
    if (key_hashes < lo).any() or (key_hashes > hi).any():
        raise ValueError("the key of a pending record lies outside its key range")
    if (deliveries > _DELIVERIES_MAX).any():
        raise ValueError("a pending record was delivered more often than can be")
    if not _CAUSES.issuperset(causes.tolist()):
        raise ValueError("the cause of a pending record is not known")
    columns = zip(
        offsets.tolist(),
        key_hashes.tolist(),
        deliveries.tolist(),
        _sums(dues),
        _sums(sinces),
        map(Cause, causes.tolist()),
        strict=True,
    )
    return KeyRangeState(
        KeyRange(lo, hi + 1), scanned, tuple(PendingRecord(*each) for each in columns)
    )


def _pending_offsets(committed: int, scanned: int, pending: int, runs: Integers) -> _Signed:
    """The offsets of all pending records, from the gaps and what is done behind each of them."""
    gaps, done = runs[::2], runs[1::2]
    if (gaps == 0).any() or (done[:-1] == 0).any():
        raise ValueError("a gap or a done range without an offset")
    # Plain numbers do not overflow, whatever the bytes say.
    widths = [gap + length for gap, length in zip(gaps.tolist(), done.tolist(), strict=True)]
    if sum(widths) != scanned - committed or sum(gaps.tolist()) != pending:
        raise ValueError("the done ranges do not fill what was scanned")
    starts = committed + np.cumsum([0, *widths[:-1]], dtype=np.int64)
    counts = gaps.astype(np.int64)
    if not pending:
        return np.empty(0, np.int64)
    firsts = np.repeat(starts, counts)
    return firsts + np.arange(pending) - np.repeat(np.cumsum(counts) - counts, counts)
