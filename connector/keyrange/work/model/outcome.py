"""What became of a record that was handed out and is not done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

# How the error of a record begins whose row has a value that its column does not take.
UNFIT_TEXT: Final = "the function's row does not fit its schema"


class Cause(IntEnum):
    """Why a record that was handed out is not done."""

    REJECTED = 1
    TIMED_OUT = 2
    # An earlier record of its key is not done; it was not worked on.
    HELD_BACK = 3
    # The job said nothing of it, and is to say something of every record.
    UNMENTIONED = 4
    # Its value can never be read: it is given up at once, and its key does not wait for it.
    UNREADABLE = 5
    # It has no key, and the job keeps state for keys: it is given up at once.
    NO_KEY = 6
    # Its event time is before the watermark, and the job gives such records up.
    LATE = 7
    # It has no event time, and the job goes by that: it is given up at once.
    NO_TIME = 8
    # A timer of its key has failed, and is tried again first; it was not worked on.
    AWAITS_TIMER = 9

    @property
    def is_final(self) -> bool:
        """Whether no further delivery can help."""
        return self in (Cause.UNREADABLE, Cause.NO_KEY, Cause.LATE, Cause.NO_TIME)

    @property
    def was_worked_on(self) -> bool:
        return self not in (Cause.HELD_BACK, Cause.AWAITS_TIMER)

    def is_given_up(self, deliveries: int, deliveries_max: int) -> bool:
        """Whether a record becomes a dead letter that was not done in its `deliveries`th delivery:
        by a cause that no further one mends, or after `deliveries_max` of them."""
        return self.is_final or (self.was_worked_on and deliveries >= deliveries_max)


@dataclass(frozen=True, slots=True, order=True)
class RecordOutcome:
    """A record that is not done, and why. `error` is its text where the one who reads it asked;
    `late` as of `Record`."""

    offset: int
    key_hash: int
    cause: Cause
    error: str | None = field(default=None, compare=False)
    late: bool = False
