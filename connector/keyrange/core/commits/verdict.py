"""What becomes of a partition's state when a batch has been worked on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from keyrange.core.commits.intake import CellIntake, PartitionIntake
from keyrange.core.commits.state import Cause, Hole, PartitionState, Piece
from keyrange.core.key_ranges import KeyRange

_WORKED_ON = frozenset((Cause.REJECTED, Cause.TIMED_OUT, Cause.UNMENTIONED))


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """How often a record is worked on, and how long it waits in between: `backoff_ms`, doubled with
    every delivery up to `backoff_max_ms`."""

    deliveries_max: int = 5
    backoff_ms: int = 10_000
    backoff_max_ms: int = 600_000

    def due_ms(self, deliveries: int, now_ms: int) -> int:
        doublings = min(max(deliveries - 1, 0), 60)
        return now_ms + min(self.backoff_ms << doublings, self.backoff_max_ms)


@dataclass(frozen=True, slots=True, order=True)
class NotDone:
    """A record of the batch that is not done, and why."""

    offset: int
    place: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """What a job said of what it was handed out of one partition; what it did not mention is done.

    `handed_back`: of these keys nothing from that offset on was worked on.
    """

    not_done: tuple[NotDone, ...] = ()
    handed_back: tuple[tuple[KeyRange, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """The state afterwards, and the holes that are given up: they go to the dead letters."""

    state: PartitionState
    dead: tuple[Hole, ...]


def judge(
    state: PartitionState,
    intake: PartitionIntake,
    verdict: PartitionVerdict,
    policy: RedeliveryPolicy,
    now_ms: int,
) -> Judged:
    """Take a verdict into the state that its batch was planned from.

    Raises ValueError where the verdict names what the batch has not handed out.
    """
    if intake.start != state.position:
        raise ValueError(f"the batch begins at {intake.start}, the state is at {state.position}")
    spans = [cell.span for cell in intake.cells] + [span for span, _ in verdict.handed_back]
    refined = state.refined(spans)
    said = {each.offset: each for each in verdict.not_done}
    left = set(said)
    redelivered = {hole.offset for hole in intake.redelivered}
    pieces: list[Piece] = []
    dead: list[Hole] = []
    for piece in refined.pieces:
        cell = _cell_of(intake.cells, piece.span)
        back = _handed_back(verdict.handed_back, piece.span)
        scanned = cell.until_offset if back is None else min(back, cell.until_offset)
        scanned = max(scanned, piece.scanned)
        holes: list[Hole] = []
        for hole in piece.holes:
            if hole.offset not in redelivered or (back is not None and hole.offset >= back):
                holes.append(hole)
            elif hole.offset in said:
                _again(hole, said[hole.offset].cause, policy, now_ms, holes, dead)
            left.discard(hole.offset)
        for each in verdict.not_done:
            # Of one partition an offset is one record: it has one key, and so one piece.
            if piece.span.contains(each.place) and piece.scanned <= each.offset < scanned:
                new = Hole(each.offset, each.place, since_ms=now_ms)
                _again(new, each.cause, policy, now_ms, holes, dead)
                left.discard(each.offset)
        pieces.append(Piece(piece.span, scanned, tuple(sorted(holes))))
    if left:
        raise ValueError(f"offset {min(left)} was not handed out by this batch")
    after = PartitionState(state.topic_id, intake.end, tuple(pieces))
    return Judged(after.merged(), tuple(sorted(dead)))


def _again(
    hole: Hole,
    cause: Cause,
    policy: RedeliveryPolicy,
    now_ms: int,
    holes: list[Hole],
    dead: list[Hole],
) -> None:
    """Count a delivery, and keep the hole or give it up."""
    if cause not in _WORKED_ON:
        holes.append(replace(hole, cause=cause))
        return
    deliveries = hole.deliveries + 1
    due_ms = policy.due_ms(deliveries, now_ms)
    again = replace(hole, deliveries=deliveries, due_ms=due_ms, cause=cause)
    (dead if deliveries >= policy.deliveries_max else holes).append(again)


def _cell_of(cells: Sequence[CellIntake], span: KeyRange) -> CellIntake:
    at = bisect_right(cells, span.from_hash, key=lambda cell: cell.span.from_hash)
    return cells[at - 1]


def _handed_back(handed_back: Sequence[tuple[KeyRange, int]], span: KeyRange) -> int | None:
    """From which offset on nothing of a range was worked on; the least that was said."""
    return min(
        (at for said, at in handed_back if said.from_hash <= span.from_hash < said.until_hash),
        default=None,
    )
