"""What a guard that enforces is doing, as a table.

`enforcement.py` moves by this table alone; `tests/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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


def _idle(stage: GuardState) -> dict[tuple[GuardState, GuardEvent], GuardState]:
    return {
        (stage, GuardEvent.BLIND): GuardState.UNKNOWN,
        (stage, GuardEvent.NOTHING): GuardState.OPEN,
        (stage, GuardEvent.FOREIGN): GuardState.STANDBY,
        (stage, GuardEvent.TAKE): GuardState.TAKING,
    }


def _holding(stage: GuardState) -> dict[tuple[GuardState, GuardEvent], GuardState]:
    return {
        (stage, GuardEvent.WAIT): stage,
        (stage, GuardEvent.LOST): GuardState.STANDBY,
        (stage, GuardEvent.FALL): GuardState.RAMPING,
        (stage, GuardEvent.REACHED): GuardState.FLOOR,
        (stage, GuardEvent.RISE): GuardState.RECOVERING,
        (stage, GuardEvent.RELEASE): GuardState.RELEASING,
    }


TRANSITIONS: Final[dict[tuple[GuardState, GuardEvent], GuardState]] = {
    **_idle(GuardState.UNKNOWN),
    **_idle(GuardState.OPEN),
    **_idle(GuardState.STANDBY),
    **_holding(GuardState.TAKING),
    **_holding(GuardState.RAMPING),
    **_holding(GuardState.FLOOR),
    **_holding(GuardState.RECOVERING),
    **_holding(GuardState.RELEASING),
    (GuardState.RELEASING, GuardEvent.DONE): GuardState.OPEN,
}
