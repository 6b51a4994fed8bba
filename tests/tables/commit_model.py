"""What a batch hands out of a partition and what becomes of it, worked out piece by piece: the
oracle of the columns that the driver computes.

`plan_delivery` and `apply_verdict` work out both, and fail where they differ.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from keyrange.individual_commits.model.delivery_columns import DeliveryColumns, plan_deliveries
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    by_offset,
    cut_at,
    cut_span,
)
from keyrange.individual_commits.model.state_columns import columns_of, spread
from keyrange.individual_commits.model.verdict_columns import (
    MERGED_PENDING_MAX,
    PartitionVerdict,
    StrangeVerdict,
    apply_verdicts,
    delivered_again,
)
from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.model.plan_check import Area
from keyrange.work.model.outcome import RecordOutcome

# The partitions around the one that is looked at: what is in them does not matter to it.
_PARTITION = TopicPartition("t", 1)
_AROUND = (TopicPartition("t", 0), TopicPartition("t", 2))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state afterwards, and the pending records that are given up."""

    state: PartitionState
    dead: tuple[PendingRecord, ...]


def is_empty(delivery: PartitionDelivery) -> bool:
    """Whether nothing is handed out, new or again."""
    new = any(cell.from_offset < cell.until_offset for cell in delivery.cells)
    return not (new or delivery.redelivered)


def plan_delivery(
    state: PartitionState,
    spans: Sequence[KeyRange],
    end: int,
    due_ms: int,
    limits: DeliveryLimits,
    keeps_order: bool = True,
) -> PartitionDelivery:
    """What a batch up to `end` hands out of a partition that is read in the key ranges `spans`."""
    try:
        expected = _planned(state, spans, end, due_ms, limits, keeps_order)
    except ValueError:
        with pytest.raises(ValueError, match="goes back"):
            _in_columns(state, spans, end, due_ms, limits, keeps_order)
        raise
    found = _in_columns(state, spans, end, due_ms, limits, keeps_order)
    assert dict(found) == dict.fromkeys(found, expected)
    assert found.is_empty == is_empty(expected)
    assert found.holds_keys == bool(expected.held)
    assert found.states.where(found.busy) == ([] if is_empty(expected) else list(found))
    return expected


def _in_columns(
    state: PartitionState,
    spans: Sequence[KeyRange],
    end: int,
    due_ms: int,
    limits: DeliveryLimits,
    keeps_order: bool,
) -> DeliveryColumns:
    """Of three partitions with the same state."""
    states = columns_of(dict.fromkeys((*_AROUND, _PARTITION), state))
    begins = spread([[span.from_hash for span in spans]], [0] * len(states))
    ends = np.full(len(states), end)
    return plan_deliveries(states, begins, ends, due_ms, limits, keeps_order)


def apply_verdict(
    state: PartitionState,
    delivery: PartitionDelivery,
    verdict: PartitionVerdict,
    policy: RedeliveryPolicy,
    now_ms: int,
) -> Outcome:
    """Take a verdict into the state that its batch was planned from. Raises ValueError."""
    columns = _delivery_columns(state, delivery)
    said = {_PARTITION: verdict, _AROUND[1]: verdict}
    try:
        expected = _judged(state, delivery, verdict, policy, now_ms)
    except ValueError as failure:
        if delivery.start == state.position:
            with pytest.raises(StrangeVerdict, match=re.escape(str(failure))):
                apply_verdicts(columns, said, policy, now_ms)
        raise
    found = apply_verdicts(columns, said, policy, now_ms)
    dead = {partition: tuple(records) for partition, records in found.dead.items()}
    assert dead == (dict.fromkeys(said, expected.dead) if expected.dead else {})
    silent = _judged(state, delivery, PartitionVerdict(), policy, now_ms).state
    after = {_AROUND[0]: silent, _PARTITION: expected.state, _AROUND[1]: expected.state}
    assert dict(found.states) == after
    return expected


def _delivery_columns(state: PartitionState, delivery: PartitionDelivery) -> DeliveryColumns:
    states = columns_of(dict.fromkeys((*_AROUND, _PARTITION), state))
    cells = [cell.span.from_hash for cell in delivery.cells]
    again = {record.offset for record in delivery.redelivered}
    records = [record.offset in again for piece in state.pieces for record in piece.pending]
    return DeliveryColumns(
        states,
        np.full(3, delivery.end),
        spread([[span.from_hash for span in delivery.spans]], [0] * 3),
        spread([cells], [0] * 3),
        np.array([cell.from_offset for cell in delivery.cells] * 3),
        np.array([cell.until_offset for cell in delivery.cells] * 3),
        np.array(records * 3, bool),
        keeps_order=True,
    )


def _planned(
    state: PartitionState,
    spans: Sequence[KeyRange],
    end: int,
    due_ms: int,
    limits: DeliveryLimits,
    keeps_order: bool = True,
) -> PartitionDelivery:
    """What a batch up to `end` hands out of a partition that is read in the key ranges `spans`,
    which cover the hash space once.

    Pending records are handed out again whose time came until `due_ms`. With `keeps_order` all
    pending records of a key go together, when the first of them is due. Which records are handed
    out does not depend on `spans`. Raises ValueError where `end` is before the position.
    """
    if end < state.position:
        raise ValueError(f"a batch up to {end} goes back behind {state.position}")
    redelivered = due_records(state, due_ms, keeps_order)
    again = {record.offset for record in redelivered}
    waiting = (
        record.key_hash for record in state.pending if keeps_order and record.offset not in again
    )
    return PartitionDelivery(
        state.position,
        end,
        _cells(state, spans, end, limits),
        redelivered,
        frozenset(waiting),
        tuple(spans),
    )


def due_records(
    state: PartitionState, due_ms: int, keeps_order: bool = True
) -> tuple[PendingRecord, ...]:
    """The pending records that are handed out again, by offset.

    With `keeps_order` the first pending record of a key says when. Null keys that share place 0
    with the empty key wait for one another as one key does.
    """
    if not keeps_order:
        return tuple(record for record in state.pending if record.due_ms <= due_ms)
    first = _first_of_keys(state)
    return tuple(record for record in state.pending if first[record.key_hash].due_ms <= due_ms)


def _first_of_keys(state: PartitionState) -> dict[int, PendingRecord]:
    """The first pending record of each place."""
    first: dict[int, PendingRecord] = {}
    for record in state.pending:
        first.setdefault(record.key_hash, record)
    return first


def _cells(
    state: PartitionState, spans: Sequence[KeyRange], end: int, limits: DeliveryLimits
) -> tuple[Area, ...]:
    """What is new to each range. How far a range is read is a matter of the state's pieces: a batch
    that is planned once more with other spans hands out the same."""
    begins = {span.from_hash for span in spans}
    borders = sorted(begins)
    cells: list[Area] = []
    for piece in state.pieces:
        until = _slowed(piece, end, limits)
        for span in cut_span(piece.span, borders):
            cell = Area(span, piece.scanned, until)
            if cells and span.from_hash not in begins and _same(cells[-1], cell):
                # Cells of one key range that take the same offsets are one.
                begin = cells.pop().span.from_hash
                cell = replace(cell, span=KeyRange(begin, span.until_hash))
            cells.append(cell)
    return tuple(cells)


def _same(one: Area, other: Area) -> bool:
    return (one.from_offset, one.until_offset) == (other.from_offset, other.until_offset)


def _slowed(piece: KeyRangeState, end: int, limits: DeliveryLimits) -> int:
    """How far a range is read that has so many pending records."""
    if 2 * len(piece.pending) < limits.pending_max:
        return end
    # A pending record may come of every record: never more than there is room for.
    room = max(limits.pending_max - len(piece.pending), 0)
    return min(end, piece.scanned + room)


def _judged(
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
    return Outcome(_merged(after, delivery.spans), tuple(dead))


def _merged(state: PartitionState, spans: Iterable[KeyRange]) -> PartitionState:
    """Without cuts whose sides do not differ, and without those inside one of `spans` whose sides
    were scanned equally far, where few enough records are pending."""
    borders = {span.from_hash for span in spans}
    pieces: list[KeyRangeState] = []
    for piece in state.pieces:
        most = 0 if piece.span.from_hash in borders else MERGED_PENDING_MAX
        last = pieces[-1] if pieces else None
        if last and last.scanned == piece.scanned and len(last.pending + piece.pending) <= most:
            span = KeyRange(last.span.from_hash, piece.span.until_hash)
            pending = by_offset((*last.pending, *piece.pending))
            pieces[-1] = KeyRangeState(span, piece.scanned, pending)
        else:
            pieces.append(piece)
    return replace(state, pieces=tuple(pieces))


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
    pieces: Sequence[KeyRangeState], backs: Sequence[int], cells: Sequence[Area]
) -> list[int]:
    """How far each piece is scanned after the batch."""
    cell_begins = [cell.span.from_hash for cell in cells]
    found = []
    for piece, back in zip(pieces, backs, strict=True):
        cell = cells[bisect_right(cell_begins, piece.span.from_hash) - 1]
        found.append(max(piece.scanned, min(back, cell.until_offset)))
    return found
