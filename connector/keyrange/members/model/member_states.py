"""What a name is to the assignment, as a table.

`membership.py` moves by this table alone; `observing/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Standing(StrEnum):
    """UNKNOWN is what no name that is kept has: the diagram's begin and end."""

    UNKNOWN = "UNKNOWN"
    JOINING = "JOINING"
    ASSIGNED = "ASSIGNED"
    RESIZED = "RESIZED"
    ABSENT = "ABSENT"
    REMOVED = "REMOVED"


class Sign(StrEnum):
    """What is learned of a name; the text is what the diagram says."""

    SEEN = "seen"
    SEEN_RESIZED = "seen with another capacity"
    MISSING = "missing"
    REMOVE = "removed by command"
    TAKEN_IN = "in a reassignment"
    LEFT_OUT = "not in a reassignment"


# In the group at this time, as far as is known.
PRESENT: Final = frozenset({Standing.JOINING, Standing.ASSIGNED, Standing.RESIZED})
# These have key ranges.
ASSIGNED: Final = frozenset(
    {Standing.ASSIGNED, Standing.RESIZED, Standing.ABSENT, Standing.REMOVED}
)
# These wait together for the expansion timeout.
GATHERED: Final = frozenset({Standing.JOINING, Standing.RESIZED})

TRANSITIONS: Final[dict[tuple[Standing, Sign], Standing]] = {
    (Standing.UNKNOWN, Sign.SEEN): Standing.JOINING,
    # It joined, and was gone again before the reassignment was written.
    (Standing.UNKNOWN, Sign.TAKEN_IN): Standing.ABSENT,
    (Standing.JOINING, Sign.SEEN): Standing.JOINING,
    (Standing.JOINING, Sign.MISSING): Standing.UNKNOWN,
    (Standing.JOINING, Sign.REMOVE): Standing.UNKNOWN,
    (Standing.JOINING, Sign.TAKEN_IN): Standing.ASSIGNED,
    (Standing.JOINING, Sign.LEFT_OUT): Standing.JOINING,
    (Standing.ASSIGNED, Sign.SEEN): Standing.ASSIGNED,
    (Standing.ASSIGNED, Sign.SEEN_RESIZED): Standing.RESIZED,
    (Standing.ASSIGNED, Sign.MISSING): Standing.ABSENT,
    (Standing.ASSIGNED, Sign.REMOVE): Standing.REMOVED,
    (Standing.ASSIGNED, Sign.TAKEN_IN): Standing.ASSIGNED,
    # It came back between the decision and its writing.
    (Standing.ASSIGNED, Sign.LEFT_OUT): Standing.JOINING,
    (Standing.RESIZED, Sign.SEEN): Standing.ASSIGNED,
    (Standing.RESIZED, Sign.SEEN_RESIZED): Standing.RESIZED,
    (Standing.RESIZED, Sign.MISSING): Standing.ABSENT,
    (Standing.RESIZED, Sign.REMOVE): Standing.REMOVED,
    (Standing.RESIZED, Sign.TAKEN_IN): Standing.ASSIGNED,
    (Standing.RESIZED, Sign.LEFT_OUT): Standing.JOINING,
    (Standing.ABSENT, Sign.SEEN): Standing.ASSIGNED,
    (Standing.ABSENT, Sign.SEEN_RESIZED): Standing.RESIZED,
    (Standing.ABSENT, Sign.MISSING): Standing.ABSENT,
    (Standing.ABSENT, Sign.REMOVE): Standing.REMOVED,
    (Standing.ABSENT, Sign.TAKEN_IN): Standing.ABSENT,
    (Standing.ABSENT, Sign.LEFT_OUT): Standing.UNKNOWN,
    # A command is carried out, whoever comes back in between: it joins afterwards.
    (Standing.REMOVED, Sign.SEEN): Standing.REMOVED,
    (Standing.REMOVED, Sign.SEEN_RESIZED): Standing.REMOVED,
    (Standing.REMOVED, Sign.MISSING): Standing.REMOVED,
    (Standing.REMOVED, Sign.REMOVE): Standing.REMOVED,
    (Standing.REMOVED, Sign.TAKEN_IN): Standing.REMOVED,
    (Standing.REMOVED, Sign.LEFT_OUT): Standing.UNKNOWN,
}
