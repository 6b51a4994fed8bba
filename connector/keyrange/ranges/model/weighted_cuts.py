"""Where a key range is cut so that each part carries about the same weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate, pairwise

from keyrange.ranges.model.key_ranges import KeyRange, split_evenly


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
