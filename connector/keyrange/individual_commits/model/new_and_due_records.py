"""What a batch hands out of a partition: new records of each key range, and pending records that
are due.

Worked out by the process that plans and by the one that commits, from the same state, positions and
options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    cut_span,
)
from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange

# A clock that is corrected by less makes nothing due.
_STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Where a key range takes in less, and nothing: from half of `pending_max` records on it
    slows, and stops there; what it takes in before may bring it beyond. `lag_max`: how many
    offsets a range may be behind its partition's position; None for any."""

    pending_max: int = 10_000
    lag_max: int | None = None


@dataclass(frozen=True, slots=True)
class CellDelivery:
    """The offsets that are new to the keys in `span`; none where both are the same."""

    span: KeyRange
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class PartitionDelivery:
    """What one batch hands out of a partition.

    It moves the partition's position from `start` to `end`. `cells` cover the hash space once.
    `redelivered` are pending records that are handed out again, by offset. `held` are the places of
    keys with a pending record that is not: what comes of them has to wait. `spans` are the key
    ranges it is read in.
    """

    start: int
    end: int
    cells: tuple[CellDelivery, ...]
    redelivered: tuple[PendingRecord, ...] = ()
    held: frozenset[int] = frozenset()
    spans: tuple[KeyRange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is handed out, new or again."""
        return not self.redelivered and all(c.from_offset == c.until_offset for c in self.cells)

    @property
    def reach(self) -> OffsetRange:
        """The offsets that all of it lies in."""
        spans = [OffsetRange(cell.from_offset, cell.until_offset) for cell in self.cells]
        spans = [span for span in spans if span.size]
        spans += [OffsetRange(record.offset, record.offset + 1) for record in self.redelivered]
        return OffsetRange(
            min((span.from_offset for span in spans), default=self.end),
            max((span.until_offset for span in spans), default=self.end),
        )


PartitionDeliveries = Mapping[TopicPartition, PartitionDelivery]


def plan_delivery(
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


def next_due_ms(
    states: Mapping[TopicPartition, PartitionState], keeps_order: bool = True
) -> int | None:
    """When the first of all pending records is due; None where there is none."""
    return min(_times_due(states, keeps_order), default=None)


def due_until_ms(
    states: Mapping[TopicPartition, PartitionState],
    now_ms: int,
    wait_ms_max: int,
    keeps_order: bool = True,
) -> int:
    """Pending records whose time is not after this are due at `now_ms`, where none waits for longer
    than `wait_ms_max`.

    Times are kept over restarts, so they are of the clock that people set. A pending record that
    would have to wait for longer than any does was given its time by a clock that was ahead: it
    would wait for as long as that was, and so it is due at once, with all before it.
    """
    latest_ms = max(_times_due(states, keeps_order), default=now_ms)
    return latest_ms if latest_ms > now_ms + wait_ms_max + _STEP_MS else now_ms


def _times_due(states: Mapping[TopicPartition, PartitionState], keeps_order: bool) -> Iterator[int]:
    for state in states.values():
        for record in _first_of_keys(state).values() if keeps_order else state.pending:
            yield record.due_ms


def lags_too_far(state: PartitionState, limits: DeliveryLimits) -> bool:
    """Whether a range is so far behind that its partition takes nothing new."""
    return limits.lag_max is not None and state.position - state.scanned > limits.lag_max


def _first_of_keys(state: PartitionState) -> dict[int, PendingRecord]:
    """The first pending record of each place."""
    first: dict[int, PendingRecord] = {}
    for record in state.pending:
        first.setdefault(record.key_hash, record)
    return first


def _cells(
    state: PartitionState, spans: Sequence[KeyRange], end: int, limits: DeliveryLimits
) -> tuple[CellDelivery, ...]:
    """What is new to each range. How far a range is read is a matter of the state's pieces: a batch
    that is planned once more with other spans hands out the same."""
    begins = {span.from_hash for span in spans}
    borders = sorted(begins)
    cells: list[CellDelivery] = []
    for piece in state.pieces:
        until = _slowed(piece, end, limits)
        for span in cut_span(piece.span, borders):
            cell = CellDelivery(span, piece.scanned, until)
            if cells and span.from_hash not in begins and _same(cells[-1], cell):
                # Cells of one key range that take the same offsets are one.
                begin = cells.pop().span.from_hash
                cell = replace(cell, span=KeyRange(begin, span.until_hash))
            cells.append(cell)
    return tuple(cells)


def _same(one: CellDelivery, other: CellDelivery) -> bool:
    return (one.from_offset, one.until_offset) == (other.from_offset, other.until_offset)


def _slowed(piece: KeyRangeState, end: int, limits: DeliveryLimits) -> int:
    """How far a range is read that has so many pending records."""
    if 2 * len(piece.pending) < limits.pending_max:
        return end
    # A pending record may come of every record: never more than there is room for.
    room = max(limits.pending_max - len(piece.pending), 0)
    return min(end, piece.scanned + room)
