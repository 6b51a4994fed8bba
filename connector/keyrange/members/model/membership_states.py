"""How a name stands with its driver, or the leader of its group, and what it comes to."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from keyrange.text.transitions import transitions


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

# The state moves by this table alone; `tests/commands/diagrams.py` draws it.
TRANSITIONS: Final = transitions(
    MembershipState,
    MemberEvent,
    """
    SEEN: UNKNOWN JOINING -> JOINING
    SEEN: ASSIGNED RESIZED ABSENT -> ASSIGNED
    SEEN_RESIZED: ASSIGNED RESIZED ABSENT -> RESIZED
    MISSING: JOINING -> UNKNOWN
    MISSING: ASSIGNED RESIZED ABSENT -> ABSENT
    REMOVE: JOINING -> UNKNOWN
    REMOVE: ASSIGNED RESIZED ABSENT -> REMOVED
    # A command is carried out, whoever comes back in between: it joins afterwards.
    SEEN SEEN_RESIZED MISSING REMOVE TAKEN_IN: REMOVED -> REMOVED
    TAKEN_IN: JOINING ASSIGNED RESIZED -> ASSIGNED
    # It joined, and was gone again before the reassignment was written.
    TAKEN_IN: UNKNOWN ABSENT -> ABSENT
    # From ASSIGNED: it came back between the decision and its writing.
    LEFT_OUT: JOINING ASSIGNED RESIZED -> JOINING
    LEFT_OUT: ABSENT REMOVED -> UNKNOWN
    """,
)
