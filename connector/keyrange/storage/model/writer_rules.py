"""Who writes a Delta table, and which of a table's features they keep to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# What a writer that appends files of plain columns may leave alone, or what it is seen by whether
# a table makes use of it.
_PLAIN: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)


@dataclass(frozen=True, slots=True)
class WriterRules:
    """A writer by its name in messages. `features`: those that a table may have; None for one that
    keeps to a table's rules, and says itself which features it lacks. `other_zone`:
    the time zone of the days and hours that the table generates, "" where that is UTC, in which it
    computes them."""

    name: str
    features: frozenset[str] | None
    other_zone: str = ""

    @property
    def keeps_rules(self) -> bool:
        """Whether rows are held to constraints, and columns computed that the table generates."""
        return self.features is None


OWN: Final = WriterRules("keyrange", _PLAIN)
# Of rows that a file lists as deleted it would know nothing.
MERGED: Final = WriterRules("keyrange", _PLAIN - {"deletionVectors"})
SPARK: Final = WriterRules("the session's Delta", None)
