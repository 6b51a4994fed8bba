"""What is done of a partition: a map over the hash space of keys.

Coordinates are those of a key range: below the position up to which a range was `scanned`, every
record whose key falls into it is done, its pending records aside. So a stretch of work above a
pending record is one interval, and not one for every record; gaps that compaction, control records
and aborted transactions leave are done as well.

A range that is split hands each pending record to the side that its key lies on; two neighbours
become one again when nothing tells them apart. How a batch is split does not depend on where the
map is cut.

Around it: `state_before_batch` is the state that a batch begins with, `delivery_columns` what it
delivers of that, `verdict_columns` what becomes of it when the batch has been worked on, `commit`
what is kept.
All of it is pure: the planning process and the committing one come to the same from the same rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offset_range_sets import Ranges
from keyrange.model.offsets import OffsetRange
from keyrange.work.model.outcome import Cause


@dataclass(frozen=True, slots=True, order=True)
class PendingRecord:
    """A record that was handed out and is not done.

    `deliveries` counts how often it was worked on. It is not handed out again before `due_ms`; it
    is pending since `since_ms` (both ms since 1970). `late`: its event time was before the
    watermark when it was handed out first.
    """

    offset: int
    key_hash: int
    deliveries: int = 0
    due_ms: int = 0
    since_ms: int = 0
    cause: Cause = Cause.REJECTED
    late: bool = False


@dataclass(frozen=True, slots=True)
class KeyRangeState:
    """What is done of the keys in `span`: everything below `scanned`, but for `pending records`, in
    order."""

    span: KeyRange
    scanned: int
    pending: tuple[PendingRecord, ...] = ()

    @property
    def committed(self) -> int:
        """Everything below it is done."""
        return self.pending[0].offset if self.pending else self.scanned

    def is_done(self, offset: int) -> bool:
        """Whether a record of the range's keys is."""
        return offset < self.scanned and all(record.offset != offset for record in self.pending)

    def done(self) -> Ranges:
        """The done ranges above the committed offset."""
        between = pairwise([*(record.offset for record in self.pending), self.scanned])
        return tuple(
            OffsetRange(offset + 1, until) for offset, until in between if offset + 1 < until
        )

    def cut_back(self, end: int) -> KeyRangeState:
        """The same range without what is known from offset `end` on."""
        pending = tuple(record for record in self.pending if record.offset < end)
        return KeyRangeState(self.span, min(self.scanned, end), pending)

    def cut(self, borders: Sequence[int]) -> list[KeyRangeState]:
        """Cut at those of some sorted hashes that lie inside; each pending record goes to the side
        of its key."""
        spans = cut_span(self.span, borders)
        if len(spans) == 1:
            return [self]
        inside = [span.from_hash for span in spans[1:]]
        pending: list[list[PendingRecord]] = [[] for _ in spans]
        for record in self.pending:
            pending[bisect_right(inside, record.key_hash)].append(record)
        return [
            KeyRangeState(span, self.scanned, tuple(each))
            for span, each in zip(spans, pending, strict=True)
        ]


@dataclass(frozen=True)
class PartitionState:
    """What is done of a partition. `pieces` cover the hash space once, in order.

    `position` is where the query stands in Spark's checkpoint; a piece may have been scanned less
    far, where its keys were not taken in or were handed back. `topic_id` "" stands for a broker
    that has none. `leader_epoch` is that of a leader whose log goes as far as `position`, -1 where
    it is not known: a later leader says whether its log still does (KIP-320). Raises ValueError
    where the pieces contradict themselves or one another.
    """

    topic_id: str
    position: int
    pieces: tuple[KeyRangeState, ...]
    leader_epoch: int = -1

    def __post_init__(self) -> None:
        froms = [piece.span.from_hash for piece in self.pieces]
        untils = [piece.span.until_hash for piece in self.pieces]
        if [SPACE.from_hash, *untils] != [*froms, SPACE.until_hash]:
            raise ValueError("the pieces do not cover the hash space once, in order")
        offsets: set[int] = set()
        for piece in self.pieces:
            if not 0 <= piece.scanned <= self.position:
                raise ValueError(f"{piece.span} was scanned to {piece.scanned} of {self.position}")
            _check_pending(piece)
            offsets.update(record.offset for record in piece.pending)
        if len(offsets) != sum(len(piece.pending) for piece in self.pieces):
            raise ValueError("two ranges have a pending record at one offset")

    @cached_property
    def committed(self) -> int:
        """Everything below it is done, whatever the key."""
        return min(piece.committed for piece in self.pieces)

    @cached_property
    def scanned(self) -> int:
        """How far the range that is farthest behind was handed out."""
        return min(piece.scanned for piece in self.pieces)

    @property
    def lagging(self) -> Iterator[KeyRangeState]:
        """The pieces that were handed out less far than to the position."""
        return (piece for piece in self.pieces if piece.scanned < self.position)

    @cached_property
    def pending(self) -> tuple[PendingRecord, ...]:
        """All pending records, by offset."""
        return by_offset(record for piece in self.pieces for record in piece.pending)

    def piece_of(self, key_hash: int) -> KeyRangeState:
        """The piece that a hash lies in."""
        at = bisect_right(self.pieces, key_hash, key=lambda piece: piece.span.from_hash)
        return self.pieces[at - 1]

    def refined(self, spans: Iterable[KeyRange]) -> PartitionState:
        """The same state, cut at the borders of `spans` too."""
        borders = {border for span in spans for border in (span.from_hash, span.until_hash)}
        return replace(self, pieces=tuple(cut_at(self.pieces, borders)))

    def merged(self) -> PartitionState:
        """The same state with fewer cuts: without those whose sides do not differ. Inside key
        ranges a batch leaves more of them out (`verdict_columns`)."""
        pieces: list[KeyRangeState] = []
        for piece in self.pieces:
            last = pieces[-1] if pieces else None
            if last and last.scanned == piece.scanned and not (last.pending or piece.pending):
                span = KeyRange(last.span.from_hash, piece.span.until_hash)
                pieces[-1] = KeyRangeState(span, piece.scanned)
            else:
                pieces.append(piece)
        return replace(self, pieces=tuple(pieces))

    def cut_back(self, end: int) -> PartitionState:
        """The state when the log was cut back to `end`: what comes there is new. A log that goes
        as far as `position` was cut back of nothing."""
        if end >= self.position:
            return self
        pieces = tuple(piece.cut_back(end) for piece in self.pieces)
        return replace(self, position=end, pieces=pieces).merged()


def fresh(topic_id: str, position: int, leader_epoch: int = -1) -> PartitionState:
    """A partition of which nothing from `position` on is done."""
    return PartitionState(topic_id, position, (KeyRangeState(SPACE, position),), leader_epoch)


def cut_at(pieces: Iterable[KeyRangeState], borders: Iterable[int]) -> list[KeyRangeState]:
    """The same pieces, cut at hashes too."""
    ordered = sorted(set(borders))
    return [part for piece in pieces for part in piece.cut(ordered)]


def cut_span(span: KeyRange, borders: Sequence[int]) -> list[KeyRange]:
    """A span cut at those of some sorted hashes that lie inside, in order."""
    begin = bisect_right(borders, span.from_hash)
    end = bisect_left(borders, span.until_hash)
    bounds = (span.from_hash, *borders[begin:end], span.until_hash)
    return [KeyRange(*two) for two in pairwise(bounds)]


def by_offset(pending: Iterable[PendingRecord]) -> tuple[PendingRecord, ...]:
    """Pending records in order."""
    return tuple(sorted(pending, key=lambda record: record.offset))


def _check_pending(piece: KeyRangeState) -> None:
    before = -1
    for record in piece.pending:
        if not before < record.offset < piece.scanned:
            raise ValueError(
                f"{piece.span} was scanned to {piece.scanned}, and has a pending record at "
                f"{record.offset} behind one at {before}"
            )
        if not piece.span.contains(record.key_hash):
            raise ValueError(f"{piece.span} has a pending record of a key at {record.key_hash}")
        before = record.offset
