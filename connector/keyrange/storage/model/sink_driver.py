"""Which of several drivers may still write to a user's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from keyrange.errors import KeyrangeError, error

# Batches have smaller numbers, and Delta takes larger ones.
_CLOSED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Driver:
    """Driver `number` of those that have begun one after the other, each in a source of its own or
    in that of the one before.

    It has stopped the drivers of the sources in `stopped`. `committed` has the last batch that is
    committed of each application whose records it takes up from there; -1 for none. `applications`
    are those by which the stopped drivers write.
    """

    source_id: str
    number: int
    stopped: frozenset[str] = frozenset()
    committed: Mapping[str, int] = field(default_factory=dict)
    applications: frozenset[str] = frozenset()

    @property
    def application(self) -> str:
        """Whose transactions in a table say which driver of the source wrote there last, or that a
        driver of another source has stopped it."""
        return application_of_driver(self.source_id)


@dataclass(frozen=True, slots=True)
class Writer:
    """A query that has written to a table, by a batch of it there, which was of `topics`; `plan`
    and `verdict` as of `note_of`."""

    application: str
    batch_id: int
    topics: frozenset[str]
    at_ms: int
    plan: str
    verdict: str = ""

    @property
    def query_id(self) -> str:
        return query_of(self.application)


def overtaken(number: int, **where: str) -> KeyrangeError:
    """What a driver is told that finds the number of one that has begun after it."""
    message = f"driver {number} has begun, by another query or with another commitGroup"
    return error("COMMITS_FENCED", message, **where)


def closed(version: int | None) -> int:
    """The version by which an application writes no more until it is opened again: a writer that
    knows nothing of drivers, as Spark's Delta, takes all of its batches for written."""
    return version if is_closed(version) else _CLOSED + 1 + (-1 if version is None else version)


def is_closed(version: int | None) -> TypeGuard[int]:
    return version is not None and version >= _CLOSED


def opened(version: int | None) -> int | None:
    """The last version that an application wrote itself; None for none."""
    if not is_closed(version):
        return version
    last = version - _CLOSED - 1
    return last if last >= 0 else None


def query_of(application: str) -> str:
    """The query of `application_of`."""
    return application.split(":")[1]


def application_of_driver(source_id: str) -> str:
    return f"keyrange:{source_id}:driver"


def application_of(query_id: str, source_id: str) -> str:
    """Whose transactions a table is written by, one for each batch."""
    return f"keyrange:{query_id}:{source_id}"
