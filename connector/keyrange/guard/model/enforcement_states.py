"""What a guard that enforces is doing, as a table.

`enforcement.py` moves by this table alone; `tests/commands/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from keyrange.text.transitions import transitions


class GuardState(StrEnum):
    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    STANDBY = "STANDBY"
    TAKING = "TAKING"
    RAMPING = "RAMPING"
    FLOOR = "FLOOR"
    RECOVERING = "RECOVERING"
    RELEASING = "RELEASING"


class GuardEvent(StrEnum):
    """What a look at the quotas and the factor come to; the text is what the diagram says."""

    BLIND = "nothing known of the volumes, nothing held"
    NOTHING = "nothing to hold, nothing held"
    FOREIGN = "another's lease may live"
    TAKE = "something to hold or to release"
    LOST = "lease lost, or not renewed"
    WAIT = "lease not seen yet, or too little known of the volumes"
    FALL = "rates not yet where the factor wants them"
    REACHED = "all rates where the factor wants them"
    RISE = "factor 1.0"
    RELEASE = "risen, in time or at the end"
    DONE = "nothing held any more"


# Whoever is in these has no lease, and writes nothing but a lease.
IDLE: Final = frozenset({GuardState.UNKNOWN, GuardState.OPEN, GuardState.STANDBY})

TRANSITIONS: Final = transitions(
    GuardState,
    GuardEvent,
    """
    BLIND: UNKNOWN OPEN STANDBY -> UNKNOWN
    NOTHING: UNKNOWN OPEN STANDBY -> OPEN
    FOREIGN: UNKNOWN OPEN STANDBY -> STANDBY
    TAKE: UNKNOWN OPEN STANDBY -> TAKING
    WAIT: TAKING RAMPING FLOOR RECOVERING RELEASING -> same
    LOST: TAKING RAMPING FLOOR RECOVERING RELEASING -> STANDBY
    FALL: TAKING RAMPING FLOOR RECOVERING RELEASING -> RAMPING
    REACHED: TAKING RAMPING FLOOR RECOVERING RELEASING -> FLOOR
    RISE: TAKING RAMPING FLOOR RECOVERING RELEASING -> RECOVERING
    RELEASE: TAKING RAMPING FLOOR RECOVERING RELEASING -> RELEASING
    DONE: RELEASING -> OPEN
    """,
)
