"""The algebra of sets of whole numbers as sorted half-open spans that do not touch: of offsets
here, of hashes in `keyrange.model.key_ranges`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from keyrange.model.offsets import OffsetRange

Ranges = tuple[OffsetRange, ...]
Spans = list[tuple[int, int]]
_bounds: Final = attrgetter("from_offset", "until_offset")


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """The same numbers in as few spans as possible, in order; overlaps count once."""
    found: Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif begin < end:
            found.append((begin, end))
    return found


def outside(spans: Iterable[tuple[int, int]], begin: int, end: int) -> Spans:
    """What of [begin, end) is in none of the spans, in order."""
    bounds = [begin]
    for each in merged(spans):
        bounds += each
    bounds.append(end)
    return [
        (max(a, begin), min(b, end))
        for a, b in zip(bounds[::2], bounds[1::2], strict=True)
        if max(a, begin) < min(b, end)
    ]


def without(spans: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Spans:
    """What of some spans is in none of others, in order."""
    left = merged(spans)
    if not left:
        return []
    begin, end = left[0][0], left[-1][1]
    return outside([*outside(left, begin, end), *others], begin, end)


def coalesce(ranges: Iterable[OffsetRange]) -> Ranges:
    """The same offsets in as few ranges as possible, in order; overlaps count once."""
    return tuple(OffsetRange(*each) for each in merged(map(_bounds, ranges)))


def subtract(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> Ranges:
    """What of `ranges` is in none of `others`."""
    left = without(map(_bounds, ranges), map(_bounds, others))
    return tuple(OffsetRange(*each) for each in left)
