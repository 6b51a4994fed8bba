"""The algebra of offset ranges: sets of offsets as sorted half-open ranges that do not touch.

The rules are those of the proposal for cooperative processing: ranges that touch are one
(coalescing), what lies below the committed offset is dropped and may move it (purging), and a
consumer that found part of what it fetched already done commits only the rest (gap amending).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from keyrange.core.offsets import OffsetRange

Ranges = tuple[OffsetRange, ...]


def coalesce(ranges: Iterable[OffsetRange]) -> Ranges:
    """The same offsets in as few ranges as possible, in order; overlaps count once."""
    found: list[OffsetRange] = []
    for each in sorted((each for each in ranges if each.size), key=_bounds):
        if found and each.from_offset <= found[-1].until_offset:
            until_offset = max(found[-1].until_offset, each.until_offset)
            found[-1] = OffsetRange(found[-1].from_offset, until_offset)
        else:
            found.append(each)
    return tuple(found)


def of_offsets(offsets: Iterable[int]) -> Ranges:
    """Single offsets as ranges."""
    return coalesce(OffsetRange(each, each + 1) for each in offsets)


def subtract(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> Ranges:
    """What of `ranges` is in none of `others`."""
    left: list[OffsetRange] = []
    cuts = coalesce(others)
    at = 0
    for each in coalesce(ranges):
        start = each.from_offset
        while at < len(cuts) and cuts[at].until_offset <= start:
            at += 1
        behind = at
        while behind < len(cuts) and cuts[behind].from_offset < each.until_offset:
            if start < cuts[behind].from_offset:
                left.append(OffsetRange(start, cuts[behind].from_offset))
            start = cuts[behind].until_offset
            behind += 1
        if start < each.until_offset:
            left.append(OffsetRange(start, each.until_offset))
    return tuple(left)


def intersect(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> Ranges:
    """What is in both."""
    ranges = coalesce(ranges)
    return subtract(ranges, subtract(ranges, others))


def gaps(ranges: Iterable[OffsetRange], within: OffsetRange) -> Ranges:
    """What of `within` is in none of `ranges`."""
    return subtract((within,), ranges)


def contains(ranges: Sequence[OffsetRange], offset: int) -> bool:
    """Whether an offset is in one of some coalesced ranges."""
    at = bisect_right(ranges, offset, key=_from_offset) - 1
    return at >= 0 and offset < ranges[at].until_offset


def purge(committed: int, done: Iterable[OffsetRange]) -> tuple[int, Ranges]:
    """The committed offset (the next one to do) and the done ranges above it, with what touches it
    taken into it and what lies below it dropped."""
    ranges = coalesce(done)
    below = bisect_right(ranges, committed, key=_from_offset)
    if below:
        committed = max(committed, ranges[below - 1].until_offset)
    return committed, ranges[below:]


def amend(committed: int, done: Iterable[OffsetRange], fetched: OffsetRange) -> Ranges:
    """What a consumer commits that fetched a range and worked on what was not done of it yet."""
    below = OffsetRange(min(fetched.from_offset, committed), committed)
    return gaps((*done, below), fetched)


def _bounds(each: OffsetRange) -> tuple[int, int]:
    return each.from_offset, each.until_offset


def _from_offset(each: OffsetRange) -> int:
    return each.from_offset
