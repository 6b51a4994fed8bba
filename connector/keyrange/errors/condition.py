"""What a row of the error catalogue is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

# What to look at where a store is not reached, or refuses.
ON_S3: Final = "on S3: AWS_* of the environment, or objectStore.*"


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

    kind: Kind
    name: str
    remedy: str
    meaning: str
    look: str
    guide: str = ""
    passes: bool = False

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later with nothing changed by a person."""
        return self.kind is Kind.UNAVAILABLE or self.passes


class Rows:
    """Makes the rows of a table, each by its kind; `guide` is that of a row which names none."""

    def __init__(self, guide: str = "") -> None:
        self.invalid = partial(Condition, Kind.INVALID, guide=guide)
        self.unavailable = partial(Condition, Kind.UNAVAILABLE, guide=guide)
        self.denied = partial(Condition, Kind.DENIED, guide=guide)
        self.data_loss = partial(Condition, Kind.DATA_LOSS, guide=guide)
        self.corrupt = partial(Condition, Kind.CORRUPT, guide=guide)
