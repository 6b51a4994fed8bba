"""What a consumer has under way of one partition: how far its key ranges were handed out, and which
records of them wait for an acknowledgement.

Coordinates are those of a key range, as in the state that is committed: records of other keys leave
no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from keyrange.consumer.stretches import Flags, Longs, Stretch
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PendingRecord,
    by_offset,
    cut_at,
)
from keyrange.model.key_ranges import KeyRange, complement, index_of
from keyrange.model.offset_range_sets import Ranges, coalesce
from keyrange.ranges.model.plan_check import Area


class PartitionWork:
    """The ranges that a consumer has of a partition. `gap_ms` is how long a record that was handed
    out may wait, 0 for ever: `now_ms` is on a clock that nobody sets. `since_ms` is what others
    read in the table, in ms since 1970. `leader_epoch` is that of the leader whose log was found to
    go as far as `position`, -1 where it is not known."""

    def __init__(
        self, pieces: Iterable[KeyRangeState], gap_ms: int, leader_epoch: int = -1
    ) -> None:
        self._pieces = sorted(pieces, key=lambda piece: piece.span)
        self._gap_ms = gap_ms
        self.leader_epoch = leader_epoch
        # What was not done when it was read from the table, and has not been handed out since.
        self._again = {record.offset: record for piece in self._pieces for record in piece.pending}
        self._scanned = [piece.scanned for piece in self._pieces]
        # Below it what was not handed out was passed over.
        self._passed = [0] * len(self._pieces)
        self._stretches: list[Stretch] = []
        # What was handed out last, until somebody has it.
        self._on_its_way: Stretch | None = None
        # How many records were acknowledged since the last commit.
        self.acknowledged = 0

    def copied(self) -> PartitionWork:
        """What is under way now, which stays so whatever becomes of this one."""
        made = copy(self)
        made._pieces, made._scanned = list(self._pieces), list(self._scanned)
        made._passed, made._again = list(self._passed), dict(self._again)
        made._stretches = [
            replace(each, waits=each.waits.copy(), news=each.news.copy())
            for each in self._stretches
        ]
        return made

    @property
    def spans(self) -> list[KeyRange]:
        return [piece.span for piece in self._pieces]

    @property
    def scanned(self) -> int:
        """How far the range that is farthest behind was handed out."""
        return min(self._scanned)

    @property
    def position(self) -> int:
        return max(self._scanned)

    @property
    def next_offset(self) -> int:
        """The least offset that can be handed out next, but for records that wait too long."""
        return min([self.scanned, *self._again])

    @property
    def done_up_to(self) -> int:
        """Below it everything of these ranges is committed."""
        return min(piece.committed for piece in self._pieces)

    @property
    def waiting(self) -> int:
        """How many records were handed out and not acknowledged."""
        return sum(int(each.waits.sum()) for each in self._stretches)

    @property
    def changed(self) -> bool:
        """Whether something is to be committed."""
        if self.acknowledged:
            return True
        moved = self._scanned != [piece.scanned for piece in self._pieces]
        # What a seek lets come again is to the table what was not handed out.
        return moved and not self.waiting and self.pieces() != self._pieces

    def pending(self) -> Ranges:
        """The ranges that were acknowledged since the last commit, with what lies between records
        of these keys, and what was committed before, taken into them."""
        return coalesce(each for stretch in self._stretches for each in stretch.ranges())

    def due(self, now_ms: int) -> list[PendingRecord]:
        """What is to be handed out again: what an earlier consumer left, and what has waited too
        long, with all that waits of the same keys, so that these come in order."""
        late = [each for each in self._stretches if each.due_ms <= now_ms and each.waits.any()]
        found = dict(self._again)
        if late:
            key_hashes = np.unique(np.concatenate([each.key_hashes[each.waits] for each in late]))
            for each in self._stretches:
                again = each.waits & np.isin(each.key_hashes, key_hashes)
                found |= {record.offset: record for record in each.pending(again, each in late)}
        return list(by_offset(found.values()))

    def delivery(
        self, again: Sequence[PendingRecord], end: int, again_only: bool = False
    ) -> PartitionDelivery:
        """What the next round hands out up to `end`: these records again, and with `again_only`
        nothing that is new. What comes side by side to who has all keys comes to others range by
        range."""
        cells = tuple(
            Area(piece.span, end if again_only else scanned, end)
            for piece, scanned in zip(self._pieces, self._scanned, strict=True)
        )
        has_all = not again_only and not complement(self.spans)
        return PartitionDelivery(self.position if has_all else end, end, cells, tuple(again))

    def hand_out(
        self,
        offsets: Longs,
        key_hashes: Longs,
        again: dict[int, PendingRecord],
        now_ms: int,
        since_ms: int,
    ) -> Flags | None:
        """Take note of rows that are handed out; which of them are still to be, None for all.

        `again` are those of them that were planned to come once more. They are on their way until
        `received`: whatever interrupts it, `take_back` lets them come again.
        """
        keep = np.ones(len(offsets), bool)
        deliveries, since = np.zeros(len(offsets), np.int64), np.full(len(offsets), since_ms)
        waited: list[PendingRecord] = []
        if again:
            for row, offset in enumerate(offsets.tolist()):
                if offset not in again:
                    continue
                record = again.pop(offset)
                keep[row] = record.offset in self._again or self._waiting_in(record) is not None
                deliveries[row], since[row] = record.deliveries, record.since_ms
                waited.append(record)
        if keep.any():
            self._on_its_way = Stretch(
                np.stack((offsets, key_hashes, deliveries, since))[:, keep],
                np.ones(int(keep.sum()), bool),
                np.zeros(int(keep.sum()), bool),
                min(self.scanned, int(offsets[keep][0])),
                now_ms + self._gap_ms if self._gap_ms else 2**63 - 1,
            )
            # First where they are now, then where they were: none is nowhere.
            self._stretches.append(self._on_its_way)
        for record in waited:
            self._take_out(record)
        return None if keep.all() else keep

    def received(self) -> None:
        """Somebody has what was handed out."""
        self._on_its_way = None

    def take_back(self) -> None:
        """What is on its way comes again, as by `hand_back`."""
        if (lost := self._on_its_way) is not None:
            self._come_again(lambda each: np.full(len(each.waits), each is lost))
            self._on_its_way = None

    def forget(self, record: PendingRecord) -> bool:
        """A record that was to come again is not in the log any more: it counts as done."""
        if self._take_out(record):
            self._pass_over(record)
            self.acknowledged += 1
            return True
        return False

    def advance(self, span: KeyRange, from_offset: int, until_offset: int) -> None:
        """Everything of a range in [from_offset, until_offset) was handed out."""
        for at, piece in enumerate(self._pieces):
            inside = (
                span.from_hash <= piece.span.from_hash and piece.span.until_hash <= span.until_hash
            )
            if inside and self._scanned[at] >= from_offset:
                self._scanned[at] = max(self._scanned[at], until_offset)

    def acknowledge(self, offsets: Longs) -> int:
        """Records, by offset, are done; returns how many of them were not before."""
        found = 0
        for each in self._stretches:
            at = each.find(offsets)
            each.waits[at] = False
            each.news[at] = True
            found += len(at)
        for offset in offsets.tolist() if self._again else ():
            if record := self._again.pop(offset, None):
                self._pass_over(record)
                found += 1
        self.acknowledged += found
        return found

    def seek(self, offset: int) -> None:
        """Go on from an offset. What waits from there on comes again at once, without one delivery
        more. Ranges that are behind it pass over what lies between, which counts as done."""
        self._come_again(lambda each: each.offsets >= offset)
        for at, scanned in enumerate(self._scanned):
            if scanned < offset:
                self._scanned[at] = self._passed[at] = offset
                self.acknowledged += 1

    def hand_back(self, offsets: Longs) -> None:
        """Nobody has received these records, which were handed out: they come again at once, before
        what is new, and without one delivery more."""
        self._come_again(lambda each: np.isin(each.offsets, offsets))

    def _come_again(self, which: Callable[[Stretch], Flags]) -> None:
        kept: list[Stretch] = []
        for each in self._stretches:
            back = each.waits & which(each)
            found = each.pending(back, worked=False)
            # What its range is not noted to have come to is new.
            self._again |= {
                r.offset: r for r in found if r.offset < self._scanned[self._piece_of(r.key_hash)]
            }
            kept += each.only(~back)
        self._stretches = kept

    def pieces(self) -> list[KeyRangeState]:
        """What is done, to be committed. What waits behind the last record that is done is left
        out: to whoever goes on from there it is new."""
        pending = {
            record.offset: record
            for each in self._stretches
            for record in each.pending(each.waits, worked=False)
        } | self._again
        ordered = by_offset(pending.values())
        return [
            self._piece(at, [record for record in ordered if piece.span.contains(record.key_hash)])
            for at, piece in enumerate(self._pieces)
        ]

    def committed(self, pieces: Iterable[KeyRangeState]) -> None:
        """`pieces` are in the table."""
        before = self._pieces
        self._pieces = list(pieces)
        assert [piece.span for piece in before] == self.spans
        self.acknowledged = 0
        # `scanned` says that the rest is done: one record that waits is not to keep its batch.
        self._stretches = [part for each in self._stretches for part in each.only(each.waits)]

    def go_on(self, before: PartitionWork) -> None:
        """Take over what was under way of keys that are in both."""
        borders = [b for span in before.spans for b in (span.from_hash, span.until_hash)]
        self._pieces = cut_at(self._pieces, borders)
        self._scanned = [piece.scanned for piece in self._pieces]
        self._passed = [0] * len(self._pieces)
        kept: list[KeyRange] = []
        for at, piece in enumerate(self._pieces):
            found = index_of(before.spans, piece.span.from_hash)
            if found is not None:
                kept.append(piece.span)
                self._scanned[at] = before._scanned[found]
                self._passed[at] = before._passed[found]
        self._again = {
            offset: record
            for own, pending in ((False, self._again), (True, before._again))
            for offset, record in pending.items()
            if (index_of(kept, record.key_hash) is not None) is own and self._has(record.key_hash)
        }
        self._stretches = [part for each in before._stretches for part in each.within(kept)]
        self.acknowledged = before.acknowledged

    def cut_back(self, end: int) -> None:
        """The log ends before what was read: what comes there is new."""
        self._pieces = [piece.cut_back(end) for piece in self._pieces]
        self._scanned = [min(scanned, end) for scanned in self._scanned]
        self._passed = [min(passed, end) for passed in self._passed]
        self._again = {offset: record for offset, record in self._again.items() if offset < end}
        below = [each.only(each.offsets < end) for each in self._stretches]
        self._stretches = [part for parts in below for part in parts]

    def _pass_over(self, record: PendingRecord) -> None:
        """A record that was to come again is done. What comes again before it is to be told from
        what is new, also where a seek has taken both back."""
        at = self._piece_of(record.key_hash)
        self._passed[at] = max(self._passed[at], record.offset + 1)

    def _piece_of(self, key_hash: int) -> int:
        at = index_of(self.spans, key_hash)
        assert at is not None
        return at

    def _has(self, key_hash: int) -> bool:
        return index_of(self.spans, key_hash) is not None

    def _piece(self, at: int, pending: list[PendingRecord]) -> KeyRangeState:
        piece, scanned = self._pieces[at], self._scanned[at]
        done = max(piece.scanned, self._passed[at])
        for each in self._stretches:
            own = ~each.waits & each.of(piece.span)
            if own.any():
                done = max(done, int(each.offsets[own][-1]) + 1)
        while pending and pending[-1].offset >= done and not pending[-1].deliveries:
            scanned = pending.pop().offset
        return KeyRangeState(piece.span, scanned, tuple(pending))

    def _waiting_in(self, record: PendingRecord) -> tuple[Stretch, Longs] | None:
        """Where a record waits that was handed out; the first of these."""
        offset = np.array([record.offset], np.int64)
        found = ((each, each.find(offset)) for each in self._stretches)
        return next((each for each in found if len(each[1])), None)

    def _take_out(self, record: PendingRecord) -> bool:
        """Whether a record still waits; it does not any more."""
        if self._again.pop(record.offset, None) is not None:
            return True
        if (found := self._waiting_in(record)) is None:
            return False
        stretch, at = found
        stretch.waits[at] = False
        return True
