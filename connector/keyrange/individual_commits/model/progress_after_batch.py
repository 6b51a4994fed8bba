"""What becomes of a partition's state when a batch has been worked on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keyrange.individual_commits.model.new_and_due_records import CellDelivery, PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    by_offset,
    cut_at,
)
from keyrange.individual_commits.model.redelivery import RedeliveryPolicy, delivered_again
from keyrange.ranges.model.key_ranges import SPACE, KeyRange
from keyrange.work.model.outcome import RecordOutcome


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """What a job said of what it was handed out of one partition; what it did not mention is done.

    `handed_back`: of these keys nothing from that offset on was worked on.
    """

    not_done: tuple[RecordOutcome, ...] = ()
    handed_back: tuple[tuple[KeyRange, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state afterwards, and the pending records that are given up: they go to the dead
    letters."""

    state: PartitionState
    dead: tuple[PendingRecord, ...]


def apply_verdict(
    state: PartitionState,
    delivery: PartitionDelivery,
    verdict: PartitionVerdict,
    policy: RedeliveryPolicy,
    now_ms: int,
) -> Outcome:
    """Take a verdict into the state that its batch was planned from.

    Raises ValueError where the verdict names what the batch has not handed out, or contradicts
    itself.
    """
    if delivery.start != state.position:
        raise ValueError(f"the batch begins at {delivery.start}, the state is at {state.position}")
    spans = [cell.span for cell in delivery.cells] + [span for span, _ in verdict.handed_back]
    pieces = cut_at(state.pieces, (b for span in spans for b in (span.from_hash, span.until_hash)))
    begins = [piece.span.from_hash for piece in pieces]
    backs = _handed_back(begins, delivery.end, verdict.handed_back)
    scanned = _scanned(pieces, backs, delivery.cells)
    redelivered = {record.offset: record for record in delivery.redelivered}
    pending: list[list[PendingRecord]] = [
        [
            record
            for record in piece.pending
            if record.offset not in redelivered or record.offset >= back
        ]
        for piece, back in zip(pieces, backs, strict=True)
    ]
    dead: list[PendingRecord] = []
    for each in _ordered(verdict.not_done):
        at = bisect_right(begins, each.key_hash) - 1
        record = redelivered.get(each.offset)
        if record is None and pieces[at].scanned <= each.offset < scanned[at]:
            record = PendingRecord(each.offset, each.key_hash, since_ms=now_ms)
        if record is None or record.key_hash != each.key_hash or each.offset >= backs[at]:
            raise ValueError(f"offset {each.offset} was not handed out by this batch as {each}")
        again = delivered_again(record, each.cause, policy, now_ms)
        given_up = each.cause.is_given_up(again.deliveries, policy.deliveries_max)
        (dead if given_up else pending[at]).append(again)
    after = PartitionState(
        state.topic_id,
        delivery.end,
        tuple(
            KeyRangeState(piece.span, until, by_offset(each))
            for piece, until, each in zip(pieces, scanned, pending, strict=True)
        ),
        state.leader_epoch,
    )
    return Outcome(after.merged(delivery.spans), tuple(dead))


def _ordered(not_done: Iterable[RecordOutcome]) -> list[RecordOutcome]:
    """By offset; what is said twice in the same way counts once."""
    ordered: list[RecordOutcome] = []
    for each in sorted(not_done, key=lambda each: each.offset):
        if not SPACE.contains(each.key_hash):
            raise ValueError(f"no key has the place of {each}")
        last = ordered[-1] if ordered else None
        if last is None or last.offset != each.offset:
            ordered.append(each)
        elif last != each:
            raise ValueError(f"two things were said of offset {each.offset}: {last} and {each}")
    return ordered


def _handed_back(
    begins: Sequence[int], end: int, handed_back: Iterable[tuple[KeyRange, int]]
) -> list[int]:
    """From which offset on nothing of each piece was worked on; the least that was said."""
    backs = [end] * len(begins)
    for span, offset in handed_back:
        for at in range(bisect_left(begins, span.from_hash), bisect_left(begins, span.until_hash)):
            backs[at] = min(backs[at], offset)
    return backs


def _scanned(
    pieces: Sequence[KeyRangeState], backs: Sequence[int], cells: Sequence[CellDelivery]
) -> list[int]:
    """How far each piece is scanned after the batch."""
    cell_begins = [cell.span.from_hash for cell in cells]
    found = []
    for piece, back in zip(pieces, backs, strict=True):
        cell = cells[bisect_right(cell_begins, piece.span.from_hash) - 1]
        found.append(max(piece.scanned, min(back, cell.until_offset)))
    return found
