"""What the throttle factor rests on, as a table.

`throttle_factor.py` moves by this table alone; `tests/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from keyrange.text.transitions import transitions


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

# Where a volume was too full before, it is believed to be until all have recovered; where none was,
# the limit alone counts.
TRANSITIONS: Final = transitions(
    ThrottleState,
    ThrottleEvent,
    """
    VIOLATED: UNKNOWN OPEN HELD RECOVERING FALLBACK FALLBACK_HELD -> HELD
    BETWEEN: UNKNOWN OPEN FALLBACK -> OPEN
    BETWEEN: HELD RECOVERING FALLBACK_HELD -> HELD
    CLEAR: UNKNOWN OPEN FALLBACK -> OPEN
    CLEAR: HELD RECOVERING -> RECOVERING
    # The fallback was in force meanwhile; to wait on would hold back for volumes that recovered.
    CLEAR: FALLBACK_HELD -> OPEN
    RECOVERED: UNKNOWN OPEN HELD RECOVERING FALLBACK FALLBACK_HELD -> OPEN
    EXPIRED: UNKNOWN OPEN FALLBACK -> FALLBACK
    EXPIRED: HELD RECOVERING FALLBACK_HELD -> FALLBACK_HELD
    """,
)
