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
from keyrange.keyed_state.expiry import alive
from keyrange.keyed_state.states_of_task import Firing
from keyrange.work.fired_timers import FiredTimer, RecordTimers
from keyrange.work.function_workers import RecordWorker
from keyrange.work.keyed_states import NO_KEY, States, clock_of, numbered
from keyrange.work.keys_ahead import KeysAhead
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_stretches import RecordStretch
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
        # The rows are made and converted when the function has answered.
        self._owned = lambda row: row
        self._rows_of = lambda rows, _: rows
        self._states = states
        self._convert = self._form.converter()
        self._keys = KeysAhead(states, task.job.on_timer is not None, self._form.may_refuse)
        self._timers = (
            RecordTimers(task, states, self._keys, self.checked) if states.form.has_timers else None
        )
        # Of each record which of the keys it has.
        self._groups: list[int] = []
        # The row that the function was given last, -1 where it was given none.
        self._row = -1
        self._has_key: Any = None

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        found = self._begin(stretch)
        if self._timers is None:
            yield from super().work(stretch, not_done)
            return
        yield from self._timers.before(found)
        yield from super().work(stretch, not_done)
        self._task.came(stretch)
        yield from self._timers.behind()

    def fire(self, firing: Firing) -> Iterator[pa.RecordBatch]:
        """The output of timers that are due."""
        assert self._timers is not None
        form, time_ms = self._states.form, self._states.time_ms
        for rows in firing.rows:
            for first in range(0, rows.num_rows, FIRED_TOGETHER):
                some = alive(rows.slice(first, FIRED_TOGETHER), form, time_ms)
                self._keys.finish()
                self._keys.take(firing.partition, firing.clock_us, some)
                yield from self._timers.before(some)

    def _begin(self, stretch: RecordStretch) -> pa.RecordBatch:
        """Read ahead what there is of the keys of some records."""
        self._keys.finish()
        self._row = -1
        self._has_key = stretch.has_key
        keys, hashes = stretch.raw.column("key"), stretch.key_hashes
        groups = np.zeros(len(keys), np.int64)
        # Where there is no key, there is no state either: the empty key has another hash.
        rows = np.flatnonzero(pc.is_valid(keys)) if keys.null_count else np.arange(len(keys))
        own = keys.take(pa.array(rows)) if keys.null_count else keys
        numbers, distinct = numbered(own, hashes[rows])
        found = self._states.look_up(stretch.partition, distinct)
        groups[rows] = numbers.to_numpy()
        self._groups = groups.tolist()
        self._keys.take(stretch.partition, clock_of(self._states, stretch), found)
        return found

    def _answer(self, record: Record) -> Any:
        """Of the rows that the function answers with, those that fit. Raises what it raises, and
        one of UNFIT for others: what was changed is to be taken back then. Raises WrongResult for
        an answer that is none, whatever the record."""
        keys, row = self._keys, record.row
        if self._has_key is not None and not self._has_key[row]:
            keys.settle()
            raise LookupError(NO_KEY.text)
        keys.begin(self._groups[row], row)
        # Not before: an alarm that rings till then would take back what the last record changed.
        self._row = row
        answered = self._of_record_and_state(record, keys.state)
        return None if answered is None else self.checked(record, answered)

    def _failed(
        self, stretch: RecordStretch, at: int, cause: Cause, why: Said, not_done: OutcomeRows
    ) -> None:
        if not stretch.row_has_key(at):
            cause, why = Cause.NO_KEY, NO_KEY
        super()._failed(stretch, at, cause, why, not_done)

    def _take_back(self, at: int) -> None:
        # The function was given it last if it was given it.
        if at == self._row:
            self._keys.current.take_back()

    def _take_back_answered(self, at: int) -> bool:
        self._keys.take_back_since(at, self._groups[at])
        return True

    def checked(self, given: Record | FiredTimer, answered: Any) -> Any:
        """The rows of an answer that fit the schema. Raises one of UNFIT, and WrongResult."""
        if type(answered) is tuple and len(answered) == self._form.width:
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
        """What was changed goes to where states are."""
        self._keys.finish()
