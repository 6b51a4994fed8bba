"""What the throttle factor rests on, as a table.

`throttle_factor.py` moves by this table alone; `tests/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ThrottleState(StrEnum):
    """What is believed of the volumes."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    HELD = "HELD"
    RECOVERING = "RECOVERING"
    FALLBACK = "FALLBACK"
    # The same, and when something was known last a volume was too full.
    FALLBACK_HELD = "FALLBACK_HELD"


class ThrottleEvent(StrEnum):
    """What a reading says, or that none came; the text is what the diagram says."""

    VIOLATED = "a volume at or below the limit"
    BETWEEN = "none at the limit, not all recovered"
    CLEAR = "all recovered, not often or long enough"
    RECOVERED = "all recovered, often and long enough"
    EXPIRED = "nothing valid for longer than the validity"


# The factor is 0.0 in these.
HOLDING: Final = frozenset({ThrottleState.HELD, ThrottleState.RECOVERING})
FALLEN_BACK: Final = frozenset({ThrottleState.FALLBACK, ThrottleState.FALLBACK_HELD})


def _open(
    standing: ThrottleState, expired: ThrottleState
) -> dict[tuple[ThrottleState, ThrottleEvent], ThrottleState]:
    """Nothing was too full before: the limit alone counts."""
    return {
        (standing, ThrottleEvent.VIOLATED): ThrottleState.HELD,
        (standing, ThrottleEvent.BETWEEN): ThrottleState.OPEN,
        (standing, ThrottleEvent.CLEAR): ThrottleState.OPEN,
        (standing, ThrottleEvent.RECOVERED): ThrottleState.OPEN,
        (standing, ThrottleEvent.EXPIRED): expired,
    }


def _held(standing: ThrottleState) -> dict[tuple[ThrottleState, ThrottleEvent], ThrottleState]:
    """A volume was too full: it is believed to be until all have recovered."""
    return {
        (standing, ThrottleEvent.VIOLATED): ThrottleState.HELD,
        (standing, ThrottleEvent.BETWEEN): ThrottleState.HELD,
        (standing, ThrottleEvent.CLEAR): ThrottleState.RECOVERING,
        (standing, ThrottleEvent.RECOVERED): ThrottleState.OPEN,
        (standing, ThrottleEvent.EXPIRED): ThrottleState.FALLBACK_HELD,
    }


TRANSITIONS: Final[dict[tuple[ThrottleState, ThrottleEvent], ThrottleState]] = {
    **_open(ThrottleState.UNKNOWN, ThrottleState.FALLBACK),
    **_open(ThrottleState.OPEN, ThrottleState.FALLBACK),
    **_held(ThrottleState.HELD),
    **_held(ThrottleState.RECOVERING),
    **_open(ThrottleState.FALLBACK, ThrottleState.FALLBACK),
    **_held(ThrottleState.FALLBACK_HELD),
    # The fallback was in force meanwhile; to wait on would hold back for volumes that recovered.
    (ThrottleState.FALLBACK_HELD, ThrottleEvent.CLEAR): ThrottleState.OPEN,
}
