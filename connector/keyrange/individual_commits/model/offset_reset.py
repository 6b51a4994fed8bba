"""What becomes of a partition's state when somebody sets it by hand.

The position stays where Spark's checkpoint has it: what has to come again is taken in by the next
batch as what its key ranges have not scanned yet, or as pending records that are due.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offset_range_sets import Ranges, coalesce, subtract
from keyrange.model.offsets import OffsetRange
from keyrange.work.model.outcome import Cause


@dataclass(frozen=True, slots=True)
class Reset:
    """A state that was set, and what that comes to.

    `again`: offsets in which records are handed out once more that were done. `given_up`: pending
    records that are none any more, though nobody did them. `passed_over`: offsets in which records
    of some keys are never handed out.
    """

    state: PartitionState
    again: Ranges = ()
    given_up: tuple[PendingRecord, ...] = ()
    passed_over: Ranges = ()


@dataclass(frozen=True, slots=True)
class Reopened:
    """A state in which some done records are pending records again: `opened`.

    `open_already` were pending records before. `to_come` are offsets whose key range has not
    scanned them: they are handed out anyway.
    """

    state: PartitionState
    opened: tuple[PendingRecord, ...]
    open_already: tuple[int, ...] = ()
    to_come: tuple[int, ...] = ()


def rewind(state: PartitionState, to: int) -> Reset:
    """Nothing from offset `to` on is done; pending records below it stay.

    Raises ValueError where `to` is negative or beyond the position.
    """
    _check(state, to)
    pieces = tuple(piece.cut_back(to) for piece in state.pieces)
    farthest = max(piece.scanned for piece in state.pieces)
    undone = (OffsetRange(each.offset, each.offset + 1) for each in state.pending)
    again = subtract([OffsetRange(min(to, farthest), farthest)], undone)
    return Reset(replace(state, pieces=pieces).merged(), again=again)


def skip(state: PartitionState, to: int) -> Reset:
    """Everything below offset `to` counts as done; pending records from it on stay.

    Raises ValueError where `to` is negative or beyond the position.
    """
    _check(state, to)
    pieces = []
    passed_over = []
    for piece in state.pieces:
        kept = tuple(record for record in piece.pending if record.offset >= to)
        pieces.append(KeyRangeState(piece.span, max(piece.scanned, to), kept))
        passed_over.append(OffsetRange(piece.scanned, max(piece.scanned, to)))
    given_up = tuple(record for record in state.pending if record.offset < to)
    after = replace(state, pieces=tuple(pieces)).merged()
    return Reset(after, given_up=given_up, passed_over=coalesce(passed_over))


def reopen(state: PartitionState, records: Iterable[tuple[int, int]], now_ms: int) -> Reopened:
    """Make pending records of done records, each an offset and the place of its key: due at once,
    and never worked on."""
    wanted = dict(records)
    known = {record.offset for record in state.pending}
    opened: list[PendingRecord] = []
    to_come: list[int] = []
    for offset, key_hash in sorted(wanted.items()):
        if offset in known:
            continue
        if offset >= state.piece_of(key_hash).scanned:
            to_come.append(offset)
        else:
            opened.append(PendingRecord(offset, key_hash, 0, now_ms, now_ms, Cause.REJECTED))
    pieces = tuple(
        replace(piece, pending=tuple(sorted((*piece.pending, *_within(opened, piece)))))
        for piece in state.pieces
    )
    return Reopened(
        replace(state, pieces=pieces),
        tuple(opened),
        tuple(sorted(known & wanted.keys())),
        tuple(to_come),
    )


def carried(
    judged: PartitionState, before: PartitionState, after: PartitionState
) -> PartitionState:
    """What a batch came to that was planned from `before`, where somebody has set that to `after`
    meanwhile: what was set stays set.

    Keys that were rewound get nothing of the batch, its records come again. Raises ValueError where
    `after` is of another position or topic: then more than a reset lies between.
    """
    if before == after:
        return judged
    if (before.position, before.topic_id) != (after.position, after.topic_id):
        raise ValueError(f"position {before.position} became {after.position} meanwhile")
    spans = [piece.span for state in (judged, before, after) for piece in state.pieces]
    cut = (state.refined(spans).pieces for state in (judged, before, after))
    pieces = tuple(_carried(*three) for three in zip(*cut, strict=True))
    return replace(judged, pieces=pieces).merged()


def not_set_back(before: PartitionState, after: PartitionState | None) -> list[KeyRange]:
    """The key ranges that stand where they stood, or further on; none of another topic."""
    if after is None or after.topic_id != before.topic_id:
        return []
    return [was.span for was, is_now in _pairs(before, after) if is_now.scanned >= was.scanned]


def is_set_back(before: PartitionState, after: PartitionState) -> bool:
    """Whether some key range does not stand as far any more as it did."""
    return any(is_now.scanned < was.scanned for was, is_now in _pairs(before, after))


def _pairs(
    before: PartitionState, after: PartitionState
) -> Iterable[tuple[KeyRangeState, KeyRangeState]]:
    spans = [piece.span for state in (before, after) for piece in state.pieces]
    return zip(before.refined(spans).pieces, after.refined(spans).pieces, strict=True)


def _carried(judged: KeyRangeState, before: KeyRangeState, after: KeyRangeState) -> KeyRangeState:
    scanned = judged.scanned
    if after.scanned < before.scanned:
        scanned = min(scanned, after.scanned)
    elif after.scanned > before.scanned:
        scanned = max(scanned, after.scanned)
    were = {record.offset for record in before.pending}
    given_up = were - {record.offset for record in after.pending}
    pending = {
        record.offset: record
        for record in judged.pending
        if record.offset < scanned
        and record.offset not in given_up
        and not before.scanned <= record.offset < after.scanned
    }
    for record in after.pending:
        if record.offset not in were and record.offset < scanned:
            pending.setdefault(record.offset, record)
    return KeyRangeState(judged.span, scanned, tuple(pending[offset] for offset in sorted(pending)))


def _check(state: PartitionState, to: int) -> None:
    if not 0 <= to <= state.position:
        raise ValueError(f"offset {to} is not within [0, {state.position}]")


def _within(pending: Iterable[PendingRecord], piece: KeyRangeState) -> list[PendingRecord]:
    return [record for record in pending if piece.span.contains(record.key_hash)]
