"""The record batches of one fetched chunk: scanned and checked, without those of aborted
transactions.

A chunk is what a broker answers for one topic-partition: whole batches of format v2, the last one
perhaps cut off. Control batches hold no records for users (kafka.apache.org/documentation,
"Message Format"). The broker sends aborted batches too, with a list of the aborted transactions. A
control batch, the marker, ends each transaction (KIP-98).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from keyrange.errors import KeyrangeError, error
from keyrange.wire import record_kernels
from keyrange.wire.fetch_response import AbortedTransaction
from keyrange.wire.record_kernels import BATCH

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Batches = np.ndarray[Any, Any]

_TABLE_ROWS = 1024
# What the marker of a transaction that was aborted says.
_ABORT = 0
_SCAN_FAULTS = {
    record_kernels.BAD_LENGTH: ("CORRUPT_BATCH", "the batch's length field is too small"),
    record_kernels.BAD_MAGIC: (
        "UNSUPPORTED_BATCH_VERSION",
        "the batch is not of message format v2",
    ),
    record_kernels.BAD_CRC: ("CORRUPT_BATCH", "the batch's CRC32C does not match its bytes"),
    record_kernels.BAD_COUNT: ("CORRUPT_BATCH", "the batch's record count cannot be true"),
    record_kernels.BAD_ORDER: ("CORRUPT_BATCH", "the batch's offsets are out of order"),
}


def scan(chunk: Bytes, topic: str, partition: int, from_offset: int) -> Batches:
    """The complete batches of a chunk that was fetched at `from_offset`, as rows of `BATCH`.

    Raises CorruptError with the offset that was expected where a batch is damaged: nothing of the
    chunk has been decoded then.
    """
    tables: list[Batches] = []
    at, expected = 0, from_offset
    while True:
        table = np.empty(_TABLE_ROWS, BATCH)
        status, rows, at = record_kernels.scan_batches(chunk, at, len(chunk), table, expected)
        if rows:
            tables.append(table[:rows])
            expected = int(table[rows - 1]["last_offset"]) + 1
        if status != record_kernels.OK:
            raise _scan_fault(status, chunk, at, topic, partition, expected)
        if rows < _TABLE_ROWS:
            break
    if len(chunk) and not tables:
        raise error(
            "CORRUPT_BATCH",
            "the broker's answer holds bytes but no whole batch",
            topic=topic,
            partition=partition,
            offset=from_offset,
            bytes=len(chunk),
        )
    if len(tables) == 1:
        return tables[0]
    return np.concatenate(tables) if tables else np.empty(0, BATCH)


def _scan_fault(
    status: int, chunk: Bytes, at: int, topic: str, partition: int, offset: int
) -> KeyrangeError:
    condition, message = _SCAN_FAULTS[status]
    if status == record_kernels.BAD_MAGIC:
        message = f"{message}, but v{int(chunk[at + 16])}"
    return error(condition, message, topic=topic, partition=partition, offset=offset)


def new_cursor() -> Any:
    """A cursor in front of the first batch: a one-row array of `record_kernels.CURSOR`."""
    cursor = np.zeros(1, record_kernels.CURSOR)
    cursor["at"] = -1
    return cursor


def leave_out_aborted(
    batches: Batches,
    chunk: Bytes,
    aborted: Sequence[AbortedTransaction],
    topic: str,
    partition: int,
) -> None:
    """Clear `keep` of the batches that belong to aborted transactions.

    `aborted` is the list of the same fetch response: it names every transaction that overlaps it.
    Raises CorruptError for a marker that cannot be read: taken for another one, it would make
    committed records disappear.
    """
    if not aborted:
        return
    waiting = [(transaction.first_offset, transaction.producer_id) for transaction in aborted]
    heapq.heapify(waiting)
    open_producers: set[int] = set()
    for row in np.flatnonzero(batches["attributes"] & record_kernels.TRANSACTIONAL):
        batch = batches[row]
        while waiting and waiting[0][0] <= batch["last_offset"]:
            open_producers.add(heapq.heappop(waiting)[1])
        producer_id = int(batch["producer_id"])
        if producer_id not in open_producers:
            continue
        if not batch["attributes"] & record_kernels.CONTROL:
            batch["keep"] = 0
        else:
            marker = _marker(chunk, batch)
            if marker is None:
                raise error(
                    "CORRUPT_BATCH",
                    "the marker at the end of a transaction cannot be read",
                    topic=topic,
                    partition=partition,
                    offset=int(batch["base_offset"]),
                )
            if marker == _ABORT:
                open_producers.discard(producer_id)


def _marker(chunk: Bytes, batch: Any) -> int | None:
    """The type of a control batch's one record: its key is version int16, type int16."""
    record = np.empty(1, record_kernels.RECORD)
    cursor = new_cursor()
    whole = np.array([batch], BATCH)
    whole["keep"] = 1
    first, after = int(batch["base_offset"]), int(batch["last_offset"]) + 1
    status = record_kernels.index_records(chunk, whole, 1, cursor, record, first, after, 1 << 62, 0)
    if status != record_kernels.OK or cursor[0]["rows"] != 1 or record[0]["key_bytes"] < 4:
        return None
    at = int(record[0]["key_at"])
    return int.from_bytes(chunk[at + 2 : at + 4].tobytes(), "big", signed=True)
