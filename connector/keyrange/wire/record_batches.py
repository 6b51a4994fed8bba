"""The record batches of one fetched chunk: scanned and checked.

A chunk is what a broker answers for one topic-partition: whole batches of format v2, the last one
perhaps cut off. Control batches hold no records for users (kafka.apache.org/documentation,
"Message Format").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keyrange.errors import KeyrangeError, error
from keyrange.wire import record_kernels
from keyrange.wire.record_kernels import BATCH

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Batches = np.ndarray[Any, Any]


_TABLE_ROWS = 1024


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
