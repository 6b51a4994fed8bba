"""What a row of the error catalogue is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What the operator does about it."""

    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    DENIED = "denied"
    DATA_LOSS = "data loss"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class Condition:
    """One row of the catalogue.

    `meaning` is what has happened, and what has not. `look` is what to look at next. `guide` names
    a page of the guides, or is empty. `passes`: another try may succeed, although of its kind none
    does.
    """

    name: str
    kind: Kind
    remedy: str
    meaning: str
    look: str
    guide: str = ""
    passes: bool = False

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later with nothing changed by a person."""
        return self.kind is Kind.UNAVAILABLE or self.passes
