"""Whether a plan reads each key and offset of a batch exactly once.

A verdict names only the records that are not done, so a record that no task reads would count as
done. The planner therefore compares what the splits read with what the batch hands out, before a
task begins.

Both sides are sets of areas, a key range times an offset range. A sum of areas is known by its
corners: +1 where an area begins and ends, -1 at its other two. Two sums are the same at each key
and offset if and only if the same corners are left (the two-dimensional form of differences). That
takes one step for each area, whatever the cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from keyrange.errors import error
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition

_Corners = Counter[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Area:
    """The records with keys in `span` and offsets in [from_offset, until_offset)."""

    span: KeyRange
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class HandedOut:
    """What a batch hands out of one partition: areas, and single records by offset; and the key
    ranges whose timers fire."""

    areas: tuple[Area, ...]
    offsets: tuple[int, ...] = ()
    fires: tuple[KeyRange, ...] = ()


_NOTHING: Final = HandedOut(())


def check_plan(splits: Iterable[Split], handed_out: Mapping[TopicPartition, HandedOut]) -> None:
    """Raises INCONSISTENT_PLAN where the splits do not read what is handed out, all of it once."""
    read: dict[TopicPartition, list[Split]] = {}
    for split in splits:
        read.setdefault(split.topic_partition, []).append(split)
    for partition in sorted(read.keys() | handed_out.keys()):
        own, wanted = read.get(partition, ()), handed_out.get(partition, _NOTHING)
        corners: _Corners = Counter()
        again = (each.delivery.offsets for each in own if each.delivery is not None)
        singles = Counter(chain.from_iterable(again))
        singles.subtract(wanted.offsets)
        _add(corners, wanted.areas, -1)
        _add(corners, _fired(wanted.fires), -1)
        for each in own:
            _add(corners, _areas(each), 1)
        wrong = [offset for (_, offset), count in corners.items() if count]
        wrong += [offset for offset, count in singles.items() if count]
        if wrong:
            raise error(
                "INCONSISTENT_PLAN",
                "the plan of the batch does not read each key and offset of the partition once",
                partition=partition,
                offset=min(wrong),
            )


def without_whole(
    splits: Iterable[Split], ranges: dict[TopicPartition, OffsetRange]
) -> list[Split]:
    """The splits that do not read all keys of all offsets of their partition, as each does in a
    plan by partition. What the others read is taken out of `ranges`, so that another split of it
    reads what is not handed out."""
    left = []
    for split in splits:
        partition = split.topic_partition
        span = ranges.get(partition)
        if (
            span is not None
            and split.placement is None
            and split.delivery is None
            and (span.from_offset, span.until_offset) == (split.from_offset, split.until_offset)
        ):
            del ranges[partition]
        else:
            left.append(split)
    return left


def _add(corners: _Corners, areas: Iterable[Area], sign: int) -> None:
    for each in areas:
        low, high = each.span.from_hash, each.span.until_hash
        corners[low, each.from_offset] += sign
        corners[high, each.until_offset] += sign
        corners[low, each.until_offset] -= sign
        corners[high, each.from_offset] -= sign


def _fired(spans: Iterable[KeyRange]) -> Iterator[Area]:
    """Key ranges whose timers fire, as areas where no record is."""
    for span in spans:
        yield Area(span, -1, 0)


def _areas(split: Split) -> Iterator[Area]:
    """What one split reads besides single records."""
    spans = [SPACE] if split.placement is None else split.placement.ranges()
    if split.fires:
        yield from _fired(spans)
        return
    delivery = split.delivery
    if delivery is None:
        for span in spans:
            yield Area(span, split.from_offset, split.until_offset)
        return
    for span in spans:
        at = bisect_left(delivery.uppers, span.from_hash)
        low = span.from_hash
        while low < span.until_hash and at < len(delivery.uppers):
            high = min(delivery.uppers[at] + 1, span.until_hash)
            from_offset = max(delivery.froms[at], split.from_offset)
            until_offset = min(delivery.untils[at], split.until_offset)
            if from_offset < until_offset:
                yield Area(KeyRange(low, high), from_offset, until_offset)
            low, at = high, at + 1
