"""Who reads which key ranges of a partition: the cut of the hash space that a plan fixes.

Readers are numbered from 0. Spark's tasks are readers of one partition side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from keyrange.errors import error
from keyrange.model.key_ranges import HASH_MAX, KeyRange

NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class Placement:
    """The cells of a cut, each ending at `uppers[i]` (included) and read by `owners[i]`, who may be
    NOBODY; `reader` is the one that this placement was handed to."""

    uppers: tuple[int, ...]
    owners: tuple[int, ...]
    reader: int

    @property
    def readers(self) -> int:
        return max(self.owners) + 1

    def of(self, reader: int) -> Placement:
        """The same cut, in the hands of another reader."""
        return replace(self, reader=reader)

    def alone(self) -> Placement:
        """As if this reader were the only one: what others read is nobody's, neighbours are joined.

        It is what a reader needs that shares nothing.
        """
        cells = zip(self.uppers, self.owners, strict=True)
        return _joined((upper, 0 if owner == self.reader else NOBODY) for upper, owner in cells)

    def ranges(self) -> list[KeyRange]:
        """What this reader reads, in order."""
        lowers = [0, *(upper + 1 for upper in self.uppers[:-1])]
        return [
            KeyRange(lower, upper + 1)
            for lower, upper, owner in zip(lowers, self.uppers, self.owners, strict=True)
            if owner == self.reader
        ]


def placement_of(readers: Sequence[Sequence[KeyRange]]) -> Placement:
    """The cut in which reader n reads `readers[n]`. Raises INCONSISTENT_PLAN where two of them
    read the same.

    Hashes in no range are nobody's, and a reader's neighbours are joined. The placement is in the
    hands of reader 0.
    """
    owned = sorted((span, reader) for reader, spans in enumerate(readers) for span in spans)
    cells: list[tuple[int, int]] = []
    at = 0
    for span, reader in owned:
        if span.from_hash < at:
            raise error("INCONSISTENT_PLAN", f"two readers of the plan read key range {span}")
        if span.from_hash > at:
            cells.append((span.from_hash - 1, NOBODY))
        cells.append((span.until_hash - 1, reader))
        at = span.until_hash
    if at <= HASH_MAX:
        cells.append((HASH_MAX, NOBODY))
    return _joined(cells)


def _joined(cells: Iterable[tuple[int, int]]) -> Placement:
    """A placement of cells, each an upper bound and its owner, in the hands of reader 0.

    Neighbours of one owner become one: what was cut only to be dealt out would make every task as
    large as all ranges.
    """
    uppers: list[int] = []
    owners: list[int] = []
    for upper, owner in cells:
        if owners and owners[-1] == owner:
            uppers[-1] = upper
        else:
            uppers.append(upper)
            owners.append(owner)
    return Placement(tuple(uppers), tuple(owners), 0)
