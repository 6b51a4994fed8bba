"""Functions that keep state for each key, called with one record after the other.

What a function has changed counts once its record is done: one that raised, took too long or
answered with what does not fit leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError
from keyrange.keyed_state.exact_values import row_converter_of
from keyrange.keyed_state.expiry import alive
from keyrange.keyed_state.model.figures import StateFigures
from keyrange.keyed_state.state_entries import Entries, Entry
from keyrange.keyed_state.state_handles import Current, KeyState, instant
from keyrange.keyed_state.states_of_task import Firing
from keyrange.keyed_state.variables import KEY, KEY_HASH
from keyrange.model.offsets import TopicPartition
from keyrange.model.watermarks import BEGIN
from keyrange.values.python_rows import python_values
from keyrange.work.function_workers import RecordWorker
from keyrange.work.keyed_states import NO_KEY, Distinct, States
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.record_timers import FiredTimer, RecordTimers
from keyrange.work.records import UNFIT, Record, Row, WrongResult
from keyrange.work.task_context import Task
from keyrange.work.user_errors import Said

# Of how many keys with timers that are due the state is Python's at once.
FIRED_TOGETHER: Final = 8192


class KeyedRecordWorker(RecordWorker):
    """Calls the function with one record after the other, and with the state of its key."""

    def __init__(self, task: Task, states: States) -> None:
        super().__init__(task)
        self._of_record_and_state: Callable[..., Any] = self._function
        self._function = self._answer
        # The rows are converted when the function has answered.
        self._owned = lambda rows: rows
        self._states = states
        self._convert = row_converter_of(task.job.schema.types)
        self._width = len(task.job.schema)
        self._entries = Entries(states.form)
        self._current = Current(states.time_ms)
        self._state = KeyState(self._current, self._entries)
        self._timers = (
            RecordTimers(task, self, states.form.names) if states.form.has_timers else None
        )
        self._partition = TopicPartition("", 0)
        self._clock_us = BEGIN
        self._keys: list[bytes] = []
        # As records have them; made when a timer fires.
        self._read_keys: list[Any] | None = None
        self._hashes: list[int] = []
        self._kept: list[Entry] = []
        # Of each record which of these keys it has; which of them were changed.
        self._groups: list[int] = []
        self._changed: set[int] = set()
        # The row that the function was given last, -1 where it was given none, and its key.
        self._row = -1
        self._group = 0
        self._has_key: Any = None

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        found = self._begin(stretch)
        self._clock_us = self._states.clock_us(stretch.partition)
        if self._timers is None:
            yield from super().work(stretch, not_done)
            return
        yield from self._timers.before(found)
        yield from super().work(stretch, not_done)
        self._task.came(stretch)
        yield from self._timers.behind(int(stretch.offsets[-1]))

    def fire(self, firing: Firing) -> Iterator[pa.RecordBatch]:
        """The output of timers that are due."""
        assert self._timers is not None
        self._clock_us = firing.clock_us
        for rows in firing.rows:
            for first in range(0, rows.num_rows, FIRED_TOGETHER):
                some = alive(rows.slice(first, FIRED_TOGETHER), self._states.form, self.time_ms)
                self.finish()
                self._take(firing.partition, some)
                yield from self._timers.before(some)

    @property
    def time_ms(self) -> int:
        """The time of the batch, in ms since 1970."""
        return self._states.time_ms

    @property
    def figures(self) -> StateFigures:
        return self._states.figures

    def _take(self, partition: TopicPartition, found: pa.RecordBatch) -> None:
        """Take in the state of some keys."""
        self._partition = partition
        self._keys = found.column(KEY).to_pylist()
        self._read_keys = None
        self._hashes = found.column(KEY_HASH).to_pylist()
        self._kept = self._entries.read(found)

    def _begin(self, stretch: RecordStretch) -> pa.RecordBatch:
        """Read ahead what there is of the keys of some records."""
        self.finish()
        self._has_key = stretch.has_key
        keys, hashes = stretch.raw.column("key"), stretch.key_hashes
        groups = np.zeros(len(keys), np.int64)
        # Where there is no key, there is no state either: the empty key has another hash.
        rows = np.flatnonzero(pc.is_valid(keys)) if keys.null_count else np.arange(len(keys))
        distinct = Distinct(keys.take(pa.array(rows)) if keys.null_count else keys, hashes[rows])
        found = distinct.in_order(self._states.look_up(stretch.partition, distinct.sorted()))
        groups[rows] = distinct.groups.to_numpy()
        self._groups = groups.tolist()
        self._take(stretch.partition, found)
        return found

    def _answer(self, record: Record) -> Any:
        """Of the rows that the function answers with, those that fit. Raises what it raises, and
        one of UNFIT for others: what was changed is to be taken back then. Raises WrongResult for
        an answer that is none, whatever the record."""
        current = self._current
        if current.before is not None:
            self._settle()
        self._row = row = record.row
        if self._has_key is not None and not self._has_key[row]:
            raise LookupError(NO_KEY.text)
        self._group = group = self._groups[row]
        current.entry = self._kept[group]
        answered = self._of_record_and_state(record, self._state)
        return None if answered is None else self.checked(record, answered)

    def key_of(self, group: int) -> tuple[bytes, int, Entry]:
        """A key of those whose state was read ahead, by its number: its bytes, its hash, and what
        is kept of it."""
        return self._keys[group], self._hashes[group], self._kept[group]

    def call_for_timer(self, function: Callable[..., Any], group: int, at_us: int) -> Any:
        """Of the rows that a function of timers answers with, those that fit. Raises as
        `_answer`."""
        timer = FiredTimer(self._partition, at_us)
        if self._read_keys is None:
            reader = self._task.job.values
            keys = pa.array(self._keys, pa.binary())
            self._read_keys = (
                self._keys if reader is None else python_values(reader.read_keys(keys))
            )
        key = self._read_keys[group]
        answered = function(key, instant(at_us), self._state)
        return () if answered is None else self.checked(timer, answered)

    def begin_timer(self, group: int) -> Current:
        """What is changed from now on is of this key, until it is settled or taken back."""
        self._settle()
        self._group = group
        self._current.entry = self._kept[group]
        return self._current

    def settle_timer(self) -> None:
        self._settle()

    def take_back_timer(self) -> None:
        self._current.take_back()

    def note_changed(self, group: int) -> None:
        self._changed.add(group)

    def clock_us(self) -> int:
        """The time up to which timers fire now."""
        return self._clock_us

    @property
    def partition(self) -> TopicPartition:
        return self._partition

    def _settle(self) -> None:
        """The record before is done: what was changed for it stays."""
        current = self._current
        if current.before is not None:
            self._changed.add(self._group)
            current.before = None
            current.undo.clear()
        self._row = -1

    def _failed(
        self, stretch: RecordStretch, at: int, cause: Cause, why: Said, not_done: OutcomeRows
    ) -> None:
        if not stretch.row_has_key(at):
            cause, why = Cause.NO_KEY, NO_KEY
        super()._failed(stretch, at, cause, why, not_done)

    def _take_back(self, at: int) -> None:
        # The function was given it last if it was given it.
        if at == self._row:
            self._current.take_back()

    def checked(self, given: Record | FiredTimer, answered: Any) -> Any:
        """The rows of an answer that fit the schema. Raises one of UNFIT, and WrongResult."""
        if type(answered) is tuple and len(answered) == self._width:
            return self._converted(given, answered)
        try:
            rows = self._form.rows_of(answered, given.place)
        except KeyrangeError as failure:
            raise WrongResult(failure) from None
        return [self._converted(given, row) for row in rows]

    def _converted(self, given: Record | FiredTimer, row: Row) -> Row:
        try:
            converted: Row = self._convert(row)
            return converted
        except UNFIT:
            try:
                self._form.check_types([row], given.place)
            except KeyrangeError as failure:
                raise WrongResult(failure) from None
            # This names the column.
            self._form.parts([row])
            raise

    def finish(self) -> None:
        """What was changed goes to where states are: as objects of Python it would be looked
        through again and again for circles."""
        self._settle()
        changed = sorted(self._changed)
        if changed:
            form, keys, hashes, kept = self._states.form, self._keys, self._hashes, self._kept
            columns = [
                pa.array([hashes[at] for at in changed], pa.int64()),
                pa.array([keys[at] for at in changed], pa.binary()),
                *self._entries.columns([kept[at] for at in changed]),
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=form.schema)
            self._states.change(self._partition, rows)
        self._changed = set()
