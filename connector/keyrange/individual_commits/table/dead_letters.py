"""The dead letters: records that were given up, with all that is needed to work on them again.

The table takes appends only. A row of kind `dead` is a record that was given up in a batch; one of
kind `replayed` says of such a row that the record was handed out again. `dead_letter_replay.Resets`
finds what no row says. A row of kind `timer` is a timer of a key that was given up: it was due at
`timer_at`, and is of no offset. One of kind `timer_replayed` is written before the timer is set
again, and counts if a commit is of run `replay_run`: only then it was set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.individual_commits.table.commit_table import TABLE_CONDITIONS
from keyrange.options.commits import CommitOptions
from keyrange.storage.conflict_retry import Entry, RetryingWriter
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.table_store import Bounds, Layout, Store, Transaction
from keyrange.work.model.outcome import Cause

if TYPE_CHECKING:
    from keyrange.individual_commits.model.commit import Commit

_TIME = pa.timestamp("us", tz="UTC")
# Delta names the elements of a list so.
_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("group", pa.string()),
        ("source_id", pa.string()),
        ("query_id", pa.string()),
        ("batch_id", pa.int64()),
        ("written_at", _TIME),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("timestamp", _TIME),
        ("error", pa.string()),
        ("frames", pa.list_(pa.field("element", pa.string()))),
        ("cause", pa.string()),
        ("attempts", pa.int32()),
        ("timer_at", _TIME),
        ("first_at", _TIME),
        ("last_at", _TIME),
        ("who", pa.string()),
        ("replayed_to", pa.string()),
        ("replay_run", pa.string()),
    ]
)
LAYOUT: Final = Layout(
    "dead letters",
    1,
    SCHEMA,
    ("kind", "source_id", "batch_id", "written_at", "topic", "partition", "offset"),
    "batch_id",
    TABLE_CONDITIONS,
)
# Fields that have a column of their name: whose they are, and what else of a letter is one value.
_OF_BATCH: Final = (
    *("group", "source_id", "query_id", "batch_id"),
    *("topic", "topic_id", "partition"),
)
_ORIGIN: Final = (*_OF_BATCH, "offset")
_OF_RECORD: Final = (*_ORIGIN, "key", "value", "error", "attempts")
_OF_TIMER: Final = (*_OF_BATCH, "key", "error", "attempts")
_TIMER: Final = "timer"
_TIMER_REPLAYED: Final = "timer_replayed"
_LARGE: Final = ("value", "headers", "frames")
# What tells one dead letter from all others, by its row.
_NAME: Final = itemgetter("source_id", "batch_id", "topic", "partition", "offset")
_TIMER_NAME: Final = itemgetter("source_id", "batch_id", "topic", "partition", "key", "timer_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class _GivenUp:
    """What a batch gave up. Times are ms since 1970. `attempts` counts how often it was worked on,
    last at `last_at_ms`. `frames` say where in the user's program the error was raised, outermost
    first. The last three are of a letter that was read: when it was written, who had what it is of
    handed out again since, and how."""

    group: str
    source_id: str
    query_id: str
    batch_id: int
    topic: str
    topic_id: str
    partition: int
    error: str = ""
    frames: tuple[str, ...] = ()
    cause: Cause = Cause.REJECTED
    attempts: int = 0
    last_at_ms: int = 0
    written_at_ms: int = 0
    replayed_by: str | None = None
    replayed_to: str | None = None

    @property
    def status(self) -> str:
        return "dead" if self.replayed_by is None else "replayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(_GivenUp):
    """One record that was given up. It was worked on first at `first_at_ms`; `timestamp_ms` is the
    record's own."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    first_at_ms: int = 0

    @property
    def subject(self) -> Subject:
        """What tells its record from all others."""
        return self.topic, self.topic_id, self.partition, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerLetter(_GivenUp):
    """One timer that was given up. It was due at `timer_at_us`, in microseconds since 1970, by the
    time that its job goes by. `replay_runs`: the runs of commits by which it was set again."""

    key: bytes
    timer_at_us: int
    replay_runs: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        """What tells it from all other timers, and from records."""
        return self.topic, self.topic_id, self.partition, self.key, self.timer_at_us


Letter = DeadLetter | TimerLetter
# A record's topic, its id, partition and offset; of a timer in place of that key and time.
Subject = tuple[str, str, int, int] | tuple[str, str, int, bytes, int]
_Letter = TypeVar("_Letter", DeadLetter, TimerLetter)
ResetOf = Callable[[DeadLetter], "Commit | None"]
IsSet = Callable[[TimerLetter, str], bool]


class DeadLetters:
    """The dead letters of all sources in one table.

    All calls raise KeyrangeError: FOREIGN_TABLE, UNSUPPORTED_COMMITS, COMMITS_GONE,
    COMMITS_UNREADABLE, COMMITS_UNWRITABLE.
    """

    def __init__(
        self, store: Store, reset_of: ResetOf | None = None, is_set: IsSet | None = None
    ) -> None:
        """With `reset_of` letters whose record a reset has handed out again are replayed ones, with
        `is_set` those of timers alone that a run has set again indeed."""
        self._store, self._reset_of, self._is_set = store, reset_of, is_set
        # They are not numbered: batches that gave nothing up have none.
        self._writer = RetryingWriter(store, TABLE_CONDITIONS, "batch of dead letters")

    def append(self, source_id: str, batch_id: int, letters: Sequence[Letter], now_ms: int) -> None:
        """Write what a batch gave up, in one transaction, each letter once, however often it is
        called. A batch that runs again may give up other records."""
        if any((each.source_id, each.batch_id) != (source_id, batch_id) for each in letters):
            raise ValueError(f"a dead letter is not of batch {batch_id} of source {source_id}")
        if not letters:
            return
        note = {"keyrange.batchId": str(batch_id), "keyrange.queryId": letters[0].query_id}
        app_id = f"keyrange/{source_id}/dead-letters"
        # Behind a batch that this process has written, the transaction finds whether it is over.
        kept = [written] if (written := self._store.version_of(app_id)) is not None else []

        def next_entry() -> Entry | None:
            written = kept.pop() if kept else self._written(source_id, app_id)
            is_again = written is not None and written >= batch_id
            there = self.behind([source_id], lambda _: batch_id - 1) if is_again else []
            known = {each.subject for each in there}
            left = [_row(each, now_ms) for each in letters if each.subject not in known]
            if not left:
                return None
            counted = [] if is_again else [Transaction(app_id, batch_id, written)]
            return Entry(pa.Table.from_pylist(left, SCHEMA), counted, note)

        self._writer.append(next_entry)

    def is_there(self) -> bool:
        return self._store.refresh()

    def read(
        self, *, whole: bool = True, replayed: bool | None = None, **having: str | int | None
    ) -> list[DeadLetter]:
        """The dead letters `having` this source_id, topic, partition and offset, None for any, that
        were `replayed` or not, by topic, partition, offset and batch; without `whole` all but what
        takes room: value, headers and frames."""
        if not self._store.refresh():
            return []
        rows = self._rows(having, [name for name in SCHEMA.names if whole or name not in _LARGE])
        notes = {_NAME(row): row for row in rows if row["kind"] == "replayed"}
        found = [_letter(row, notes.get(_NAME(row))) for row in rows if row["kind"] == "dead"]
        if self._reset_of is not None:
            found = [_told(each, self._reset_of(each)) for each in found]
        found.sort(key=lambda each: (each.topic, each.partition, each.offset))
        return _that_are(found, replayed)

    def timers(
        self, *, replayed: bool | None = None, **having: str | int | None
    ) -> list[TimerLetter]:
        """The timers that were given up, `having` this source_id, topic and partition, None for
        any, that were `replayed` or not, by topic, partition and time."""
        if not self._store.refresh():
            return []
        notes: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self._rows(having | {"kind": _TIMER_REPLAYED}):
            notes.setdefault(_TIMER_NAME(row), []).append(row)
        found = []
        for row in self._rows(having | {"kind": _TIMER}):
            letter = TimerLetter(**_same(row, _OF_TIMER), timer_at_us=row["timer_at"])
            told = notes.get(_TIMER_NAME(row), ())
            if counted := [each for each in told if self._counts(letter, each)]:
                last = max(counted, key=lambda each: each["written_at"])
                own = {"replayed_by": last["who"], "replayed_to": last["replayed_to"]}
                runs = tuple(each["replay_run"] for each in counted)
                letter = replace(letter, replay_runs=runs, **own)
            found.append(letter)
        found.sort(key=lambda each: (each.topic, each.partition, each.timer_at_us, each.key))
        return _that_are(found, replayed)

    def _rows(
        self, having: Mapping[str, str | int | None], names: Sequence[str] = SCHEMA.names
    ) -> list[dict[str, Any]]:
        bounds: Bounds = {at: (value, value) for at, value in having.items() if value is not None}
        return list(_plain_times(self._store.read(bounds, names)).to_pylist())

    def _counts(self, letter: TimerLetter, note: dict[str, Any]) -> bool:
        return self._is_set is None or self._is_set(letter, note["replay_run"])

    def behind(self, sources: Iterable[str], committed: Callable[[str], int]) -> list[Letter]:
        """Those of some sources' batches behind their last one that is committed, which is asked
        for where there is any letter; without those that were handed out again."""
        if not self._store.refresh():
            return []
        found: list[Letter] = []
        for each in sources:
            last = self._store.greatest("batch_id", {"source_id": (each, each)})
            if last is not None and last > (batch_id := committed(each)):
                letters: list[Letter] = [*self.read(source_id=each, replayed=False)]
                letters += self.timers(source_id=each)
                found += [letter for letter in letters if letter.batch_id > batch_id]
        return found

    def mark_replayed(
        self, letters: Iterable[DeadLetter], who: str, replayed_to: str, now_ms: int
    ) -> None:
        """Note that dead letters were handed out again. Noted twice is noted once."""
        own = [{name: getattr(each, name) for name in _ORIGIN} for each in letters]
        self._note(own, who, now_ms, kind="replayed", replayed_to=replayed_to)

    def _note(self, letters: list[dict[str, Any]], who: str, now_ms: int, **how: str) -> None:
        if not letters:
            return
        told = how | {"who": who, "written_at": now_ms * 1000}
        rows = pa.Table.from_pylist([each | told for each in letters], SCHEMA)
        entry = Entry(rows, [], {"keyrange.who": who})

        def next_entry() -> Entry:
            self._store.refresh()
            return entry

        self._writer.append(next_entry)

    def note_timers(
        self,
        letters: Iterable[TimerLetter],
        who: str,
        replayed_to: str,
        replay_run: str,
        now_ms: int,
    ) -> None:
        """Note that timers are about to be set again, by a commit of `replay_run`."""
        own = [
            {name: getattr(each, name) for name in _OF_BATCH}
            | {"key": each.key, "timer_at": each.timer_at_us}
            for each in letters
        ]
        how = {"kind": _TIMER_REPLAYED, "replayed_to": replayed_to, "replay_run": replay_run}
        self._note(own, who, now_ms, **how)

    def maintain(self) -> None:
        """Compact and vacuum where it is time to."""
        self._store.maintain()

    def _written(self, source_id: str, app_id: str) -> int | None:
        """The last batch of a source that was written."""
        if not self._store.refresh():
            return None
        written = self._store.version_of(app_id)
        if written is None:
            mine: Bounds = {"source_id": (source_id, source_id)}
            of_kinds = (
                self._store.greatest("batch_id", {**mine, "kind": (kind, kind)})
                for kind in ("dead", _TIMER)
            )
            written = max((each for each in of_kinds if each is not None), default=None)
        return written


def open_dead_letters(options: CommitOptions) -> DeadLetters:
    """The dead letters of a query, by delta-rs. Nothing is opened before the first call."""
    return DeadLetters(DeltaStore(options.dead_letter_table, LAYOUT, options.revealed_storage()))


def _told(letter: DeadLetter, reset: Commit | None) -> DeadLetter:
    if reset is None or letter.replayed_by is not None:
        return letter
    return replace(letter, replayed_by=reset.who, replayed_to=f"commit {reset.seq}, a reset")


def _row(letter: Letter, now_ms: int) -> dict[str, Any]:
    names = _OF_TIMER if isinstance(letter, TimerLetter) else _OF_RECORD
    row = {name: getattr(letter, name) for name in names} | {
        "written_at": now_ms * 1000,
        "frames": list(letter.frames),
        "cause": letter.cause.name.lower(),
        "last_at": letter.last_at_ms * 1000,
    }
    if isinstance(letter, TimerLetter):
        return row | {"kind": _TIMER, "timer_at": letter.timer_at_us}
    return row | {
        "kind": "dead",
        "headers": [{"key": name, "value": value} for name, value in letter.headers],
        "timestamp": letter.timestamp_ms * 1000,
        "first_at": letter.first_at_ms * 1000,
    }


def _same(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What letters of records and of timers have."""
    return {name: row.get(name) for name in names} | {
        "frames": tuple(row.get("frames") or ()),
        "cause": Cause[row["cause"].upper()],
        "last_at_ms": row["last_at"],
        "written_at_ms": row["written_at"],
    }


def _that_are(letters: list[_Letter], replayed: bool | None) -> list[_Letter]:
    """Those that were replayed, or were not; None for all."""
    return [each for each in letters if replayed in (None, each.status == "replayed")]


def _letter(row: dict[str, Any], replayed: dict[str, Any] | None) -> DeadLetter:
    if replayed is not None and replayed["written_at"] < row["written_at"]:
        # It is of an earlier letter: a batch that runs again may give a record up after all.
        replayed = None
    return DeadLetter(
        **_same(row, _OF_RECORD),
        headers=tuple((each["key"], each["value"]) for each in row.get("headers") or ()),
        timestamp_ms=row["timestamp"],
        first_at_ms=row["first_at"],
        replayed_by=replayed["who"] if replayed else None,
        replayed_to=replayed["replayed_to"] if replayed else None,
    )


def _plain_times(rows: pa.Table) -> pa.Table:
    """Times as ms since 1970, those of timers as microseconds: a producer may write years that
    Python's dates do not have."""
    for at, name in enumerate(rows.column_names):
        if pa.types.is_timestamp(rows.schema.field(at).type):
            micros = pc.cast(pc.cast(rows.column(at), _TIME), pa.int64())
            told = micros if name == "timer_at" else pc.divide(micros, 1000)
            rows = rows.set_column(at, name, told)
    return rows
