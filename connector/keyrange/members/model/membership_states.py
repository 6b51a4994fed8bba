"""What a name is to the assignment, as a table.

`reassignment_timing.py` moves by this table alone; `tests/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class MembershipState(StrEnum):
    """UNKNOWN is what no name that is kept has: the diagram's begin and end."""

    UNKNOWN = "UNKNOWN"
    JOINING = "JOINING"
    ASSIGNED = "ASSIGNED"
    RESIZED = "RESIZED"
    ABSENT = "ABSENT"
    REMOVED = "REMOVED"


class MemberEvent(StrEnum):
    """What is learned of a name; the text is what the diagram says."""

    SEEN = "seen"
    SEEN_RESIZED = "seen with another capacity"
    MISSING = "missing"
    REMOVE = "removed by command"
    TAKEN_IN = "in a reassignment"
    LEFT_OUT = "not in a reassignment"


# In the group at this time, as far as is known.
PRESENT: Final = frozenset(
    {MembershipState.JOINING, MembershipState.ASSIGNED, MembershipState.RESIZED}
)
# These have key ranges.
ASSIGNED: Final = frozenset(
    {
        MembershipState.ASSIGNED,
        MembershipState.RESIZED,
        MembershipState.ABSENT,
        MembershipState.REMOVED,
    }
)
# These wait together for the expansion timeout.
GATHERED: Final = frozenset({MembershipState.JOINING, MembershipState.RESIZED})

TRANSITIONS: Final[dict[tuple[MembershipState, MemberEvent], MembershipState]] = {
    (MembershipState.UNKNOWN, MemberEvent.SEEN): MembershipState.JOINING,
    # It joined, and was gone again before the reassignment was written.
    (MembershipState.UNKNOWN, MemberEvent.TAKEN_IN): MembershipState.ABSENT,
    (MembershipState.JOINING, MemberEvent.SEEN): MembershipState.JOINING,
    (MembershipState.JOINING, MemberEvent.MISSING): MembershipState.UNKNOWN,
    (MembershipState.JOINING, MemberEvent.REMOVE): MembershipState.UNKNOWN,
    (MembershipState.JOINING, MemberEvent.TAKEN_IN): MembershipState.ASSIGNED,
    (MembershipState.JOINING, MemberEvent.LEFT_OUT): MembershipState.JOINING,
    (MembershipState.ASSIGNED, MemberEvent.SEEN): MembershipState.ASSIGNED,
    (MembershipState.ASSIGNED, MemberEvent.SEEN_RESIZED): MembershipState.RESIZED,
    (MembershipState.ASSIGNED, MemberEvent.MISSING): MembershipState.ABSENT,
    (MembershipState.ASSIGNED, MemberEvent.REMOVE): MembershipState.REMOVED,
    (MembershipState.ASSIGNED, MemberEvent.TAKEN_IN): MembershipState.ASSIGNED,
    # It came back between the decision and its writing.
    (MembershipState.ASSIGNED, MemberEvent.LEFT_OUT): MembershipState.JOINING,
    (MembershipState.RESIZED, MemberEvent.SEEN): MembershipState.ASSIGNED,
    (MembershipState.RESIZED, MemberEvent.SEEN_RESIZED): MembershipState.RESIZED,
    (MembershipState.RESIZED, MemberEvent.MISSING): MembershipState.ABSENT,
    (MembershipState.RESIZED, MemberEvent.REMOVE): MembershipState.REMOVED,
    (MembershipState.RESIZED, MemberEvent.TAKEN_IN): MembershipState.ASSIGNED,
    (MembershipState.RESIZED, MemberEvent.LEFT_OUT): MembershipState.JOINING,
    (MembershipState.ABSENT, MemberEvent.SEEN): MembershipState.ASSIGNED,
    (MembershipState.ABSENT, MemberEvent.SEEN_RESIZED): MembershipState.RESIZED,
    (MembershipState.ABSENT, MemberEvent.MISSING): MembershipState.ABSENT,
    (MembershipState.ABSENT, MemberEvent.REMOVE): MembershipState.REMOVED,
    (MembershipState.ABSENT, MemberEvent.TAKEN_IN): MembershipState.ABSENT,
    (MembershipState.ABSENT, MemberEvent.LEFT_OUT): MembershipState.UNKNOWN,
    # A command is carried out, whoever comes back in between: it joins afterwards.
    (MembershipState.REMOVED, MemberEvent.SEEN): MembershipState.REMOVED,
    (MembershipState.REMOVED, MemberEvent.SEEN_RESIZED): MembershipState.REMOVED,
    (MembershipState.REMOVED, MemberEvent.MISSING): MembershipState.REMOVED,
    (MembershipState.REMOVED, MemberEvent.REMOVE): MembershipState.REMOVED,
    (MembershipState.REMOVED, MemberEvent.TAKEN_IN): MembershipState.REMOVED,
    (MembershipState.REMOVED, MemberEvent.LEFT_OUT): MembershipState.UNKNOWN,
}
