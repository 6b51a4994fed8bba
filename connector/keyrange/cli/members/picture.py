"""The hash space of each partition as one line of text, a letter for each slot that owns a part.

    orders-0  AAAAAAAAAAAAAAAAAAAAAAAABBBBBBBBBBBBBBBBBBBBBBBB
    orders-1  CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC

A character stands for the slot that owns the most of its part of the space.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from keyrange.ranges.model.key_ranges import SPACE, split_evenly

if TYPE_CHECKING:
    from keyrange.ranges.model.key_ranges import KeyRange

WIDTH: Final = 60
_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits
OTHERS: Final = "*"


def marks_of(slots: Iterable[str]) -> dict[str, str]:
    """A character for each slot; those that there are no letters for share one."""
    return {slot: _LETTERS[at] if at < len(_LETTERS) else OTHERS for at, slot in enumerate(slots)}


def draw(
    owned: Sequence[tuple[KeyRange, str]], marks: Mapping[str, str], width: int = WIDTH
) -> str:
    """The line of a partition whose ranges, in order, cover the space."""
    line = []
    at = 0
    for cell in split_evenly(SPACE, width):
        while owned[at][0].until_hash <= cell.from_hash:
            at += 1
        shares: dict[str, int] = {}
        here = at
        while here < len(owned) and owned[here][0].from_hash < cell.until_hash:
            span, slot = owned[here]
            inside = min(span.until_hash, cell.until_hash) - max(span.from_hash, cell.from_hash)
            shares[slot] = shares.get(slot, 0) + inside
            here += 1
        # The first of two with equal parts.
        line.append(marks[max(shares, key=lambda slot: shares[slot])])
    return "".join(line)
