"""What a batch came to, for people: how many records failed, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.work.model.outcome import UNFIT_TEXT, Cause

_KINDS_SHOWN: Final = 5
# The name of an exception, in front of its text.
_EXCEPTION: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::|\Z)")
_UNFIT: Final = "a value that does not fit its column"


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed. `error` may be cut off, and may quote the record; it begins with the
    name of an exception, or is a text of the job where not `is_exception`."""

    partition: TopicPartition
    offset: int
    cause: Cause
    error: str
    is_exception: bool = True


@dataclass(frozen=True, slots=True)
class FailureKind:
    """So many records failed in one way; one of them is at `offset` of `partition`."""

    name: str
    records: int
    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.name} {self.records:,} (such as offset {self.offset} of {self.partition})"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch did, in records, and how many are `pending` after it: neither done nor dead.

    `failed` were worked on and are not done; some of these are `dead`. `held_back` waited for them.
    """

    done: int
    failed: int
    held_back: int
    dead: int
    pending: int


def failure_kinds(failures: Iterable[Failure]) -> list[FailureKind]:
    """The kinds of some failures, the most frequent ones first.

    An error is told by the name of its exception alone: its text may quote a record.
    """
    found: dict[str, tuple[int, Failure]] = {}
    for each in failures:
        name = _kind(each)
        records, first = found.get(name, (0, each))
        found[name] = (records + 1, first)
    kinds = [
        FailureKind(name, records, first.partition, first.offset)
        for name, (records, first) in found.items()
    ]
    return sorted(kinds, key=lambda each: (-each.records, each.name))


def _kind(failure: Failure) -> str:
    if failure.cause is Cause.REJECTED and failure.is_exception:
        if failure.error.startswith(UNFIT_TEXT):
            return _UNFIT
        if name := _EXCEPTION.match(failure.error):
            return name[1]
    return failure.cause.name.lower().replace("_", " ")


def kinds_text(kinds: Sequence[FailureKind]) -> str:
    """The most frequent ones, in one line."""
    more = len(kinds) - _KINDS_SHOWN
    shown = ", ".join(map(str, kinds[:_KINDS_SHOWN]))
    return f"{shown} and {more} other kinds" if more > 0 else shown
