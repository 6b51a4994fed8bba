"""What is done of a partition: a map over the hash space of keys.

Coordinates are those of a key range: below the position up to which a range was `scanned`, every
record whose key falls into it is done, its holes aside. So a stretch of work above a hole is one
interval, and not one for every record; gaps that compaction, control records and aborted
transactions leave are done as well.

A range that is split hands each hole to the side that its key lies on; two neighbours become one
again when nothing tells them apart. How a batch is split does not depend on where the map is cut.

Around it: `ranges` is the algebra of offset ranges, `intake` what a batch hands out of a state,
`verdict` what becomes of it when the batch has been worked on, `log` and `table` what is kept. All
of it is pure: the planning process and the committing one come to the same from the same rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

from keyrange.core.commits.ranges import Ranges, gaps, of_offsets
from keyrange.core.key_ranges import SPACE, KeyRange, cover_once
from keyrange.core.offsets import OffsetRange


class Cause(IntEnum):
    """Why a record that was handed out is not done."""

    REJECTED = 1
    TIMED_OUT = 2
    # An earlier record of its key is not done; it was not worked on.
    HELD_BACK = 3
    # The job said nothing of it, and is to say something of every record.
    UNMENTIONED = 4


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """A record that was handed out and is not done.

    `place` is the hash of its key. `deliveries` counts how often it was worked on. It is not handed
    out again before `due_ms`; it is a hole since `since_ms` (both ms since 1970).
    """

    offset: int
    place: int
    deliveries: int = 0
    due_ms: int = 0
    since_ms: int = 0
    cause: Cause = Cause.REJECTED


@dataclass(frozen=True, slots=True)
class Piece:
    """What is done of the keys in `span`: everything below `scanned`, but for `holes`, in order."""

    span: KeyRange
    scanned: int
    holes: tuple[Hole, ...] = ()

    @property
    def committed(self) -> int:
        """Everything below it is done."""
        return self.holes[0].offset if self.holes else self.scanned

    def done(self) -> Ranges:
        """The done ranges above the committed offset."""
        within = OffsetRange(self.committed, self.scanned)
        return gaps(of_offsets(hole.offset for hole in self.holes), within)

    def split(self, at: int) -> tuple[Piece, Piece]:
        """The hashes below `at`, and those from it on."""
        lower = KeyRange(self.span.from_hash, at)
        upper = KeyRange(at, self.span.until_hash)
        return (
            Piece(lower, self.scanned, tuple(h for h in self.holes if h.place < at)),
            Piece(upper, self.scanned, tuple(h for h in self.holes if h.place >= at)),
        )


@dataclass(frozen=True)
class PartitionState:
    """What is done of a partition. `pieces` cover the hash space once, in order.

    `position` is where the query stands in Spark's checkpoint; a piece may have been scanned less
    far, where its keys were not taken in or were handed back. `topic_id` "" stands for a broker
    that has none.
    """

    topic_id: str
    position: int
    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        if not cover_once(piece.span for piece in self.pieces):
            raise ValueError("the pieces do not cover the hash space once")
        for piece in self.pieces:
            if piece.scanned > self.position:
                raise ValueError(f"{piece.span} was scanned beyond {self.position}")
            if any(hole.offset >= piece.scanned for hole in piece.holes):
                raise ValueError(f"{piece.span} has a hole beyond {piece.scanned}")

    @cached_property
    def committed(self) -> int:
        """Everything below it is done, whatever the key."""
        return min(piece.committed for piece in self.pieces)

    @cached_property
    def scanned(self) -> int:
        """How far the range that is farthest behind was handed out."""
        return min(piece.scanned for piece in self.pieces)

    @cached_property
    def holes(self) -> tuple[Hole, ...]:
        """All holes, by offset."""
        return tuple(sorted(hole for piece in self.pieces for hole in piece.holes))

    def piece_of(self, place: int) -> Piece:
        at = bisect_right(self.pieces, place, key=lambda piece: piece.span.from_hash)
        return self.pieces[at - 1]

    def refined(self, spans: Iterable[KeyRange]) -> PartitionState:
        """The same state, cut at the borders of `spans` too."""
        borders = sorted({b for span in spans for b in (span.from_hash, span.until_hash)})
        pieces: list[Piece] = []
        for piece in self.pieces:
            rest = piece
            for border in borders:
                if rest.span.from_hash < border < rest.span.until_hash:
                    lower, rest = rest.split(border)
                    pieces.append(lower)
            pieces.append(rest)
        return replace(self, pieces=tuple(pieces))

    def merged(self) -> PartitionState:
        """The same state without the cuts whose sides do not differ."""
        pieces: list[Piece] = []
        for piece in self.pieces:
            last = pieces[-1] if pieces else None
            if last and last.scanned == piece.scanned and not last.holes and not piece.holes:
                span = KeyRange(last.span.from_hash, piece.span.until_hash)
                pieces[-1] = replace(last, span=span)
            else:
                pieces.append(piece)
        return replace(self, pieces=tuple(pieces))


def fresh(topic_id: str, position: int) -> PartitionState:
    """A partition of which nothing from `position` on is done."""
    return PartitionState(topic_id, position, (Piece(SPACE, position),))
