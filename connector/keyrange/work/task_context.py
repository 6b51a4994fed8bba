"""What one task of a batch has of its job, and what it has come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import error
from keyrange.model.columns import PLACE
from keyrange.model.commit_settings import RedeliveryPolicy
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.values.reading import ValueReader
from keyrange.work.job_time import JobTime
from keyrange.work.model.outcome import Cause
from keyrange.work.model.time_limits import TimeLimits
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import (
    OutcomeRows,
    changed_rows,
    output_rows,
    rows_for,
    told_rows,
)
from keyrange.work.record_alarm import RecordAlarm
from keyrange.work.record_stretches import Numbers, OrderCheck, RecordStretch
from keyrange.work.reported_offsets import Blocks
from keyrange.work.timer_places import FIRED, TimerPlaces
from keyrange.work.topic_rows import TopicRows
from keyrange.work.user_errors import Said, said

_NOTHING: Final = TaskPartition(())


@dataclass(frozen=True)
class RowsOf:
    """The rows that a job makes for one table, by their columns, or for a topic, which has
    `topic`. The rest is as of `OutputTable`, whose `name` it has."""

    schema: pa.Schema
    keys: tuple[str, ...] = ()
    deletes: str = ""
    keeps: str = ""
    tombstones: bool = False
    name: str = ""
    is_staged: bool = False
    topic: TopicRows | None = None


@dataclass(frozen=True)
class Job:
    """What every task of a batch is given.

    `mode`: record, arrow, or column, where the verdict is in `error_column` already. `schema` is
    that of the output. `values` reads keys and values before the function gets them.
    `keeps_offsets`: output rows say which record they are of. `mentions`: what the function was
    given is written down. `is_whole`: the batch is done as a whole, and fails with any of its
    records but those that can never be read. `outputs`: the tables that a `keyrange.job` makes rows
    for; with `as_they_are` each record is a row. `time`: what late records and timers go by, for
    which `on_timer` is called. `scope`: which partitions share the state of keys: a key that waits
    in one of them waits in all.
    """

    works: Mapping[TopicPartition, TaskPartition]
    terms: WorkSettings
    mode: str
    schema: pa.Schema
    function: Callable[[Any], Any] | None = None
    error_column: str | None = None
    keeps_offsets: bool = False
    mentions: bool = False
    nulls_first: bool = False
    is_whole: bool = False
    values: ValueReader | None = None
    outputs: tuple[RowsOf, ...] = ()
    on_timer: Callable[..., Any] | None = None
    time: JobTime | None = None
    scope: StateScope = OWN_STATE
    as_they_are: bool = False

    @property
    def output(self) -> RowsOf:
        """The rows of a job that makes those of one table."""
        return self.rows_of(0)

    def rows_of(self, table: int) -> RowsOf:
        """The rows for one of its tables, by its number."""
        return self.outputs[table] if self.outputs else RowsOf(self.schema)

    @property
    def asks_places(self) -> bool:
        """Whether it counts behind which record a row of a timer stands."""
        return self.keeps_offsets or any(each.keys for each in self.outputs)

    @property
    def needs_order(self) -> bool:
        """Whether a record may fail and hold back those behind it, or all are written down. A job
        that says later by DataFrame what is done may explode, join or sort before."""
        if self.is_whole:
            return False
        return self.mode != "column" or self.error_column is not None or self.mentions


class Task:
    """What one task has of its job, and what it has come to."""

    def __init__(self, job: Job, alarm: RecordAlarm) -> None:
        self.job = job
        self.alarm = alarm
        self._home = job.scope.home
        # The hashes of the keys that wait: a record of theirs is not done, and comes again. Records
        # without a key never wait. By the partition under which their state stands, as all that
        # waits.
        self.held: dict[TopicPartition, set[int]] = {}
        self.limits = TimeLimits(job.terms.record_timeout_ms, job.terms.budget_ms)
        self._partitions: dict[TopicPartition, TaskPartition] = {}
        self._handed_back: dict[TopicPartition, dict[int, int]] = {}
        self.bounds: dict[TopicPartition, Numbers] = {}
        self.order = OrderCheck(self.bounds)
        self.timer_places = TimerPlaces(self.bounds, self.known, job.asks_places)
        self.blocks = Blocks()
        self.done: dict[TopicPartition, int] = {}
        # Of these the records without a value, where values are read: they say nothing of a schema.
        self._tombstones: dict[TopicPartition, int] = {}
        # How many records come again of the keys whose timers wait for them, by hash.
        self._awaited: dict[TopicPartition, Counter[int]] = {}
        self._failed_timers: list[tuple[Any, ...]] = []
        self._with_failed_timer: set[tuple[TopicPartition, int]] = set()
        # How many rows were made for tables with keys.
        self._made = 0
        self.begin(job.works)

    def begin(self, works: Mapping[TopicPartition, TaskPartition]) -> None:
        """Records of these partitions come; a task that asks what it reads learns it bit by bit, of
        one that was named before with other keys."""
        for partition, work in works.items():
            home, known = self._home(partition), self.known(partition)
            new = Counter(each for at, each in work.again.items() if at not in known.again)
            self._awaited.setdefault(home, Counter()).update(new)
            self._partitions[partition] = replace(
                work,
                deliveries={**known.deliveries, **work.deliveries},
                again={**known.again, **work.again},
                late=known.late | work.late,
            )
            self.held.setdefault(home, set()).update(work.held)
            lower_ends = [cell.from_hash for cell in work.cells]
            self.bounds[partition] = np.array(lower_ends, np.int64)

    def known(self, partition: TopicPartition) -> TaskPartition:
        """What was said of a partition so far."""
        return self._partitions.get(partition, _NOTHING)

    def hold(self, partition: TopicPartition, key_hash: int) -> None:
        """Let the records of a key wait for a timer of the key that has failed."""
        home = self._home(partition)
        self.held[home].add(key_hash)
        self._with_failed_timer.add((home, key_hash))

    def why_held(self, partition: TopicPartition, key_hash: int) -> Cause:
        """What the records of a key wait for."""
        if (self._home(partition), key_hash) in self._with_failed_timer:
            return Cause.AWAITS_TIMER
        return Cause.HELD_BACK

    def waits(self, partition: TopicPartition, key_hash: int) -> bool:
        """Whether the timers of a key wait for one of its records."""
        home = self._home(partition)
        return key_hash in self.held[home] or self._awaited[home][key_hash] > 0

    def held_in(self, stretch: RecordStretch) -> set[int]:
        """The hashes of the keys that wait of those of a stretch."""
        return self.held[self._home(stretch.partition)]

    @property
    def waiting(self) -> dict[TopicPartition, set[int]]:
        """The hashes of the keys whose timers wait."""
        return {at: self.waiting_now(at) for at in self.held} if self.limits.spent else self.held

    def waiting_now(self, home: TopicPartition) -> set[int]:
        """The hashes of the keys whose timers wait, also for records that are still to come."""
        return self.held[home] | (+self._awaited[home]).keys()

    def gone(self) -> Iterator[tuple[TopicPartition, int]]:
        """The hashes of keys one of whose records was to come again, and is gone from Kafka:
        nothing holds their timers back any more."""
        if not self.limits.spent:
            for partition, awaited in sorted(self._awaited.items()):
                for key_hash in sorted((+awaited).keys()):
                    yield partition, key_hash

    def came(self, stretch: RecordStretch) -> None:
        """Records were worked on; of some of those that came again timers wait."""
        self.timer_places.came(stretch)
        again = self.known(stretch.partition).again
        if again:
            awaited = self._awaited[self._home(stretch.partition)]
            for offset in stretch.offsets.tolist():
                if offset in again:
                    awaited[again[offset]] -= 1

    def fail_timer(
        self,
        partition: TopicPartition,
        key: tuple[bytes, int],
        at_us: int,
        deliveries: int,
        now_ms: int,
        cause: Cause,
        why: Said,
    ) -> int | None:
        """A timer of a key, which is given with its hash, has failed for the `deliveries`th time.
        When it is tried again, and the key's records wait for it; None where it is given up: it
        fires no more, and goes to the dead letters."""
        terms = self.job.terms
        is_last = cause.is_given_up(deliveries, terms.deliveries_max)
        said = (int(cause), why.text, list(why.frames))
        # Its letter names the partition under which the state stands, where it is set again.
        home = self._home(partition)
        self._failed_timers.append((*home, *key, at_us, deliveries, *said, is_last))
        if is_last:
            return None
        self.hold(partition, key[1])
        policy = RedeliveryPolicy(terms.deliveries_max, terms.backoff_ms, terms.backoff_max_ms)
        return policy.due_ms(deliveries, now_ms)

    def hand_back(self, stretch: RecordStretch, rows: Any = slice(None)) -> None:
        """Rows were not worked on, and nothing behind them in their key ranges is."""
        back = self._handed_back.setdefault(stretch.partition, {})
        for cell, offset in stretch.cells(self.bounds[stretch.partition], rows):
            back[cell] = min(back.get(cell, offset), offset)

    def fail(
        self,
        stretch: RecordStretch,
        at: int,
        cause: Cause,
        why: Said,
        not_done: OutcomeRows,
        keeps_record: bool = True,
    ) -> bool:
        """A row is not done; whether its key has to wait for it. Raises RECORD_FAILED where the
        batch is done as a whole and another delivery may help."""
        partition, offset = stretch.partition, int(stretch.offsets[at])
        if self.job.is_whole and not cause.is_final:
            raise error("RECORD_FAILED", why.text or "", partition=partition, offset=offset)
        delivery = self.known(partition).deliveries.get(offset, 0) + 1
        given_up = cause.is_given_up(delivery, self.job.terms.deliveries_max)
        self.limits.settled()
        not_done.add(at, cause, why, given_up and keeps_record)
        waits = self.job.terms.keeps_order and stretch.row_has_key(at) and not given_up
        if waits:
            self.held[self._home(partition)].add(int(stretch.key_hashes[at]))
        return waits

    def refuse(self, stretch: RecordStretch, at: int, not_done: OutcomeRows) -> None:
        """A row whose key or value cannot be read. Raises BAD_VALUE or BAD_CHANGE where no dead
        letter is to be made of it."""
        why = stretch.unreadable[at]
        assert self.job.values is not None
        if self.job.values.bad == "fail":
            offset = int(stretch.offsets[at])
            raise error(self.job.values.condition, why, partition=stretch.partition, offset=offset)
        self.fail(stretch, at, Cause.UNREADABLE, said(why), not_done)

    def free_rows(self, stretch: RecordStretch, rows: Numbers, not_done: OutcomeRows) -> Numbers:
        """The rows that can be read and whose key does not wait; of the others it is said why they
        are not done."""
        keys = self.held_in(stretch)
        if keys:
            held = np.isin(stretch.key_hashes[rows], np.fromiter(keys, np.int64, len(keys)))
            if stretch.has_key is not None:
                held &= stretch.has_key[rows]
            for at in rows[held].tolist():
                why = self.why_held(stretch.partition, int(stretch.key_hashes[at]))
                not_done.add(at, why)
            rows = rows[~held]
        if stretch.unreadable:
            bad = np.isin(rows, np.fromiter(stretch.unreadable, np.int64))
            for at in rows[bad].tolist():
                self.refuse(stretch, at, not_done)
            rows = rows[~bad]
        return rows

    def count(self, stretch: RecordStretch, rows: Numbers) -> None:
        """These rows are done."""
        at = stretch.partition
        self.done[at] = self.done.get(at, 0) + len(rows)
        values = self.job.values
        if values is not None and values.reads_values and (nulls := stretch.tombstones(rows)):
            self._tombstones[at] = self._tombstones.get(at, 0) + nulls

    def output_of_call(
        self, output: pa.RecordBatch, given: pa.RecordBatch, table: int = 0
    ) -> pa.RecordBatch:
        """Rows that a function of batches answered with, for one of its tables."""
        if self.job.as_they_are:
            return self.output(output, given, None, table)
        if self.job.keeps_offsets:
            return self.output(output, given, _records_of(output, given), table)
        if not self.job.rows_of(table).is_staged:
            return self.output(output, output, None, table)
        # All of its rows stand at its last record, one behind the other.
        last = np.full(output.num_rows, given.num_rows - 1)
        return self.output(output, given, pa.array(last), table)

    def output(
        self,
        output: pa.RecordBatch,
        batch: pa.RecordBatch,
        rows: pa.Array | None = None,
        table: int = 0,
    ) -> pa.RecordBatch:
        """Rows of output, for one of the job's tables. The columns of `batch` say which record each
        is of, in these `rows`."""
        kind = self.job.rows_of(table)
        if kind.is_staged:
            return rows_for(self._changes(kind, output, batch, rows), kind.name)
        if not self.job.keeps_offsets:
            return rows_for(output_rows(output, None), kind.name)
        places = {name: batch.column(name) for name in PLACE}
        if rows is not None:
            places = {name: column.take(rows) for name, column in places.items()}
        return output_rows(output, places)

    def _changes(
        self, kind: RowsOf, output: pa.RecordBatch, batch: pa.RecordBatch, rows: pa.Array | None
    ) -> pa.RecordBatch:
        deleted = pa.array(np.zeros(output.num_rows, np.bool_))
        if kind.deletes:
            deleted = pc.fill_null(output.column(kind.deletes), False)
        names = [*PLACE, *({FIRED} & {*batch.schema.names})]
        told = {name: batch.column(name) for name in names}
        times = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        told["timestamp_ms"] = pc.divide(times, 1000)
        if rows is not None:
            told = {name: column.take(rows) for name, column in told.items()}
        if kind.tombstones:
            is_null = pc.is_null(batch.column("value"))
            deleted = pc.or_(deleted, is_null if rows is None else is_null.take(rows))
        # Ascending in the whole task: rows of a timer may stand at the record before it.
        row = self._made + np.arange(output.num_rows)
        self._made += output.num_rows
        told |= {"row": pa.array(row), "deleted": deleted}
        # A row that is held and stands nowhere would never be released.
        assert not (self.job.keeps_offsets and told["offset"].null_count)
        if kind.keeps:
            told["kept"] = pc.if_else(deleted, None, output.column(kind.keeps))
        return changed_rows(output, told)

    def last_rows(self) -> Iterator[pa.RecordBatch]:
        """What a task says at its end."""
        cells = {partition: work.cells for partition, work in self._partitions.items()}
        back = [
            (*at, *_bounds(cells[at][cell]), offset)
            for at, each in sorted(self._handed_back.items())
            for cell, offset in sorted(each.items())
        ]
        # Of rows of Spark's, which may have come to several tasks.
        worked_on = [
            (*at, *_bounds(KeyRange(cells[at][first].from_hash, cells[at][last].until_hash)))
            for at, first, last in (() if self.job.outputs else self.order.cells())
        ]
        told: dict[str, list[tuple[Any, ...]]] = {
            "handed_back": back,
            "done": [(*at, count) for at, count in sorted(self.done.items())],
            "tombstones": [(*at, count) for at, count in sorted(self._tombstones.items())],
            "mentioned": [(*at, number, bits) for at, number, bits in self.blocks],
            "worked_on": worked_on,
            "failed_timer": self._failed_timers,
        }
        for member, rows in told.items():
            yield from told_rows(self.job.schema, member, rows)


def _bounds(span: KeyRange) -> tuple[int, int]:
    return span.from_hash, span.until_hash - 1


def _records_of(output: pa.RecordBatch, given: pa.RecordBatch) -> pa.Array:
    """The rows of records of which rows of output say that they are theirs. Raises WRONG_RESULT."""
    found = pc.index_in(output.column("offset").cast(pa.int64()), given.column("offset"))
    if found.null_count:
        at = output.column("offset").filter(pc.is_null(found))[0].as_py()
        message = f"a row says that it is of offset {at}, which the function was not given"
        raise error("WRONG_RESULT", message)
    return found
