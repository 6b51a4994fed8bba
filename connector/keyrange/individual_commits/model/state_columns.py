"""The states of many partitions as columns, for who has all of them at hand with every batch.

It is a mapping to `PartitionState` too. That object is made when it is asked for, so commands and
the plain consumer read both forms alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.work.model.outcome import Cause

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

# The rows of `of_partitions`, of `of_pieces` and of `pending`.
POSITION, LEADER_EPOCH, PIECES = range(3)
LO, SCANNED, PENDING = range(3)
OFFSET, KEY_HASH, DELIVERIES, DUE_MS, SINCE_MS, CAUSE, LATE = range(7)

_DELIVERIES_MAX: Final = 2**31 - 1
_CAUSES: Final = tuple(int(cause) for cause in Cause)


class Places(NamedTuple):
    """Hashes in partitions, these by their number, in order."""

    part: Ints
    at: Ints

    def same(self, other: Places) -> bool:
        return np.array_equal(self.at, other.at) and np.array_equal(self.part, other.part)


def united(*places: Places) -> Places:
    """All places, each once."""
    first, *others = [each for each in places if len(each.at)] or places[:1]
    if all(first.same(each) for each in others):
        return first
    part, at = (np.concatenate(column) for column in zip(first, *others, strict=True))
    order = np.lexsort((at, part))
    part, at = part[order], at[order]
    is_new = begins_of_runs(part, at)
    return Places(part[is_new], at[is_new])


def begins_of_runs(*columns: Ints) -> Bools:
    """Where one of some columns has another value than just before."""
    found = np.ones(len(columns[0]), bool)
    found[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return found


def placed(begins: Places, places: Places) -> Ints:
    """The last of some beginnings that is not behind each place, -1 where none is. The places may
    be in any order."""
    if begins.same(places):
        return np.arange(len(places.at))
    part, at = (np.concatenate(column) for column in zip(begins, places, strict=True))
    count = len(begins.at)
    order = np.lexsort((np.arange(len(at)) >= count, at, part))
    is_begin = order < count
    found = np.empty(len(at), np.int64)
    found[order] = np.cumsum(is_begin) - 1
    return found[count:]


def starts(counts: Ints) -> Ints:
    """Where each of some runs begins that lie one behind the other, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))


def inside(begins: Ints, counts: Ints) -> Ints:
    """The numbers of what lies in some runs, one run after the other."""
    ends = starts(counts)
    return np.repeat(begins - ends[:-1], counts) + np.arange(ends[-1])


def spread(lists: Sequence[Sequence[int]], which: Sequence[int]) -> Places:
    """Places of partitions; `which` of the lists of hashes is that of each partition."""
    own = np.array(which, np.int64)
    begins = starts(np.array([len(each) for each in lists], np.int64))
    counts = np.diff(begins)[own]
    at = np.fromiter(chain.from_iterable(lists), np.int64)
    return Places(np.repeat(np.arange(len(own)), counts), at[inside(begins[own], counts)])


class StateColumns(Mapping[TopicPartition, PartitionState]):
    """The states of partitions, by partition.

    `of_partitions` has a column for each partition, `of_pieces` one for each piece of each of them,
    in the order of hashes, `pending` one for each pending record of each piece, in the order of
    offsets. Counts say how many belong together.
    """

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        topic_ids: Sequence[str],
        of_partitions: Ints,
        of_pieces: Ints,
        pending: Ints,
    ) -> None:
        self.partitions, self.topic_ids = tuple(partitions), tuple(topic_ids)
        self.of_partitions, self.of_pieces, self.pending = of_partitions, of_pieces, pending
        self._made: dict[int, PartitionState] = {}

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __contains__(self, partition: object) -> bool:
        return partition in self.numbers

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        number = self.numbers[partition]
        if number not in self._made:
            self._made[number] = self._state(number)
        return self._made[number]

    def __or__(self, newer: Mapping[TopicPartition, PartitionState]) -> StateColumns:
        found = columns_of(newer)
        if not found.partitions:
            return self
        if not self.partitions or self.partitions == found.partitions:
            return found
        kept = [at for at, each in enumerate(self.partitions) if each not in found]
        both = _together(self.take(kept), found)
        return both.take(sorted(range(len(both)), key=both.partitions.__getitem__))

    @cached_property
    def numbers(self) -> dict[TopicPartition, int]:
        return {partition: number for number, partition in enumerate(self.partitions)}

    @cached_property
    def first_piece(self) -> Ints:
        return starts(self.of_partitions[PIECES])

    @cached_property
    def first_pending(self) -> Ints:
        return starts(self.of_pieces[PENDING])

    @cached_property
    def places(self) -> Places:
        """Where the pieces begin."""
        numbers = np.arange(len(self.partitions))
        return Places(np.repeat(numbers, self.of_partitions[PIECES]), self.of_pieces[LO])

    @cached_property
    def last_hashes(self) -> Ints:
        """The highest hash of each piece."""
        last = np.full(self.of_pieces.shape[1], HASH_MAX)
        last[:-1] = self.of_pieces[LO, 1:] - 1
        last[self.first_piece[1:] - 1] = HASH_MAX
        return last

    @cached_property
    def piece_of_pending(self) -> Ints:
        return np.repeat(np.arange(self.of_pieces.shape[1]), self.of_pieces[PENDING])

    @cached_property
    def places_of_pending(self) -> Places:
        return Places(self.places.part[self.piece_of_pending], self.pending[KEY_HASH])

    @cached_property
    def committed_of_pieces(self) -> Ints:
        """Below which offset everything is done of the keys of each piece."""
        found: Ints = self.of_pieces[SCANNED].copy()
        some = self.of_pieces[PENDING] > 0
        found[some] = self.pending[OFFSET, self.first_pending[:-1][some]]
        return found

    @property
    def positions(self) -> Ints:
        found: Ints = self.of_partitions[POSITION]
        return found

    @property
    def committed(self) -> Ints:
        """Below which offset everything is done of each partition."""
        return np.minimum.reduceat(self.committed_of_pieces, self.first_piece[:-1])

    @property
    def is_left(self) -> bool:
        """Whether something below the positions is not done."""
        return bool((self.committed < self.positions).any())

    @property
    def scanned(self) -> Ints:
        """How far the range that is farthest behind was handed out, of each partition."""
        return np.minimum.reduceat(self.of_pieces[SCANNED], self.first_piece[:-1])

    @property
    def lagging(self) -> Iterator[TopicPartition]:
        """The partitions of which some key range was handed out less far than to the position."""
        for number in np.flatnonzero(self.scanned < self.positions).tolist():
            yield self.partitions[number]

    @property
    def committed_offsets(self) -> dict[TopicPartition, int]:
        return dict(zip(self.partitions, self.committed.tolist(), strict=True))

    @property
    def heads(self) -> dict[TopicPartition, tuple[str, int, int]]:
        """The topic id, the position and the leader epoch of each partition."""
        rest = self.of_partitions[:PIECES].tolist()
        return dict(zip(self.partitions, zip(self.topic_ids, *rest, strict=True), strict=True))

    def due_ms(self, keeps_order: bool, scope: StateScope = OWN_STATE) -> Ints:
        """When each pending record is handed out again: with `keeps_order` when the first one of
        its key is due, in all partitions that share its state. Null keys that share place 0 with
        the empty key wait for one another as one key does."""
        if not keeps_order:
            due_ms: Ints = self.pending[DUE_MS]
            return due_ms
        return self._due_of_shared_keys_ms(scope) if scope.is_shared else self._due_of_keys_ms

    @cached_property
    def _due_of_keys_ms(self) -> Ints:
        return self._due_of_first_ms(self.places_of_pending, self.pending[OFFSET])

    def _due_of_shared_keys_ms(self, scope: StateScope) -> Ints:
        if not self.pending.size:
            return np.array([], np.int64)
        groups = scope.groups(self.partitions)
        shared, rank = np.empty((2, len(self)), np.int64)
        in_order = [(number, each) for number, own in enumerate(groups.values()) for each in own]
        for at, (number, each) in enumerate(in_order):
            shared[self.numbers[each]], rank[self.numbers[each]] = number, at
        part, key_hash = self.places_of_pending
        offsets, since_ms = self.pending[OFFSET], self.pending[SINCE_MS]
        return self._due_of_first_ms(Places(shared[part], key_hash), offsets, rank[part], since_ms)

    def _due_of_first_ms(self, keys: Places, *order_in_key: Ints) -> Ints:
        """When the first pending record of its key is due, of each; the last order goes first."""
        order = np.lexsort((*order_in_key, *keys[::-1]))
        is_first = begins_of_runs(*(column[order] for column in keys))
        due_ms = np.empty(len(order), np.int64)
        due_ms[order] = self.pending[DUE_MS, order[is_first]][np.cumsum(is_first) - 1]
        return due_ms

    def take(self, numbers: Sequence[int] | Ints) -> StateColumns:
        """Some of the partitions, in order."""
        at = np.asarray(numbers, np.int64)
        of_partitions = self.of_partitions[:, at]
        pieces = inside(self.first_piece[at], of_partitions[PIECES])
        of_pieces = self.of_pieces[:, pieces]
        pending = inside(self.first_pending[pieces], of_pieces[PENDING])
        return StateColumns(
            [self.partitions[each] for each in at.tolist()],
            [self.topic_ids[each] for each in at.tolist()],
            of_partitions,
            of_pieces,
            self.pending[:, pending],
        )

    def only(self, partitions: Iterable[TopicPartition]) -> StateColumns:
        """The states of those partitions that have one."""
        found = sorted(partitions)
        if found == list(self.partitions):
            return self
        return self.take([self.numbers[each] for each in found if each in self.numbers])

    def with_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> StateColumns:
        """The same states, of the logs of other leaders."""
        found = self.of_partitions.copy()
        found[LEADER_EPOCH] = [epochs.get(each, -1) for each in self.partitions]
        return StateColumns(self.partitions, self.topic_ids, found, self.of_pieces, self.pending)

    def where(self, which: Bools) -> list[TopicPartition]:
        """Some of the partitions."""
        return [self.partitions[number] for number in np.flatnonzero(which).tolist()]

    def values_where(self, which: Bools, values: Ints) -> dict[TopicPartition, int]:
        """The values of some partitions."""
        return dict(zip(self.where(which), values[which].tolist(), strict=True))

    def topic_id_of(self, partition: TopicPartition) -> str | None:
        """None of a partition without a state."""
        number = self.numbers.get(partition)
        return None if number is None else self.topic_ids[number]

    def is_of(self, partition: TopicPartition, topic_id: str) -> bool:
        """Whether there is a state of a partition, and not of another topic of that name; a topic
        without an id, "", is any."""
        known = self.topic_id_of(partition)
        return known is not None and not (topic_id and known not in ("", topic_id))

    def fault(self) -> tuple[TopicPartition, str] | None:
        """A partition whose columns contradict themselves, and what is wrong with it."""
        part, lo = self.places
        is_wrong = lo < 0
        is_wrong[1:] |= (part[1:] == part[:-1]) & (lo[1:] <= lo[:-1])
        is_wrong[self.first_piece[:-1]] |= lo[self.first_piece[:-1]] != 0
        scanned = self.of_pieces[SCANNED]
        is_wrong |= (scanned < 0) | (scanned > self.positions[part])
        piece, offsets = self.piece_of_pending, self.pending[OFFSET]
        key_hashes, deliveries = self.pending[KEY_HASH], self.pending[DELIVERIES]
        is_bad = (offsets < 0) | (offsets >= scanned[piece])
        is_bad |= (key_hashes < lo[piece]) | (key_hashes > self.last_hashes[piece])
        is_bad |= (deliveries < 0) | (deliveries > _DELIVERIES_MAX)
        is_bad |= ~np.isin(self.pending[CAUSE], _CAUSES) | ~np.isin(self.pending[LATE], (0, 1))
        is_bad[1:] |= (piece[1:] == piece[:-1]) & (offsets[1:] <= offsets[:-1])
        order = np.lexsort((offsets, part[piece]))
        sorted_part, sorted_offsets = part[piece][order], offsets[order]
        twice = (sorted_part[1:] == sorted_part[:-1]) & (sorted_offsets[1:] == sorted_offsets[:-1])
        wrong = [*part[is_wrong], *part[piece[is_bad]], *sorted_part[1:][twice]]
        if not wrong:
            return None
        try:
            self._state(int(min(wrong)))
        except ValueError as failure:
            return self.partitions[min(wrong)], str(failure)
        return self.partitions[min(wrong)], "a pending record was delivered more often than can be"

    def _state(self, number: int) -> PartitionState:
        begin, end = self.first_piece[number : number + 2].tolist()
        lows, scanned, _ = self.of_pieces[:, begin:end].tolist()
        uppers = [*lows[1:], HASH_MAX + 1]
        firsts = self.first_pending[begin : end + 1].tolist()
        records = records_of(self.pending[:, firsts[0] : firsts[-1]])
        pieces = tuple(
            KeyRangeState(
                KeyRange(low, upper),
                until,
                tuple(records[first - firsts[0] : last - firsts[0]]),
            )
            for low, upper, until, first, last in zip(
                lows, uppers, scanned, firsts[:-1], firsts[1:], strict=True
            )
        )
        position, epoch, _ = self.of_partitions[:, number].tolist()
        return PartitionState(self.topic_ids[number], position, pieces, epoch)


def columns_of(states: Mapping[TopicPartition, PartitionState]) -> StateColumns:
    """The columns of some states."""
    if isinstance(states, StateColumns):
        return states
    ordered = sorted(states.items())
    pieces = [piece for _, state in ordered for piece in state.pieces]
    return StateColumns(
        [partition for partition, _ in ordered],
        [state.topic_id for _, state in ordered],
        _columns(((s.position, s.leader_epoch, len(s.pieces)) for _, s in ordered), 3),
        _columns(((p.span.from_hash, p.scanned, len(p.pending)) for p in pieces), 3),
        pending_columns(record for piece in pieces for record in piece.pending),
    )


def pending_columns(records: Iterable[PendingRecord]) -> Ints:
    """The columns of pending records."""
    rows = (
        (r.offset, r.key_hash, r.deliveries, r.due_ms, r.since_ms, int(r.cause), int(r.late))
        for r in records
    )
    return _columns(rows, 7)


def records_of(pending: Ints) -> list[PendingRecord]:
    """The records of such columns."""
    *columns, causes, late = pending.tolist()
    return list(map(PendingRecord, *columns, map(Cause, causes), map(bool, late)))


def _columns(rows: Iterable[tuple[int, ...]], width: int) -> Ints:
    values = np.fromiter(chain.from_iterable(rows), np.int64)
    return np.ascontiguousarray(values.reshape(-1, width).T)


def _together(one: StateColumns, other: StateColumns) -> StateColumns:
    """Both, one behind the other."""
    return StateColumns(
        one.partitions + other.partitions,
        one.topic_ids + other.topic_ids,
        np.concatenate((one.of_partitions, other.of_partitions), axis=1),
        np.concatenate((one.of_pieces, other.of_pieces), axis=1),
        np.concatenate((one.pending, other.pending), axis=1),
    )


NO_STATES: Final = columns_of({})
