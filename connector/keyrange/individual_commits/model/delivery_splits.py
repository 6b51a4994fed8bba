"""Which task reads what of a batch that hands out, beside what is new, what is late: pending
records that are due, and what key ranges that are behind have to catch up with.

Of each partition a task reads from low offsets to high ones, so that the records of a key come in
order: first what lies below the partition's position, each task for itself, then what is new,
together with others on its host.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Final

from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, common
from keyrange.model.offset_splits import Delivery, Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.model.reader_ranges import placement_of
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.ranges.model.plan_check import Area, HandedOut
from keyrange.ranges.model.range_plan import (
    RangeEstimate,
    among_readers,
    cut_line,
    shared_first,
    weigh,
)

# What lies between two things to read is fetched along with them up to so many bytes: a request of
# its own would take longer.
_GAP_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class PartitionDelivery:
    """What one batch hands out of a partition. `delivery_columns.py` works it out.

    It moves the partition's position from `start` to `end`. `cells` are the offsets that are new to
    the keys of each, none where both are the same; they cover the hash space once. `redelivered`
    are pending records that are handed out again, by offset. `held` are the places of keys with a
    pending record that is not: what comes of them has to wait. `spans` are the key ranges it is
    read in. In `fires` timers of keys may be due.
    """

    start: int
    end: int
    cells: tuple[Area, ...]
    redelivered: tuple[PendingRecord, ...] = ()
    held: frozenset[int] = frozenset()
    spans: tuple[KeyRange, ...] = ()
    fires: tuple[KeyRange, ...] = ()

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

    def within(self, span: KeyRange) -> HandedOut:
        """The cells in a key range, the records that come again to it, and where in it timers may
        be due."""
        begins, key_hashes, offsets = self._lookup
        first, last = (bisect_left(begins, at) for at in (span.from_hash, span.until_hash))
        low, high = (bisect_left(key_hashes, at) for at in (span.from_hash, span.until_hash))
        fires = (common(each, span) for each in self.fires)
        return HandedOut(
            self.cells[first:last],
            offsets[low:high],
            tuple(each for each in fires if each is not None),
        )

    @cached_property
    def _lookup(self) -> tuple[list[int], list[int], tuple[int, ...]]:
        """Where the cells begin, and the places and offsets of what comes again, by place."""
        again = sorted((record.key_hash, record.offset) for record in self.redelivered)
        begins = [cell.span.from_hash for cell in self.cells]
        return begins, [key_hash for key_hash, _ in again], tuple(offset for _, offset in again)


PartitionDeliveries = Mapping[TopicPartition, PartitionDelivery]
# Key ranges of a partition, and what is in each.
_Spans = list[tuple[KeyRange, HandedOut]]


def plan_cells(
    deliveries: PartitionDeliveries,
    spans: Mapping[TopicPartition, Sequence[KeyRange]],
    bytes_per_offset: Mapping[TopicPartition, float],
    key_hashes: Callable[[TopicPartition], Sequence[int]],
) -> list[RangeEstimate]:
    """The key ranges that have something to read, with the bytes that are expected in each."""
    cells: list[RangeEstimate] = []
    for partition, delivery in sorted(deliveries.items()):
        per_offset = bytes_per_offset[partition]
        for cell in weigh(partition, spans[partition], per_offset, key_hashes(partition)):
            found = delivery.within(cell.span)
            offsets = sum(
                (each.until_offset - each.from_offset) * each.span.size / cell.span.size
                for each in found.areas
            )
            if offsets or found.offsets or found.fires:
                size = cell.bytes * offsets + per_offset * len(found.offsets)
                cells.append(replace(cell, bytes=max(size, 1.0)))
    return cells


def handed_out(delivery: PartitionDelivery, spans: Sequence[KeyRange]) -> HandedOut:
    """What is handed out of a partition to the keys in `spans`."""
    found = [delivery.within(span) for span in spans]
    return HandedOut(
        tuple(
            cell for each in found for cell in each.areas if cell.from_offset < cell.until_offset
        ),
        tuple(offset for each in found for offset in each.offsets),
        tuple(span for each in found for span in each.fires),
    )


def plan_deliveries(
    stretches: Iterable[Sequence[RangeEstimate]],
    deliveries: PartitionDeliveries,
    bytes_per_offset: Mapping[TopicPartition, float],
    shared_name: Callable[[TopicPartition], str],
    scope: StateScope = OWN_STATE,
) -> list[tuple[Split, ...]]:
    """The splits of each task, by the key ranges that each has. Of partitions that share the state
    of keys (`scope`) records that come again do so in the order in which they have failed, and
    others topic by topic."""
    tasks: list[dict[TopicPartition, _Spans]] = []
    for stretch in stretches:
        own: dict[TopicPartition, _Spans] = {}
        for cell in stretch:
            inside = deliveries[cell.partition].within(cell.span)
            own.setdefault(cell.partition, []).append((cell.span, inside))
        tasks.append(own)
    new: list[list[Split]] = [[] for _ in tasks]
    for partition, delivery in sorted(deliveries.items()):
        found = [_with_new(own.get(partition, ()), delivery.start) for own in tasks]
        readers = [task for task, spans in enumerate(found) if spans]
        if not readers:
            continue
        splits = _new_splits(
            partition,
            delivery.start,
            [found[task] for task in readers],
            bytes_per_offset[partition],
            shared_name(partition),
        )
        for task, split in zip(readers, splits, strict=True):
            new[task].append(split)
    planned: list[tuple[Split, ...]] = []
    for task, own in enumerate(tasks):
        if scope.is_shared:
            late = _late_in_turn(own, deliveries, bytes_per_offset, scope)
            planned.append((*_fires(own, deliveries), *late, *_in_turn(new[task], scope)))
            continue
        late = [
            split
            for partition, spans in sorted(own.items())
            for split in _late_splits(
                partition, deliveries[partition].start, spans, bytes_per_offset[partition]
            )
        ]
        planned.append((*_fires(own, deliveries), *late, *shared_first(new[task])))
    return planned


def in_groups(cells: Iterable[RangeEstimate], scope: StateScope) -> list[list[RangeEstimate]]:
    """Key ranges of partitions, together with the same ranges of those that share their state: one
    task reads them."""
    found: dict[tuple[TopicPartition, KeyRange], list[RangeEstimate]] = {}
    for each in cells:
        found.setdefault((scope.home(each.partition), each.span), []).append(each)
    return [found[place] for place in sorted(found)]


def cut_groups(
    cells: Sequence[RangeEstimate], count: int, scope: StateScope
) -> list[list[RangeEstimate]]:
    """Key ranges of partitions as `count` tasks read them: in one line, cut where the bytes are."""
    if not scope.is_shared:
        return [each for each in cut_line(cells, lambda cell: cell.bytes, count) if each]
    line = cut_line(in_groups(cells, scope), lambda own: sum(c.bytes for c in own), count)
    return [[cell for own in stretch for cell in own] for stretch in line if stretch]


def _fires(
    own: Mapping[TopicPartition, _Spans], deliveries: PartitionDeliveries
) -> Iterator[Split]:
    for partition, spans in sorted(own.items()):
        if fired := [span for _, inside in spans for span in inside.fires]:
            yield firing_split(partition, deliveries[partition].start, fired)


def _in_turn(splits: Iterable[Split], scope: StateScope) -> list[Split]:
    """Topic by topic, so that small splits of several partitions are asked for together, and of a
    topic first what is shared, so that its readers meet."""
    return sorted(splits, key=lambda each: (each.topic != scope.topic, each.topic, not each.shared))


def _late_in_turn(
    own: Mapping[TopicPartition, _Spans],
    deliveries: PartitionDeliveries,
    bytes_per_offset: Mapping[TopicPartition, float],
    scope: StateScope,
) -> list[Split]:
    """What lies below the positions of partitions that share the state of keys."""

    def splits(partition: TopicPartition, spans: _Spans) -> list[Split]:
        start = deliveries[partition].start
        return _late_splits(partition, start, spans, bytes_per_offset[partition])

    found: list[Split] = []
    for partitions in scope.groups(own).values():
        for partition, offsets in _again_in_turn(own, deliveries, partitions):
            found += splits(partition, [(SPACE, HandedOut((), offsets))])
        for partition in partitions:
            spans = [(span, HandedOut(inside.areas)) for span, inside in own[partition]]
            found += splits(partition, spans)
    return found


def _again_in_turn(
    own: Mapping[TopicPartition, _Spans],
    deliveries: PartitionDeliveries,
    partitions: Sequence[TopicPartition],
) -> Iterator[tuple[TopicPartition, tuple[int, ...]]]:
    """Records that come again, as they have failed: stretches of one partition each. Those of a
    partition stay in the order of their offsets."""
    lines: list[list[tuple[int, int, int]]] = []
    for rank, partition in enumerate(partitions):
        wanted = {offset for _, inside in own[partition] for offset in inside.offsets}
        since_ms = 0
        line = []
        for record in deliveries[partition].redelivered:
            if record.offset in wanted:
                since_ms = max(since_ms, record.since_ms)
                line.append((since_ms, rank, record.offset))
        lines.append(line)
    for rank, stretch in groupby(heapq.merge(*lines), key=itemgetter(1)):
        yield partitions[rank], tuple(offset for _, _, offset in stretch)


def firing_split(partition: TopicPartition, at: int, spans: Sequence[KeyRange]) -> Split:
    """Without records: the timers of some key ranges fire."""
    placement = placement_of([spans]).of(0)
    return Split(partition, at, at, 0, placement, fires=True)


def _with_new(spans: Iterable[tuple[KeyRange, HandedOut]], start: int) -> _Spans:
    """Those of which any reaches beyond the partition's position."""
    return [
        (span, inside)
        for span, inside in spans
        if any(cell.until_offset > start for cell in inside.areas)
    ]


def _new_splits(
    partition: TopicPartition,
    start: int,
    readers: Sequence[_Spans],
    per_offset: float,
    name: str,
) -> list[Split]:
    """What is new, from the partition's position on: a split of the same offsets for each reader,
    with its keys."""
    cells = sorted(
        (cell for own in readers for _, inside in own for cell in inside.areas),
        key=lambda cell: cell.span,
    )
    until = max(cell.until_offset for cell in cells)
    delivery = None
    if any(cell.until_offset != until for cell in cells):
        delivery = deliver(replace(cell, from_offset=start) for cell in cells)
    spans = [[span for span, _ in own] for own in readers]
    shares = [sum(span.size for span in own) / SPACE.size for own in spans]
    splits = [
        Split(
            partition, start, until, round((until - start) * per_offset * share), delivery=delivery
        )
        for share in shares
    ]
    return among_readers(splits, spans, name)


def _late_splits(
    partition: TopicPartition, start: int, spans: _Spans, per_offset: float
) -> list[Split]:
    """What lies below the partition's position, in as few pieces as pay."""
    late = sorted(
        (
            replace(cell, until_offset=min(cell.until_offset, start))
            for _, inside in spans
            for cell in inside.areas
            if cell.from_offset < min(cell.until_offset, start)
        ),
        key=lambda cell: cell.span,
    )
    again = sorted(offset for _, inside in spans for offset in inside.offsets)
    wanted = [OffsetRange(cell.from_offset, cell.until_offset) for cell in late]
    wanted += [OffsetRange(offset, offset + 1) for offset in again]
    pieces = _pieces(wanted, per_offset)
    begins = [piece.from_offset for piece in pieces]
    # A cell lies in one piece as a whole.
    cells: dict[int, list[Area]] = {}
    for cell in late:
        cells.setdefault(bisect_right(begins, cell.from_offset) - 1, []).append(cell)
    splits: list[Split] = []
    for at, piece in enumerate(pieces):
        # There may be as many pieces as pending records: no walk through all pending records for
        # each.
        low, high = (bisect_left(again, end) for end in (piece.from_offset, piece.until_offset))
        delivery = deliver(cells.get(at, ()), again[low:high])
        # Without an estimate a whole chunk would be asked for.
        size = max(round(piece.size * per_offset), 1)
        splits.append(
            Split(partition, piece.from_offset, piece.until_offset, size, delivery=delivery)
        )
    return splits


def _pieces(wanted: Iterable[OffsetRange], per_offset: float) -> list[OffsetRange]:
    """Ranges of offsets that hold all that is wanted, with what lies between what is near."""
    pieces: list[OffsetRange] = []
    for each in sorted(wanted):
        last = pieces[-1] if pieces else None
        if last and (each.from_offset - last.until_offset) * per_offset <= _GAP_BYTES:
            until_offset = max(last.until_offset, each.until_offset)
            pieces[-1] = OffsetRange(last.from_offset, until_offset)
        else:
            pieces.append(each)
    return pieces


def deliver(cells: Iterable[Area], offsets: Iterable[int] = ()) -> Delivery:
    """A delivery of cells, in order, and of single records. Of keys in no cell there is nothing but
    the single records; neighbours with the same offsets are joined."""
    rows: list[tuple[int, tuple[int, int]]] = []
    at = 0
    for cell in cells:
        if cell.from_offset >= cell.until_offset:
            continue
        if cell.span.from_hash > at:
            rows.append((cell.span.from_hash - 1, _NOTHING))
        rows.append((cell.span.until_hash - 1, (cell.from_offset, cell.until_offset)))
        at = cell.span.until_hash
    if rows and at <= HASH_MAX:
        rows.append((HASH_MAX, _NOTHING))
    # Of neighbours with the same offsets the last one says how far they reach.
    joined = [max(own) for _, own in groupby(rows, key=itemgetter(1))]
    return Delivery(
        tuple(upper for upper, _ in joined),
        tuple(from_offset for _, (from_offset, _) in joined),
        tuple(until_offset for _, (_, until_offset) in joined),
        tuple(sorted(offsets)),
    )


_NOTHING: Final = (0, 0)
