"""Which of the indexed records are handed over: those with certain keys, those that are to be
delivered at all, by whose key range.

Runs between the index and the gather pass, so that what is left out is never copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from keyrange.model.key_ranges import hash_of
from keyrange.model.offset_splits import Delivery
from keyrange.model.reader_ranges import Placement
from keyrange.wire import record_kernels
from keyrange.wire.compression import Bytes

Records = np.ndarray[Any, Any]
Places = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a query asks of keys, whatever the partition.

    `keys`: only records with one of them, None standing for a null key; None as a whole for all.
    `nulls_first`: a null key's place is 0 instead of the hash of its offset. `by_offset`: each
    record's place is the hash of its offset, whatever its key.
    """

    keys: tuple[bytes | None, ...] | None = field(default=None, repr=False)
    nulls_first: bool = False
    by_offset: bool = False


class SelectedRoom:
    """Arrays for what is selected of `rows` records at most; what is not needed takes no memory."""

    def __init__(self, rows: int) -> None:
        self.hashes: Places = np.empty(rows, np.int64)
        self.cells = np.empty(rows, np.int32)
        self.placed: Records = np.empty(rows, record_kernels.RECORD)
        self.placed_hashes: Places = np.empty(rows, np.int64)


class Selector:
    """Selects from index passes, for one partition's placement and what is delivered of it."""

    def __init__(
        self,
        selection: Selection,
        placement: Placement | None,
        room: SelectedRoom,
        delivery: Delivery | None = None,
    ) -> None:
        self._placement = placement
        self._nulls_first = selection.nulls_first
        self._by_offset = selection.by_offset
        self._delivered: tuple[Places, ...] | None = None
        if delivery is not None:
            cells = (delivery.uppers, delivery.froms, delivery.untils, delivery.offsets)
            self._delivered = tuple(np.array(each, np.int64) for each in cells)
        self._wanted = _wanted(selection.keys) if selection.keys is not None else None
        self._room = room
        if placement is not None:
            uppers, owners = placement.uppers, placement.owners
            self._cut = np.array(uppers, np.int64), np.array(owners, np.int32)

    def may_keep(self, first_offsets: Places, last_offsets: Places) -> Any:
        """Of which record batches something may be kept, as far as offsets tell; True for all."""
        if self._delivered is None:
            return True
        uppers, froms, untils, offsets = self._delivered
        before = np.searchsorted(offsets, first_offsets)
        until = np.searchsorted(offsets, last_offsets, side="right")
        if not len(uppers):
            return before < until
        something = froms < untils
        from_offset = int(froms[something].min())
        until_offset = int(untils[something].max())
        inside = (last_offsets >= from_offset) & (first_offsets < until_offset)
        return (before < until) | inside

    def select(
        self, region: Bytes, records: Records, cursor: Any
    ) -> tuple[Records, Places, Places]:
        """What is kept of the records that an index pass counted in `cursor`, in the order of their
        readers: the records, their places in the hash space, and where each reader's rows start,
        with the end of the last one's. The cursor counts what is kept from then on."""
        state, room = cursor[0], self._room
        hashes = room.hashes
        if self._wanted is not None or not self._by_offset:
            record_kernels.hash_keys(region, records, int(state["rows"]), self._nulls_first, hashes)
        if self._wanted is not None:
            record_kernels.keep_keys(region, records, hashes, cursor, *self._wanted)
        if self._by_offset:
            record_kernels.hash_offsets(records, int(state["rows"]), hashes)
        if self._delivered is not None:
            record_kernels.keep_delivered(records, hashes, cursor, *self._delivered)
        if self._placement is None:
            return records, hashes, np.array([0, int(state["rows"])], np.int64)
        starts = np.zeros(self._placement.readers + 1, np.int64)
        record_kernels.sort_by_reader(
            records, hashes, cursor, *self._cut, room.cells, room.placed, room.placed_hashes, starts
        )
        return room.placed, room.placed_hashes, starts


def _wanted(keys: tuple[bytes | None, ...]) -> tuple[Places, Places, Bytes, bool]:
    """Keys in the form that the compiled pass takes: hashes, ends, bytes, whether null is one."""
    found = sorted({(hash_of(key), key) for key in keys if key is not None})
    return (
        np.array([key_hash for key_hash, _ in found], np.int64),
        np.array([0, *accumulate(len(key) for _, key in found)], np.int64),
        _bytes(b"".join(key for _, key in found)),
        None in keys,
    )


def _bytes(text: bytes) -> Bytes:
    # The compiled passes take arrays that could be written to, and no empty ones.
    return np.frombuffer(bytearray(text or b"\0"), np.uint8)
