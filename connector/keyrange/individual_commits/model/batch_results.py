"""What a batch came to, for people: how many records failed, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import UNFIT_TEXT, Cause

_KINDS_SHOWN: Final = 5
# The name of an exception, in front of its text.
_EXCEPTION: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::| \(|\Z)")
# Where it was raised, behind its text.
_PLACE: Final = re.compile(r" \(([^()]+, line \d+, in [\w<>]+)\)\Z")
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

    @property
    def name(self) -> str:
        """The name of its exception, which quotes no record; "" where it has none."""
        if self.cause is not Cause.REJECTED or not self.is_exception:
            return ""
        if self.error.startswith(UNFIT_TEXT):
            return _UNFIT
        found = _EXCEPTION.match(self.error)
        return found[1] if found else ""

    @property
    def place(self) -> str:
        """File, line and function of its exception; "" where they are not known."""
        return _place(self.error) if self.is_exception else ""


@dataclass(frozen=True, slots=True)
class PendingError:
    """The last error of a pending record. `text` may be cut off, and may quote the record; `name`
    is that of its failure. Either is "" where it is not known."""

    text: str
    name: str


_Kinded = tuple[Cause, str, TopicPartition, int, str]
ErrorsByOffset = Mapping[tuple[TopicPartition, int], PendingError]


@dataclass(frozen=True, slots=True)
class FailureKind:
    """So many records are not done for one reason; one of them is at `offset` of `partition`.
    `error` is the name of an exception, and `place` where one was raised; "" where there is none or
    it is not known."""

    cause: Cause
    error: str
    records: int
    partition: TopicPartition
    offset: int
    place: str = ""

    @property
    def name(self) -> str:
        return self.error or self.cause.name.lower().replace("_", " ")

    def __str__(self) -> str:
        return f"{self.name} {self.records:,} (such as {self.example})"

    @property
    def example(self) -> str:
        return f"offset {self.offset} of {self.partition}{self.place and f'; {self.place}'}"


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
    return _kinds(
        (each.cause, each.name, each.partition, each.offset, each.place) for each in failures
    )


def pending_kinds(
    states: Mapping[TopicPartition, PartitionState], errors: ErrorsByOffset
) -> list[FailureKind]:
    """The kinds of pending records, the most frequent ones first, each with its first record.

    Records that wait for an earlier one of their key have not failed, and are a kind of their own.
    """
    unknown = PendingError("", "")

    def records() -> Iterator[_Kinded]:
        for partition, state in sorted(states.items()):
            for each in state.pending:
                failed = each.cause is Cause.REJECTED
                error = errors.get((partition, each.offset), unknown) if failed else unknown
                yield each.cause, error.name, partition, each.offset, _place(error.text)

    return _kinds(records())


def _kinds(records: Iterable[_Kinded]) -> list[FailureKind]:
    counts: dict[tuple[Cause, str], int] = {}
    first: dict[tuple[Cause, str], tuple[TopicPartition, int, str]] = {}
    for cause, error, partition, offset, place in records:
        kind = cause, error
        counts[kind] = counts.get(kind, 0) + 1
        first.setdefault(kind, (partition, offset, place))
    kinds = [
        FailureKind(cause, error, records, *first[cause, error])
        for (cause, error), records in counts.items()
    ]
    return sorted(kinds, key=lambda each: (-each.records, each.name))


def _place(error: str) -> str:
    found = _PLACE.search(error)
    return found[1] if found else ""


def kinds_text(kinds: Sequence[FailureKind]) -> str:
    """The most frequent ones, in one line."""
    more = len(kinds) - _KINDS_SHOWN
    shown = ", ".join(map(str, kinds[:_KINDS_SHOWN]))
    return f"{shown} and {more} other kinds" if more > 0 else shown
