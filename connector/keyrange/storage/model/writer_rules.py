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
# Its merges do not know the others, or would not keep to them.
DELTA_RS: Final = WriterRules(
    "delta-rs", _PLAIN - {"deletionVectors", "inCommitTimestamp", "typeWidening", "v2Checkpoint"}
)
SPARK: Final = WriterRules("the session's Delta", None)
