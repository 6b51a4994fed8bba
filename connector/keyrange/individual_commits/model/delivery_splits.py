"""Which task reads what of a batch that hands out, beside what is new, what is late: pending
records that are due, and what key ranges that are behind have to catch up with.

Of each partition a task reads from low offsets to high ones, so that the records of a key come in
order: first what lies below the partition's position, each task for itself, then what is new,
together with others on its host.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from keyrange.individual_commits.model.new_and_due_records import (
    CellDelivery,
    PartitionDeliveries,
    PartitionDelivery,
)
from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.ranges.model.offset_splits import Delivery, Split
from keyrange.ranges.model.plan_check import Area, HandedOut
from keyrange.ranges.model.range_plan import RangeEstimate, among_readers, shared_first, weigh

# What lies between two things to read is fetched along with them up to so many bytes: a request of
# its own would take longer.
_GAP_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Span:
    """A key range, the cells in it, and the offsets of the records that come again to it."""

    span: KeyRange
    cells: tuple[CellDelivery, ...]
    redelivered: tuple[int, ...]

    def has_new(self, start: int) -> bool:
        """Whether any of it reaches beyond the partition's position."""
        return any(cell.until_offset > start for cell in self.cells)


class _Spans:
    """Looks up what is in a key range of a partition."""

    def __init__(self, delivery: PartitionDelivery) -> None:
        self._cells = delivery.cells
        self._bounds = [cell.span.from_hash for cell in delivery.cells]
        again = sorted((record.key_hash, record.offset) for record in delivery.redelivered)
        self._key_hashes = [key_hash for key_hash, _ in again]
        self._offsets = [offset for _, offset in again]

    def of(self, span: KeyRange) -> _Span:
        first, last = (bisect_left(self._bounds, at) for at in (span.from_hash, span.until_hash))
        low, high = (bisect_left(self._key_hashes, at) for at in (span.from_hash, span.until_hash))
        return _Span(span, self._cells[first:last], tuple(self._offsets[low:high]))


def plan_cells(
    deliveries: PartitionDeliveries,
    spans: Mapping[TopicPartition, Sequence[KeyRange]],
    bytes_per_offset: Mapping[TopicPartition, float],
    key_hashes: Callable[[TopicPartition], Sequence[int]],
) -> list[RangeEstimate]:
    """The key ranges that have something to read, with the bytes that are expected in each."""
    cells: list[RangeEstimate] = []
    for partition, delivery in sorted(deliveries.items()):
        per_offset, inside = bytes_per_offset[partition], _Spans(delivery)
        for cell in weigh(partition, spans[partition], per_offset, key_hashes(partition)):
            found = inside.of(cell.span)
            offsets = sum(
                (each.until_offset - each.from_offset) * each.span.size / cell.span.size
                for each in found.cells
            )
            if offsets or found.redelivered:
                size = cell.bytes * offsets + per_offset * len(found.redelivered)
                cells.append(replace(cell, bytes=size))
    return cells


def handed_out(delivery: PartitionDelivery, spans: Sequence[KeyRange]) -> HandedOut:
    """What is handed out of a partition to the keys in `spans`."""
    inside = _Spans(delivery)
    found = [inside.of(span) for span in spans]
    return HandedOut(
        tuple(
            Area(cell.span, cell.from_offset, cell.until_offset)
            for each in found
            for cell in each.cells
            if cell.from_offset < cell.until_offset
        ),
        tuple(offset for each in found for offset in each.redelivered),
    )


def plan_deliveries(
    stretches: Iterable[Sequence[RangeEstimate]],
    deliveries: PartitionDeliveries,
    bytes_per_offset: Mapping[TopicPartition, float],
    shared_name: Callable[[TopicPartition], str],
) -> list[tuple[Split, ...]]:
    """The splits of each task, by the key ranges that each has."""
    inside = {partition: _Spans(delivery) for partition, delivery in deliveries.items()}
    tasks: list[dict[TopicPartition, list[_Span]]] = []
    for stretch in stretches:
        own: dict[TopicPartition, list[_Span]] = {}
        for cell in stretch:
            own.setdefault(cell.partition, []).append(inside[cell.partition].of(cell.span))
        tasks.append(own)
    new: list[list[Split]] = [[] for _ in tasks]
    for partition, delivery in sorted(deliveries.items()):
        found = [[s for s in own.get(partition, ()) if s.has_new(delivery.start)] for own in tasks]
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
        late = [
            split
            for partition, spans in sorted(own.items())
            for split in _late_splits(
                partition, deliveries[partition].start, spans, bytes_per_offset[partition]
            )
        ]
        planned.append((*late, *shared_first(new[task])))
    return planned


def _new_splits(
    partition: TopicPartition,
    start: int,
    readers: Sequence[Sequence[_Span]],
    per_offset: float,
    name: str,
) -> list[Split]:
    """What is new, from the partition's position on: a split of the same offsets for each reader,
    with its keys."""
    cells = sorted(
        (cell for own in readers for each in own for cell in each.cells),
        key=lambda cell: cell.span,
    )
    until = max(cell.until_offset for cell in cells)
    delivery = None
    if any(cell.until_offset != until for cell in cells):
        delivery = deliver(replace(cell, from_offset=start) for cell in cells)
    spans = [[each.span for each in own] for own in readers]
    shares = [sum(span.size for span in own) / SPACE.size for own in spans]
    splits = [
        Split(
            *partition, start, until, round((until - start) * per_offset * share), delivery=delivery
        )
        for share in shares
    ]
    return among_readers(splits, spans, name)


def _late_splits(
    partition: TopicPartition, start: int, spans: Sequence[_Span], per_offset: float
) -> list[Split]:
    """What lies below the partition's position, in as few pieces as pay."""
    late = sorted(
        (
            replace(cell, until_offset=min(cell.until_offset, start))
            for each in spans
            for cell in each.cells
            if cell.from_offset < min(cell.until_offset, start)
        ),
        key=lambda cell: cell.span,
    )
    again = sorted(offset for each in spans for offset in each.redelivered)
    wanted = [OffsetRange(cell.from_offset, cell.until_offset) for cell in late]
    wanted += [OffsetRange(offset, offset + 1) for offset in again]
    pieces = _pieces(wanted, per_offset)
    begins = [piece.from_offset for piece in pieces]
    # A cell lies in one piece as a whole.
    cells: dict[int, list[CellDelivery]] = {}
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
            Split(*partition, piece.from_offset, piece.until_offset, size, delivery=delivery)
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


def deliver(cells: Iterable[CellDelivery], offsets: Iterable[int] = ()) -> Delivery:
    """A delivery of cells, in order, and of single records. Of keys in no cell there is nothing but
    the single records; neighbours with the same offsets are joined."""
    joined: list[tuple[int, int, int]] = []

    def add(upper: int, from_offset: int, until_offset: int) -> None:
        if joined and joined[-1][1:] == (from_offset, until_offset):
            joined.pop()
        joined.append((upper, from_offset, until_offset))

    at = 0
    for cell in cells:
        if cell.from_offset >= cell.until_offset:
            continue
        if cell.span.from_hash > at:
            add(cell.span.from_hash - 1, *_NOTHING)
        add(cell.span.until_hash - 1, cell.from_offset, cell.until_offset)
        at = cell.span.until_hash
    if joined and at <= HASH_MAX:
        add(HASH_MAX, *_NOTHING)
    uppers, froms, untils = zip(*joined, strict=True) if joined else ((), (), ())
    return Delivery(uppers, froms, untils, tuple(sorted(offsets)))


_NOTHING: Final = (0, 0)
