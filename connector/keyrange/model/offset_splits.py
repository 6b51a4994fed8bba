"""What one batch reads, cut into splits and dealt out to tasks.

A split is a run of offsets of one partition that one task reads in order. Large partitions may be
cut into several splits (`minPartitions`, `maxRecordsPerPartition`); small ones share a task,
because every further Python task costs a batch 20 to 50 ms (ARCHITECTURE.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from keyrange.model.offsets import OFFSET_MAX, OffsetRange, TopicPartition
from keyrange.model.reader_ranges import Placement


@dataclass(frozen=True, slots=True)
class Delivery:
    """Which records of a split are handed out, where that is not all of them: a query that commits
    individually takes up each key range where that stands, and single records again.

    It is the records of cell i with offsets in [froms[i], untils[i]), and those at `offsets`, in
    order, whatever their key.

    Cell i ends at `uppers[i]`, included; the last one ends where the space does. Without cells
    there are the single records alone.
    """

    uppers: tuple[int, ...] = ()
    froms: tuple[int, ...] = ()
    untils: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A run of offsets of one partition, and about how many bytes of log it is.

    In a batch read `from_offset` may be EARLIEST and `until_offset` LATEST: the task that reads it
    asks where that is, so that a DataFrame that is run again sees what was written meanwhile.
    With a `placement` only the key ranges of its reader are read, with a `delivery` only what that
    names; it is the same for all readers of the split. `shared` names what the readers
    of one partition share on a host, "" where there is nothing to share. `leader_epoch` is that in
    which the log reached up to `until_offset`, -1 where that is not known. One that `fires` has no
    records: timers of the keys of its ranges may be due.
    """

    topic_partition: TopicPartition
    from_offset: int
    until_offset: int
    bytes_estimate: int
    placement: Placement | None = None
    shared: str = ""
    delivery: Delivery | None = None
    leader_epoch: int = -1
    fires: bool = False

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    def led_in(self, leader_epoch: int) -> Split:
        """The same split of the log of an epoch; `replace` takes four times as long."""
        return Split(
            self.topic_partition,
            self.from_offset,
            self.until_offset,
            self.bytes_estimate,
            self.placement,
            self.shared,
            self.delivery,
            leader_epoch,
            self.fires,
        )


def plan_splits(
    ranges: Mapping[TopicPartition, OffsetRange],
    bytes_per_offset: Mapping[TopicPartition, float],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[Split]:
    """Cut ranges into splits of at most `max_records_per_partition` offsets, and so that there are
    about `min_partitions`.

    The JVM connector's arithmetic (KafkaOffsetRangeCalculator): first the cut by records. Where
    that gives too few splits, those whose share rounds to one stay whole and the others get their
    share of what is left. Pieces by whole division, so that the last ones take the remainder.
    """
    pieces = [
        (partition, piece)
        for partition, span in sorted(ranges.items())
        for piece in cut(span, -(-span.size // (max_records_per_partition or OFFSET_MAX)))
    ]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = _cut_further(pieces, min_partitions)
    return [
        Split(
            partition,
            piece.from_offset,
            piece.until_offset,
            round(piece.size * bytes_per_offset[partition]),
        )
        for partition, piece in pieces
    ]


_Piece = tuple[TopicPartition, OffsetRange]


def _cut_further(pieces: Sequence[_Piece], min_partitions: int) -> list[_Piece]:
    total = sum(span.size for _, span in pieces)
    large = {
        at
        for at, (_, span) in enumerate(pieces)
        if _round_half_up(span.size / total * min_partitions) > 1
    }
    left = max(min_partitions - (len(pieces) - len(large)), 1)
    large_total = sum(pieces[at][1].size for at in large)
    return [
        (partition, piece)
        for at, (partition, span) in enumerate(pieces)
        for piece in cut(span, _round_half_up(span.size / large_total * left) if at in large else 1)
    ]


def cut(span: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Cut a range into at most `pieces` non-empty ranges that follow one another."""
    if pieces == 1 and span.size:
        return [span]
    pieces = max(min(pieces, span.size), 1)
    short, long_ones = divmod(span.size, pieces)
    sizes = [short] * (pieces - long_ones) + [short + 1] * long_ones
    bounds = list(accumulate(sizes, initial=span.from_offset))
    return [OffsetRange(a, b) for a, b in pairwise(bounds) if a < b]


def _round_half_up(number: float) -> int:
    """Java's Math.round for positive numbers; Python's rounds halves to even."""
    return int(number + 0.5)


def deal(splits: Sequence[Split], bytes_per_task: int, tasks_min: int) -> list[tuple[Split, ...]]:
    """Deal splits out to as few tasks as pay: about `bytes_per_task` each, at least `tasks_min`.

    The largest split goes first, each to the task with the least bytes so far, so that tasks end at
    about the same time. Within a task splits are in order of partition and offset. `bytes_per_task`
    0 gives every split a task of its own.
    """
    if not splits:
        return []
    total = sum(split.bytes_estimate for split in splits)
    wanted = len(splits) if bytes_per_task == 0 else -(-total // bytes_per_task)
    count = min(max(wanted, tasks_min, 1), len(splits))
    ordered = sorted(splits, key=lambda split: -split.bytes_estimate)
    if count == len(splits):
        return [(split,) for split in ordered]
    loads = [(0, index) for index in range(count)]
    tasks: list[list[Split]] = [[] for _ in range(count)]
    for split in ordered:
        load, index = heapq.heappop(loads)
        tasks[index].append(split)
        # A split of no bytes still takes a place, so that empty tasks fill first.
        heapq.heappush(loads, (load + max(split.bytes_estimate, 1), index))
    key = lambda split: (split.topic, split.partition, split.from_offset)  # noqa: E731
    return [tuple(sorted(task, key=key)) for task in tasks]


def write_split(split: Split) -> list[Any]:
    """JSON, in which the binding service tells tasks what they read: the fields in their order."""
    own, each = split.placement, split.delivery
    return [
        *(split.topic, split.partition, split.from_offset, split.until_offset),
        split.bytes_estimate,
        None if own is None else [own.uppers, own.owners, own.reader],
        split.shared,
        None if each is None else [each.uppers, each.froms, each.untils, each.offsets],
        split.leader_epoch,
        split.fires,
    ]


def read_split(document: Sequence[Any]) -> Split:
    topic, partition, first, until, size, placement, shared, delivery, *last = document
    if placement is not None:
        uppers, owners, reader = placement
        placement = Placement(tuple(uppers), tuple(owners), reader)
    if delivery is not None:
        delivery = Delivery(*map(tuple, delivery))
    return Split(
        TopicPartition(topic, partition), first, until, size, placement, shared, delivery, *last
    )
