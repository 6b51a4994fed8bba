"""The algebra of offset ranges: sets of offsets as sorted half-open ranges that do not touch."""

from __future__ import annotations

from collections.abc import Iterable

from keyrange.kafka.model.offsets import OffsetRange

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


def gaps(ranges: Iterable[OffsetRange], within: OffsetRange) -> Ranges:
    """What of `within` is in none of `ranges`."""
    return subtract((within,), ranges)


def _bounds(each: OffsetRange) -> tuple[int, int]:
    return each.from_offset, each.until_offset
