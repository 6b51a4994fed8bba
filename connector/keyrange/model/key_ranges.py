"""Key ranges: intervals of the hash space, and how the space is cut into them.

The place of a record is the hash of its key: MurmurHash3 x64 128 (seed 0), the first 64 bits
shifted right by one, so the space is [0, 2**63 - 1], the one of the proposal for cooperative
processing. Inside, ranges are half-open, [from_hash, until_hash); people read and write `[lo, hi]`
with both ends included, as the proposal has it.

A task finds the range of each record that it reads by a compiled pass
(`keyrange.wire.record_kernels.sort_by_reader`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, Final

import mmh3

from keyrange.model.offset_range_sets import merged, outside, without

HASH_MAX: Final = 2**63 - 1
_UNTIL_MAX: Final = HASH_MAX + 1


def hash_of(key: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, shifted right by one.

    A compiled pass does the same for whole columns (`keyrange.wire.record_kernels.hash_keys`);
    tests/property/test_key_hash.py holds both equal.
    """
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1


def hash_of_record(key: bytes | None, offset: int, nulls_first: bool) -> int:
    """The hash of a record's key. One without a key lies at the hash of its offset, so that such
    records spread over all key ranges, or at 0 with `nulls_first`, which keeps their order."""
    if key is not None:
        return hash_of(key)
    return 0 if nulls_first else hash_of(offset.to_bytes(8, "big"))


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """The hashes from `from_hash` up to but not including `until_hash`; never empty."""

    from_hash: int
    until_hash: int

    def __post_init__(self) -> None:
        if not 0 <= self.from_hash < self.until_hash <= _UNTIL_MAX:
            raise ValueError(f"[{self.from_hash}, {self.until_hash}) is no range of hashes")

    @property
    def size(self) -> int:
        """How many hashes the range holds."""
        return self.until_hash - self.from_hash

    def contains(self, key_hash: int) -> bool:
        return self.from_hash <= key_hash < self.until_hash

    def __str__(self) -> str:
        return f"[{self.from_hash}, {self.until_hash - 1}]"


SPACE: Final = KeyRange(0, _UNTIL_MAX)
_bounds: Final = attrgetter("from_hash", "until_hash")


def split_evenly(span: KeyRange, pieces: int) -> list[KeyRange]:
    """Cut a range into `pieces` ranges whose sizes differ by one at most, or into single hashes."""
    pieces = max(min(pieces, span.size), 1)
    bounds = [span.from_hash + span.size * at // pieces for at in range(pieces + 1)]
    return [KeyRange(a, b) for a, b in pairwise(bounds)]


def merge(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """The same hashes in as few ranges as possible, in order; overlaps count once."""
    return [KeyRange(*each) for each in merged(map(_bounds, ranges))]


def complement(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """What of the space is in none of the ranges, in order."""
    return [KeyRange(*each) for each in outside(map(_bounds, ranges), 0, _UNTIL_MAX)]


def subtract(ranges: Iterable[KeyRange], others: Iterable[KeyRange]) -> list[KeyRange]:
    """What of some ranges is in none of others, in order."""
    return [KeyRange(*each) for each in without(map(_bounds, ranges), map(_bounds, others))]


def common(one: KeyRange, other: KeyRange) -> KeyRange | None:
    """The hashes that two ranges share."""
    from_hash = max(one.from_hash, other.from_hash)
    until_hash = min(one.until_hash, other.until_hash)
    return KeyRange(from_hash, until_hash) if from_hash < until_hash else None


def overlap(ranges: Iterable[KeyRange]) -> tuple[KeyRange, KeyRange] | None:
    """Two ranges that share hashes, if there are any."""
    return next(((a, b) for a, b in pairwise(sorted(ranges)) if b.from_hash < a.until_hash), None)


def cover_once(ranges: Iterable[KeyRange]) -> bool:
    """Whether every hash of the space is in exactly one of the ranges."""
    ranges = list(ranges)
    return merge(ranges) == [SPACE] and overlap(ranges) is None


def index_of(ranges: Sequence[KeyRange], key_hash: int) -> int | None:
    """Which of some sorted ranges without overlaps a hash lies in."""
    at = bisect_right(ranges, key_hash, key=lambda each: each.from_hash) - 1
    return at if at >= 0 and ranges[at].contains(key_hash) else None


def read_ranges(document: Any) -> list[KeyRange]:
    """Ranges from JSON, `[[lo, hi], ...]` with both ends included, in order.

    Raises ValueError for what is no range, and where two overlap.
    """
    if not isinstance(document, list):
        raise ValueError("key ranges are a list of [lo, hi]")
    ranges = sorted(_read_range(each) for each in document)
    found = overlap(ranges)
    if found is not None:
        raise ValueError(f"{found[0]} and {found[1]} overlap")
    return ranges


def _read_range(document: Any) -> KeyRange:
    if not (
        isinstance(document, list)
        and len(document) == 2
        and all(isinstance(each, int) and not isinstance(each, bool) for each in document)
    ):
        raise ValueError("a key range is [lo, hi], two whole numbers")
    lo, hi = document
    if not 0 <= lo <= hi <= HASH_MAX:
        raise ValueError(f"[{lo}, {hi}] does not lie in [0, {HASH_MAX}]")
    return KeyRange(lo, hi + 1)


def write_ranges(ranges: Iterable[KeyRange]) -> list[list[int]]:
    """The JSON that `read_ranges` reads."""
    return [[each.from_hash, each.until_hash - 1] for each in ranges]


def split_at_weights(span: KeyRange, weights: Mapping[int, float], pieces: int) -> list[KeyRange]:
    """Cut a range into at most `pieces` ranges that carry about the same weight.

    `weights` says what single hashes weigh. A cut lies in the middle between two of them, so a
    heavy hash stays whole and may leave the others fewer ranges. Without weights: evenly.
    """
    key_hashes = sorted(
        key_hash for key_hash in weights if span.contains(key_hash) and weights[key_hash] > 0
    )
    if not key_hashes:
        return split_evenly(span, pieces)
    sums = list(accumulate(weights[key_hash] for key_hash in key_hashes))
    cuts: set[int] = set()
    for at in range(1, pieces):
        wanted = sums[-1] * at / pieces
        behind = bisect_right(sums, wanted)
        # On which side of the hash that the ideal cut falls into it is nearer.
        before = sums[behind - 1] if behind else 0.0
        if behind < len(key_hashes) and sums[behind] - wanted < wanted - before:
            behind += 1
        if 0 < behind < len(key_hashes):
            cuts.add((key_hashes[behind - 1] + key_hashes[behind] + 1) // 2)
    bounds = [span.from_hash, *sorted(cuts), span.until_hash]
    return [KeyRange(a, b) for a, b in pairwise(bounds)]
