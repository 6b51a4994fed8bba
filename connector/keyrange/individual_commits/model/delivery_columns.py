"""What a batch hands out of all partitions of a query, as columns: new records of each key range,
and pending records that are due.

The process that plans and the one that commits work it out from the same states, positions and
options. It is a mapping to `PartitionDelivery` too, which is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    PartitionState,
    PendingRecord,
    by_offset,
)
from keyrange.individual_commits.model.state_columns import (
    KEY_HASH,
    LO,
    SCANNED,
    Bools,
    Ints,
    Places,
    StateColumns,
    begins_of_runs,
    columns_of,
    placed,
    records_of,
    united,
)
from keyrange.model.commit_settings import DeliveryLimits
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.ranges.model.plan_check import Area

# A clock that is corrected by less makes nothing due.
_STEP_MS: Final = 60_000


@dataclass(frozen=True, eq=False)
class DeliveryColumns(Mapping[TopicPartition, PartitionDelivery]):
    """What a batch hands out of the partitions of `states`, up to `ends`. `spans` are where the key
    ranges begin that it is read in, `cells` where those of each partition begin, of which the
    offsets [`from_offsets`, `until_offsets`) are new; `again` says which pending records come
    again. In `fires` timers of keys may be due. `scope`: which partitions share the state of
    keys, so that what waits of a key waits in all of them."""

    states: StateColumns
    ends: Ints
    spans: Places
    cells: Places
    from_offsets: Ints
    until_offsets: Ints
    again: Bools
    keeps_order: bool
    fires: Mapping[TopicPartition, tuple[KeyRange, ...]] = field(default_factory=dict)
    scope: StateScope = OWN_STATE

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.states)

    def __contains__(self, partition: object) -> bool:
        return partition in self.states

    def __getitem__(self, partition: TopicPartition) -> PartitionDelivery:
        number = self.states.numbers[partition]
        pending, cells, spans = (slice(*each[number : number + 2]) for each in self._firsts)
        if self.scope.is_shared:
            waiting = self._waiting.get(self.scope.home(partition), ())
        else:
            waiting = self.states.pending[KEY_HASH, pending][~self.again[pending]].tolist()
        offsets = (each[cells].tolist() for each in (self.from_offsets, self.until_offsets))
        return PartitionDelivery(
            int(self.states.positions[number]),
            int(self.ends[number]),
            tuple(map(Area, _ranges(self.cells.at[cells]), *offsets)),
            self.redelivered(partition),
            frozenset(waiting if self.keeps_order else ()),
            tuple(_ranges(self.spans.at[spans])),
            self.fires.get(partition, ()),
        )

    def redelivered(self, partition: TopicPartition) -> tuple[PendingRecord, ...]:
        """The pending records of a partition that come again, by offset."""
        number = self.states.numbers[partition]
        first, last = self._firsts[0][number : number + 2].tolist()
        which = first + np.flatnonzero(self.again[first:last])
        return by_offset(records_of(self.states.pending[:, which]))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is handed out, new or again."""
        return not self.busy.any()

    @property
    def holds_keys(self) -> bool:
        """Whether keys wait, because a pending record of them is not handed out."""
        return self.keeps_order and not self.again.all()

    @cached_property
    def busy(self) -> Bools:
        """Of which partitions something is handed out."""
        found = np.zeros(len(self), bool)
        found[self.cells.part[self.from_offsets < self.until_offsets]] = True
        found[self.states.places_of_pending.part[self.again]] = True
        found[[self.states.numbers[each] for each in self.fires]] = True
        return found

    def redelivered_counts(self) -> Ints:
        """How many pending records of each partition come again."""
        part = self.states.places_of_pending.part[self.again]
        counts: Ints = np.bincount(part, minlength=len(self))
        return counts

    def reached(self, cells: Bools | None = None) -> Ints:
        """How far the range of each partition comes that comes farthest; of some cells alone where
        these are given."""
        untils = self.until_offsets if cells is None else np.where(cells, self.until_offsets, 0)
        positions = self.states.positions
        farthest: Ints = np.maximum(positions, np.maximum.reduceat(untils, self._firsts[1][:-1]))
        return farthest

    @cached_property
    def _waiting(self) -> dict[TopicPartition, set[int]]:
        """The places of keys that wait, by the home of their state."""
        part, key_hashes = (each[~self.again].tolist() for each in self.states.places_of_pending)
        found: dict[TopicPartition, set[int]] = {}
        for number, key_hash in zip(part, key_hashes, strict=True):
            home = self.scope.home(self.states.partitions[number])
            found.setdefault(home, set()).add(key_hash)
        return found

    @cached_property
    def _firsts(self) -> tuple[Ints, Ints, Ints]:
        """Where the pending records, the cells and the key ranges of each partition begin."""
        parts = (self.states.places_of_pending.part, self.cells.part, self.spans.part)
        pending, cells, spans = (np.searchsorted(p, np.arange(len(self) + 1)) for p in parts)
        return pending, cells, spans


def _ranges(lows: Ints) -> list[KeyRange]:
    """The key ranges that begin there."""
    return [KeyRange(*two) for two in pairwise([*lows.tolist(), HASH_MAX + 1])]


def plan_deliveries(
    states: Mapping[TopicPartition, PartitionState],
    spans: Places,
    ends: Ints,
    due_ms: int,
    limits: DeliveryLimits,
    keeps_order: bool = True,
    fires: Mapping[TopicPartition, tuple[KeyRange, ...]] = MappingProxyType({}),
    scope: StateScope = OWN_STATE,
) -> DeliveryColumns:
    """What a batch up to `ends` hands out of partitions whose key ranges begin at `spans`.

    Pending records are handed out again whose time came until `due_ms`. With `keeps_order` all
    pending records of a key go together, when the first of them is due. Which records are handed
    out does not depend on `spans`: how far a range is read is a matter of the state's pieces.
    Raises ValueError where an end is before the position.
    """
    states = columns_of(states)
    if (ends < states.positions).any():
        raise ValueError("a batch goes back behind a position")
    fine = united(states.places, spans)
    piece, span = placed(states.places, fine), placed(spans, fine)
    from_offsets = states.of_pieces[SCANNED][piece]
    until_offsets = _slowed(states, ends, limits)[piece]
    # Cells of one key range that take the same offsets are one.
    begins = (spans.at[span] == fine.at) | begins_of_runs(from_offsets, until_offsets)
    return DeliveryColumns(
        states,
        ends,
        spans,
        Places(fine.part[begins], fine.at[begins]),
        from_offsets[begins],
        until_offsets[begins],
        states.due_ms(keeps_order, scope) <= due_ms,
        keeps_order,
        {partition: spans for partition, spans in fires.items() if partition in states},
        scope,
    )


def _slowed(states: StateColumns, ends: Ints, limits: DeliveryLimits) -> Ints:
    """How far each piece is read: less far where it has many pending records."""
    _, scanned, pending = states.of_pieces
    until = ends[states.places.part]
    slow = 2 * pending >= limits.pending_max
    # A pending record may come of every record: never more than there is room for.
    room = np.maximum(limits.pending_max - pending[slow], 0)
    until[slow] = scanned[slow] + np.minimum(until[slow] - scanned[slow], room)
    return until


def due_until_ms(
    due_ms: Ints, now_ms: int, wait_ms_max: int, timers_ms: Collection[int] = ()
) -> int:
    """Pending records whose time (`due_ms`) is not after this are due at `now_ms`, and so are
    timers that failed (`timers_ms`), where none waits for longer than `wait_ms_max`.

    Times are kept over restarts, so they are of the clock that people set. One that would have to
    wait for longer than any does was given its time by a clock that was ahead: it would wait for as
    long as that was, and so it is due at once, with all before it.
    """
    latest_ms = max([int(due_ms.max(initial=now_ms)), *timers_ms])
    return latest_ms if latest_ms > now_ms + wait_ms_max + _STEP_MS else now_ms


def late_offsets(states: StateColumns, is_due: Bools) -> Sequence[float]:
    """How many offsets of each partition are to be read that are not new, a key range's counted by
    its part of the hash space. `is_due`: of each pending record."""
    part = states.places.part
    sizes = (states.last_hashes - states.of_pieces[LO]).astype(float) / HASH_MAX
    behind = (states.positions[part] - states.of_pieces[SCANNED]) * sizes
    due = states.places_of_pending.part[is_due]
    count = len(states)
    late: Sequence[float] = (
        np.bincount(part, behind, count) + np.bincount(due, minlength=count)
    ).tolist()
    return late
