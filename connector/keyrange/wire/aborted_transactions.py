"""The record batches of aborted transactions, which a reader under read_committed leaves out.

The broker sends aborted batches too, with a list of the aborted transactions. A control batch, the
marker, ends each transaction (kafka.apache.org/documentation, "Message Format"; KIP-98).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from keyrange.errors import error
from keyrange.wire import record_kernels
from keyrange.wire.fetch_response import AbortedTransaction
from keyrange.wire.record_batches import Batches, Bytes, new_cursor
from keyrange.wire.record_kernels import BATCH

_ABORT = 0


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
    status = record_kernels.index_records(
        chunk,
        whole,
        1,
        cursor,
        record,
        first,
        after,
        1 << 62,
        0,
    )
    if status != record_kernels.OK or cursor[0]["rows"] != 1 or record[0]["key_bytes"] < 4:
        return None
    at = int(record[0]["key_at"])
    return int.from_bytes(chunk[at + 2 : at + 4].tobytes(), "big", signed=True)
