"""Who reads which key ranges of a partition: the cut of the hash space that a plan fixes.

Readers are numbered from 0. Spark's tasks are readers of one partition side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from keyrange.core.key_ranges import HASH_MAX, KeyRange

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
        uppers: list[int] = []
        owners: list[int] = []
        for upper, owner in zip(self.uppers, self.owners, strict=True):
            mine = 0 if owner == self.reader else NOBODY
            if owners and owners[-1] == mine:
                uppers[-1] = upper
            else:
                uppers.append(upper)
                owners.append(mine)
        return Placement(tuple(uppers), tuple(owners), 0)

    def ranges(self) -> list[KeyRange]:
        """What this reader reads, in order."""
        lowers = [0, *(upper + 1 for upper in self.uppers[:-1])]
        return [
            KeyRange(lower, upper + 1)
            for lower, upper, owner in zip(lowers, self.uppers, self.owners, strict=True)
            if owner == self.reader
        ]


def place(readers: Sequence[Sequence[KeyRange]]) -> Placement:
    """The cut in which reader n reads `readers[n]`; nothing may be read by two of them.

    Hashes in no range are nobody's, and a reader's neighbours are joined. The placement is in the
    hands of reader 0.
    """
    owned = sorted((span, reader) for reader, spans in enumerate(readers) for span in spans)
    uppers: list[int] = []
    owners: list[int] = []
    at = 0
    for span, reader in owned:
        if span.from_hash < at:
            raise ValueError(f"{span} is read twice")
        if span.from_hash > at:
            uppers.append(span.from_hash - 1)
            owners.append(NOBODY)
        if owners and owners[-1] == reader:
            # What was cut only to be dealt out would make every task as large as all ranges.
            uppers[-1] = span.until_hash - 1
        else:
            uppers.append(span.until_hash - 1)
            owners.append(reader)
        at = span.until_hash
    if at <= HASH_MAX:
        uppers.append(HASH_MAX)
        owners.append(NOBODY)
    return Placement(tuple(uppers), tuple(owners), 0)
