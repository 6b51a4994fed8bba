"""What is known of a run when it has ended: what was sent, what was found, what was done to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where a record is in Kafka. `n` tells it from another one at the same place of a topic that
    was made anew or cut back."""

    partition: int
    offset: int
    n: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. `at` says when it was worked on, and `version` in which version of the
    table it came; either is compared within a key only. `seen`: how many records of its key were
    done with it, by the state that the query kept; None where it keeps none. `writer`: how many
    added fields the value has. `added` are the values of those that its file has a column for.
    `late`: whether it was worked on as a late record."""

    place: Place
    key: str
    run: str
    at: tuple[int, ...]
    version: int = 0
    seen: int | None = None
    writer: int = 0
    added: tuple[int | None, ...] = ()
    late: bool = False


class Batch(NamedTuple):
    """A batch of a source."""

    source_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. `cause` says why the record was given up."""

    place: Place
    key: str
    attempts: int
    cause: str = "rejected"
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A row of a window of a key, with its records. Times are in microseconds since 1970; `total`
    is the sum of the records' numbers. `version`: of the table."""

    key: str
    start_us: int
    end_us: int
    count: int
    total: int
    places: tuple[Place, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a partition before a batch, by the commits: nothing from `until_offset` on,
    and all below `all_until_offset`."""

    all_until_offset: int
    until_offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class Timed:
    """Of a run whose job goes by time. `kind`: of its windows, session, timers or clock.
    `times_ms`: of records by their numbers. `batches`: which batch brought a version of the table;
    `reads`: what was read before a batch."""

    kind: str
    windows: Sequence[Window]
    times_ms: Mapping[int, int]
    batches: Mapping[int, Batch] = field(default_factory=dict)
    reads: Mapping[Batch, Mapping[int, Read]] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether records have rows of their own, and not only those of their windows."""
        return self.kind != "session"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition stood at a step of a history (`of` names the history), in its order.

    `moved_back` where somebody asked for that."""

    of: str
    step: int
    partition: int
    topic_id: str
    offset: int
    moved_back: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Offsets [from_offset, until_offset) of a partition that somebody had handed out again."""

    partition: int
    from_offset: int
    until_offset: int

    def handed(self, place: Place) -> bool:
        return (
            self.partition == place.partition
            and self.from_offset <= place.offset < self.until_offset
        )


class ResetCommit(NamedTuple):
    """A commit that somebody wrote by hand."""

    source_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Gone:
    """What a fault took away: of `partition` (-1: all) the records from `from_offset` on and before
    `until_offset` with numbers below `until_n`. They may be missing."""

    fault: str
    partition: int
    from_offset: int
    until_offset: int
    until_n: int

    def took(self, place: Place) -> bool:
        return (
            self.partition in (-1, place.partition)
            and self.from_offset <= place.offset < self.until_offset
            and place.n < self.until_n
        )


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table: how many added fields it has, and of its new files the one with the
    most; None where it has no new files."""

    number: int
    fields: int
    written: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a driver, when the table was at `version` (-1: there was none) and values had so
    many added `fields`; `alone` where no other driver ran."""

    version: int
    fields: int
    alone: bool


@dataclass(frozen=True, slots=True)
class End:
    """An end of a driver that nobody had asked to stop. `why` is an error's name, or KILLED.

    `allowed` are the ends that the faults of the last while may have brought about."""

    at_s: float
    why: str
    text: str
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Facts:
    """All of a run. `log` is what Kafka holds at the end. `unsure` are numbers that were sent and
    never acknowledged: they may be there, at most once. A record is given up after `deliveries_max`
    times that it was worked on."""

    run: str
    sent: Mapping[Place, str]
    rows: Sequence[Row]
    letters: Sequence[Letter] = ()
    log: frozenset[Place] = frozenset()
    unsure: frozenset[int] = frozenset()
    gone: Sequence[Gone] = ()
    again: Sequence[Again] = ()
    # Numbers that nobody had acknowledged when a log was cut back: a producer that sent them again
    # may have written them twice, to the log that was cut off and in its place.
    in_both_logs: frozenset[int] = frozenset()
    # Dead letters that somebody had worked on once more.
    replayed: frozenset[Place] = frozenset()
    # What was asked for again when Kafka no longer had it.
    unreadable: frozenset[Place] = frozenset()
    positions: Sequence[Position] = ()
    ends: Sequence[End] = ()
    # What the checks of the product and of the machine said: each is a finding.
    complaints: Sequence[tuple[str, str]] = field(default_factory=tuple)
    deliveries_max: int = 1
    # The rows of a table that holds the last one of each key, and of one that has those of some
    # records; None where there is no such table.
    last: Sequence[Row] | None = None
    copies: Sequence[Row] | None = None
    # What the versions of tables to which rows are appended have, by the names of the tables.
    versions: Mapping[str, Sequence[Version]] = field(default_factory=dict)
    starts: Sequence[Start] = ()
    # Of a job that goes by event time.
    timed: Timed | None = None
