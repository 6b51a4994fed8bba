"""Which records of a split are handed out, where that is not all of them: a query that commits
individually takes up each key range where that stands, and single records again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from keyrange.core.commits.intake import CellIntake
from keyrange.core.key_ranges import HASH_MAX


@dataclass(frozen=True, slots=True)
class Delivery:
    """The records of cell i with offsets in [froms[i], untils[i]), and those at `offsets`, in
    order, whatever their key.

    Cell i ends at `uppers[i]`, included; the last one ends where the space does. Without cells
    there are the single records alone.
    """

    uppers: tuple[int, ...] = ()
    froms: tuple[int, ...] = ()
    untils: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()


def deliver(cells: Iterable[CellIntake], offsets: Iterable[int] = ()) -> Delivery:
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
