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
    """

    name: str
    kind: Kind
    retriable: bool
    remedy: str
