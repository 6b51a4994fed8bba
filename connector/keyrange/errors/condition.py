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

    `retriable` says whether the same call may succeed later with nothing changed by a person.
    `meaning` is what has happened, and what has not. `look` is what to look at next. `guide` names
    a page of the guides, or is empty.
    """

    name: str
    kind: Kind
    retriable: bool
    remedy: str
    meaning: str
    look: str
    guide: str = ""
