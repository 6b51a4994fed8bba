"""What a batch hands out of a partition: new records of each key range, and holes that are due.

Worked out by the process that plans and by the one that commits, from the same state, positions and
options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from keyrange.core.commits.state import Hole, PartitionState
from keyrange.core.key_ranges import KeyRange

# No hole is due.
NEVER_DUE = -1


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """Where a key range takes in less, and nothing: from half of `holes_max` holes on it slows, and
    stops there. `lag_max`: how many offsets a range may be behind its partition's position; None
    for any."""

    holes_max: int = 10_000
    lag_max: int | None = None


@dataclass(frozen=True, slots=True)
class CellIntake:
    """The offsets that are new to the keys in `span`; none where both are the same."""

    span: KeyRange
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class PartitionIntake:
    """What one batch hands out of a partition.

    It moves the partition's position from `start` to `end`. `cells` cover the hash space once.
    `redelivered` are holes that are handed out again, by offset. `held` are the places of keys with
    a hole that is not: what comes of them has to wait.
    """

    start: int
    end: int
    cells: tuple[CellIntake, ...]
    redelivered: tuple[Hole, ...] = ()
    held: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not self.redelivered and all(c.from_offset == c.until_offset for c in self.cells)


def plan_intake(
    state: PartitionState,
    spans: Sequence[KeyRange],
    end: int,
    due_ms: int,
    limits: IntakeLimits,
    keeps_order: bool = True,
) -> PartitionIntake:
    """What a batch up to `end` hands out of a partition that is read in the key ranges `spans`.

    Holes are handed out again whose time came until `due_ms`. With `keeps_order` all holes of a key
    go together, when the first of them is due.
    """
    refined = state.refined(spans)
    counts = _holes_per_span(spans, state)
    cells: list[CellIntake] = []
    at = 0
    for piece in refined.pieces:
        while at < len(spans) - 1 and piece.span.from_hash >= spans[at].until_hash:
            at += 1
        # A range that has nothing yet of what earlier batches passed by catches up with it first.
        until = _slowed(piece.scanned, end, counts[at], limits)
        cells.append(CellIntake(piece.span, piece.scanned, until))
    redelivered = due_holes(state, due_ms, keeps_order)
    waiting = set(state.holes) - set(redelivered) if keeps_order else set()
    return PartitionIntake(
        state.position,
        end,
        _joined(cells, {span.from_hash for span in spans}),
        redelivered,
        frozenset(hole.place for hole in waiting),
    )


def due_holes(state: PartitionState, due_ms: int, keeps_order: bool = True) -> tuple[Hole, ...]:
    """The holes that are handed out again, by offset."""
    if not keeps_order:
        return tuple(hole for hole in state.holes if hole.due_ms <= due_ms)
    by_place: dict[int, list[Hole]] = {}
    for hole in state.holes:
        by_place.setdefault(hole.place, []).append(hole)
    return tuple(sorted(h for key in by_place.values() if key[0].due_ms <= due_ms for h in key))


def next_due_ms(states: Mapping[object, PartitionState], keeps_order: bool = True) -> int | None:
    """When the first of all holes is due; None where there is none."""
    found: list[int] = []
    for state in states.values():
        seen: set[int] = set()
        for hole in state.holes:
            if not keeps_order or hole.place not in seen:
                found.append(hole.due_ms)
                seen.add(hole.place)
    return min(found, default=None)


def lags_too_far(state: PartitionState, limits: IntakeLimits) -> bool:
    """Whether a range is so far behind that its partition takes nothing new."""
    return limits.lag_max is not None and state.position - state.scanned > limits.lag_max


def _holes_per_span(spans: Sequence[KeyRange], state: PartitionState) -> list[int]:
    counts = [0] * len(spans)
    at = 0
    for hole in sorted(state.holes, key=lambda each: each.place):
        while at < len(spans) - 1 and hole.place >= spans[at].until_hash:
            at += 1
        counts[at] += 1
    return counts


def _slowed(scanned: int, end: int, holes: int, limits: IntakeLimits) -> int:
    """How far a range is read that has so many holes."""
    soft = limits.holes_max // 2
    if holes < soft:
        return end
    room = max(limits.holes_max - holes, 0)
    # A hole may come of every record: never more than there is room for.
    return min(end, scanned + room)


def _joined(cells: Iterable[CellIntake], borders: set[int]) -> tuple[CellIntake, ...]:
    """Cells of one key range that take the same offsets are one."""
    joined: list[CellIntake] = []
    for cell in cells:
        last = joined[-1] if joined else None
        same = last and (last.from_offset, last.until_offset) == (
            cell.from_offset,
            cell.until_offset,
        )
        if last and same and cell.span.from_hash not in borders:
            span = KeyRange(last.span.from_hash, cell.span.until_hash)
            joined[-1] = CellIntake(span, cell.from_offset, cell.until_offset)
        else:
            joined.append(cell)
    return tuple(joined)
