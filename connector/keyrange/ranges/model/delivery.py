"""Which records of a split are handed out, where that is not all of them: a query that commits
individually takes up each key range where that stands, and single records again."""

from __future__ import annotations

from dataclasses import dataclass


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
