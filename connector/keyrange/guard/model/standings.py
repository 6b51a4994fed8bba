"""What the throttle factor rests on, as a table.

`policy.py` moves by this table alone; `observing/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Standing(StrEnum):
    """What is believed of the volumes."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    HELD = "HELD"
    RECOVERING = "RECOVERING"
    FALLBACK = "FALLBACK"
    # The same, and when something was known last a volume was too full.
    FALLBACK_HELD = "FALLBACK_HELD"


class Sign(StrEnum):
    """What a reading says, or that none came; the text is what the diagram says."""

    VIOLATED = "a volume at or below the limit"
    BETWEEN = "none at the limit, not all recovered"
    CLEAR = "all recovered, not often or long enough"
    RECOVERED = "all recovered, often and long enough"
    EXPIRED = "nothing valid for longer than the validity"


# The factor is 0.0 in these.
HOLDING: Final = frozenset({Standing.HELD, Standing.RECOVERING})
FALLEN_BACK: Final = frozenset({Standing.FALLBACK, Standing.FALLBACK_HELD})


def _open(standing: Standing, expired: Standing) -> dict[tuple[Standing, Sign], Standing]:
    """Nothing was too full before: the limit alone counts."""
    return {
        (standing, Sign.VIOLATED): Standing.HELD,
        (standing, Sign.BETWEEN): Standing.OPEN,
        (standing, Sign.CLEAR): Standing.OPEN,
        (standing, Sign.RECOVERED): Standing.OPEN,
        (standing, Sign.EXPIRED): expired,
    }


def _held(standing: Standing) -> dict[tuple[Standing, Sign], Standing]:
    """A volume was too full: it is believed to be until all have recovered."""
    return {
        (standing, Sign.VIOLATED): Standing.HELD,
        (standing, Sign.BETWEEN): Standing.HELD,
        (standing, Sign.CLEAR): Standing.RECOVERING,
        (standing, Sign.RECOVERED): Standing.OPEN,
        (standing, Sign.EXPIRED): Standing.FALLBACK_HELD,
    }


TRANSITIONS: Final[dict[tuple[Standing, Sign], Standing]] = {
    **_open(Standing.UNKNOWN, Standing.FALLBACK),
    **_open(Standing.OPEN, Standing.FALLBACK),
    **_held(Standing.HELD),
    **_held(Standing.RECOVERING),
    **_open(Standing.FALLBACK, Standing.FALLBACK),
    **_held(Standing.FALLBACK_HELD),
    # The fallback was in force meanwhile; to wait on would hold back for volumes that recovered.
    (Standing.FALLBACK_HELD, Sign.CLEAR): Standing.OPEN,
}
