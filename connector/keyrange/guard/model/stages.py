"""What a guard that enforces is doing, as a table.

`enforcement.py` moves by this table alone; `observing/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    STANDBY = "STANDBY"
    TAKING = "TAKING"
    RAMPING = "RAMPING"
    FLOOR = "FLOOR"
    RECOVERING = "RECOVERING"
    RELEASING = "RELEASING"


class Sign(StrEnum):
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
IDLE: Final = frozenset({Stage.UNKNOWN, Stage.OPEN, Stage.STANDBY})


def _idle(stage: Stage) -> dict[tuple[Stage, Sign], Stage]:
    return {
        (stage, Sign.BLIND): Stage.UNKNOWN,
        (stage, Sign.NOTHING): Stage.OPEN,
        (stage, Sign.FOREIGN): Stage.STANDBY,
        (stage, Sign.TAKE): Stage.TAKING,
    }


def _holding(stage: Stage) -> dict[tuple[Stage, Sign], Stage]:
    return {
        (stage, Sign.WAIT): stage,
        (stage, Sign.LOST): Stage.STANDBY,
        (stage, Sign.FALL): Stage.RAMPING,
        (stage, Sign.REACHED): Stage.FLOOR,
        (stage, Sign.RISE): Stage.RECOVERING,
        (stage, Sign.RELEASE): Stage.RELEASING,
    }


TRANSITIONS: Final[dict[tuple[Stage, Sign], Stage]] = {
    **_idle(Stage.UNKNOWN),
    **_idle(Stage.OPEN),
    **_idle(Stage.STANDBY),
    **_holding(Stage.TAKING),
    **_holding(Stage.RAMPING),
    **_holding(Stage.FLOOR),
    **_holding(Stage.RECOVERING),
    **_holding(Stage.RELEASING),
    (Stage.RELEASING, Sign.DONE): Stage.OPEN,
}
