"""What a merge did with the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Merged:
    """How many rows of a table a merge has changed."""

    updated: int = 0
    inserted: int = 0
    deleted: int = 0

    def __str__(self) -> str:
        counts = f"inserted {self.inserted:,}, deleted {self.deleted:,}"
        return f"updated {self.updated:,} rows, {counts}"

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.updated + other.updated,
            self.inserted + other.inserted,
            self.deleted + other.deleted,
        )
