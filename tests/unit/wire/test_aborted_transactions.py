"""Aborted transactions: whose batches are left out, and what the markers between them say."""

from __future__ import annotations

import pytest

from keyrange.errors import CorruptError
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.fetch_response import AbortedTransaction
from samples.strategies import (
    CONTROL,
    TRANSACTIONAL,
    Batch,
    Log,
    Record,
    array,
    encode_batch,
    encode_record,
    marker,
    raw_batch,
    rows_of,
)


def batch(offset: int = 0, count: int = 1, **fields: object) -> Batch:
    records = tuple(Record(index, value=b"%d" % (offset + index)) for index in range(count))
    return Batch(offset, records, **fields)


def transaction(offset: int, producer: int, count: int = 1) -> Batch:
    return batch(offset, count, flags=TRANSACTIONAL, producer_id=producer)


def committed(log: Log, *aborted: tuple[int, int]) -> list[int]:
    entries = [AbortedTransaction(*entry) for entry in aborted]
    chunk = scan_chunk(array(log.encode()), "t", 0, log.start, entries)
    rows = rows_of(Decoder("t", 0, DecodeSettings()).decode(chunk, log.start, log.end))
    return [row.offset for row in rows]


def test_overlapping_transactions_are_told_apart() -> None:
    log = Log(
        (
            transaction(0, 1),
            transaction(1, 2),
            batch(2),
            transaction(3, 1, 2),
            marker(5, 1, commit=False),
            transaction(6, 2),
            transaction(7, 1),
            marker(8, 2, commit=True),
            transaction(9, 2),
            marker(10, 1, commit=True),
            marker(11, 2, commit=False),
            batch(12),
        )
    )
    assert committed(log, (2, 9), (1, 0)) == [1, 2, 6, 7, 12]
    assert committed(log) == [0, 1, 2, 3, 4, 6, 7, 9, 12]


def test_a_commit_marker_does_not_end_an_aborted_transaction() -> None:
    log = Log((transaction(0, 1), marker(1, 1, commit=True), transaction(2, 1)))
    assert committed(log, (1, 0)) == []


def test_a_marker_alone_ends_a_transaction_that_was_compacted_away() -> None:
    log = Log((marker(5, 1, commit=False), transaction(6, 1), marker(7, 1, commit=True)))
    assert committed(log, (1, 2)) == [6]


def test_an_aborted_transaction_may_have_begun_before_the_chunk() -> None:
    log = Log((transaction(50, 1), marker(51, 1, commit=False), transaction(52, 1)))
    assert committed(log, (1, 3)) == [52]


def test_the_same_producer_aborts_twice() -> None:
    log = Log(
        (
            transaction(0, 1),
            marker(1, 1, commit=False),
            transaction(2, 1),
            marker(3, 1, commit=True),
            transaction(4, 1),
            marker(5, 1, commit=False),
        )
    )
    assert committed(log, (1, 0), (1, 4)) == [2]


def test_batches_without_a_transaction_stay_whatever_their_producer() -> None:
    log = Log((batch(0, producer_id=1), transaction(1, 1), marker(2, 1, commit=False)))
    assert committed(log, (1, 0)) == [0]


def test_control_batches_are_left_out_even_when_they_cannot_be_read() -> None:
    hostile = raw_batch(marker(1, 1, commit=False), 0, b"\xff" * 30, 1)
    data = encode_batch(transaction(0, 1)) + hostile + encode_batch(batch(2))
    chunk = scan_chunk(array(data), "t", 0, 0)
    rows = rows_of(Decoder("t", 0, DecodeSettings()).decode(chunk, 0, 9))
    assert [row.offset for row in rows] == [0, 2]


def test_records_of_a_control_batch_are_not_users_even_uncommitted() -> None:
    record = encode_record(Record(key=b"\0\0\0\1", value=b"secret"))
    data = raw_batch(marker(0, 1, commit=True), 0, record, 1) + encode_batch(batch(1))
    chunk = scan_chunk(array(data), "t", 0, 0)
    rows = rows_of(Decoder("t", 0, DecodeSettings()).decode(chunk, 0, 9))
    assert [row.value for row in rows] == [b"1"]


def test_an_unreadable_marker_is_refused() -> None:
    """Taken for another one, it would make the committed records behind it disappear."""
    broken = Batch(2, (Record(key=b"\x00"),), flags=TRANSACTIONAL | CONTROL, producer_id=7)
    log = Log(
        (
            Batch(0, (Record(), Record(1)), flags=TRANSACTIONAL, producer_id=7),
            broken,
            Batch(3, (Record(),), flags=TRANSACTIONAL, producer_id=7),
        )
    )
    with pytest.raises(CorruptError, match=r"marker.*topic=t, partition=0, offset=2"):
        scan_chunk(array(log.encode()), "t", 0, 0, (AbortedTransaction(7, 0),))
