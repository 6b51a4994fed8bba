"""Functions that keep state for each key: record by record, and many keys at once.

What a function has changed counts once its record is done: one that raised, took too long or
answered with what does not fit leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.exact_columns import cast_exactly, check_state
from keyrange.keyed_state.exact_values import row_converter_of
from keyrange.keyed_state.sorted_blocks import Keys, Numbers
from keyrange.keyed_state.state_entries import Entries, Entry, normalized
from keyrange.keyed_state.state_handles import Current, KeyState
from keyrange.keyed_state.variables import StateForm, Variable
from keyrange.model.offsets import TopicPartition
from keyrange.work.function_workers import ArrowWorker, RecordWorker
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.records import UNFIT, Record, Row, WrongResult
from keyrange.work.task_context import Task
from keyrange.work.user_errors import Said, said

_NO_KEY: Final = said("it has no key, and state is kept for keys")


class States(Protocol):
    """Where states come from and go to: `keyrange.keyed_state.states_of_task.TaskStates`."""

    @property
    def form(self) -> StateForm: ...

    @property
    def time_ms(self) -> int: ...

    def look_up(self, partition: TopicPartition, wanted: Keys) -> pa.RecordBatch: ...

    def change(self, partition: TopicPartition, rows: pa.RecordBatch) -> None: ...


class Distinct:
    """The distinct keys of some rows. `groups`: of each row the number of its key. `by_hash`: their
    order by hash."""

    def __init__(self, keys: pa.Array, hashes: Numbers) -> None:
        encoded = keys.dictionary_encode()
        self.groups: pa.Array = encoded.indices
        self.keys: pa.Array = encoded.dictionary
        indices = self.groups.to_numpy()
        first = np.empty(len(self.keys), np.int64)
        # The last one that is written stays: the first row of each.
        first[indices[::-1]] = np.arange(len(indices))[::-1]
        self.hashes: Numbers = hashes[first]
        self.by_hash = np.argsort(self.hashes, kind="stable")

    def sorted(self) -> Keys:
        order = pa.array(self.by_hash)
        return Keys(self.hashes[self.by_hash], self.keys.take(order))

    def in_order(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that are sorted by hash, one for each key, in the order of the keys."""
        back = np.empty(len(self.by_hash), np.int64)
        back[self.by_hash] = np.arange(len(self.by_hash))
        return batch.take(pa.array(back))


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
        self._partition = TopicPartition("", 0)
        self._keys: list[bytes] = []
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
        self._begin(stretch)
        yield from super().work(stretch, not_done)

    def _begin(self, stretch: RecordStretch) -> None:
        """Read ahead what there is of the keys of some records."""
        self.finish()
        self._partition = stretch.partition
        self._has_key = stretch.has_key
        keys, hashes = stretch.raw.column("key"), stretch.key_hashes
        groups = np.zeros(len(keys), np.int64)
        # Where there is no key, there is no state either: the empty key has another hash.
        rows = np.flatnonzero(pc.is_valid(keys)) if keys.null_count else np.arange(len(keys))
        distinct = Distinct(keys.take(pa.array(rows)) if keys.null_count else keys, hashes[rows])
        found = distinct.in_order(self._states.look_up(stretch.partition, distinct.sorted()))
        groups[rows] = distinct.groups.to_numpy()
        self._groups = groups.tolist()
        self._keys, self._hashes = distinct.keys.to_pylist(), distinct.hashes.tolist()
        self._kept = self._entries.read(found)

    def _answer(self, record: Record) -> Any:
        """Of the rows that the function answers with, those that fit. Raises what it raises, and
        one of UNFIT for others: what was changed is to be taken back then. Raises WrongResult for
        an answer that is none, whatever the record."""
        current = self._current
        if current.before is not None:
            self._settle()
        self._row = row = record.row
        if self._has_key is not None and not self._has_key[row]:
            raise LookupError(_NO_KEY.text)
        self._group = group = self._groups[row]
        current.entry = self._kept[group]
        answered = self._of_record_and_state(record, self._state)
        return None if answered is None else self._checked(record, answered)

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
            cause, why = Cause.NO_KEY, _NO_KEY
        super()._failed(stretch, at, cause, why, not_done)

    def _take_back(self, at: int) -> None:
        # The function was given it last if it was given it.
        if at == self._row:
            self._current.take_back()

    def _checked(self, record: Record, answered: Any) -> Any:
        if type(answered) is tuple and len(answered) == self._width:
            return self._converted(record, answered)
        try:
            rows = self._form.rows_of(answered, record)
        except KeyrangeError as failure:
            raise WrongResult(failure) from None
        return [self._converted(record, row) for row in rows]

    def _converted(self, record: Record, row: Row) -> Row:
        try:
            converted: Row = self._convert(row)
            return converted
        except UNFIT:
            try:
                self._form.check_types([row], self._partition, record.offset)
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


class KeyedArrowWorker(ArrowWorker):
    """Calls the function with many records, the numbers of their keys, and the states of these."""

    def __init__(self, task: Task, states: States) -> None:
        super().__init__(task)
        assert task.job.function is not None
        self._function: Callable[..., Any] = task.job.function
        self._states = states
        self._partition = TopicPartition("", 0)
        # The new state of the keys of the records that the function was given last.
        self._made: pa.RecordBatch | None = None

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        self._partition = stretch.partition
        rows = np.arange(len(stretch.offsets))
        if stretch.has_key is not None and not stretch.has_key.all():
            for at in rows[~stretch.has_key].tolist():
                self._task.fail(stretch, at, Cause.NO_KEY, _NO_KEY, not_done)
            rows = rows[stretch.has_key]
        yield from self._piece(stretch, rows, not_done)

    def finish(self) -> None:
        return

    def _answer(self, stretch: RecordStretch) -> Any:
        """The output. The new state waits for `_keep`. Raises what the function does, one of UNFIT
        for a state that does not fit, WRONG_RESULT."""
        self._made = None
        form = self._states.form
        distinct = Distinct(stretch.raw.column("key"), stretch.key_hashes)
        found = distinct.in_order(self._states.look_up(self._partition, distinct.sorted()))
        answered = self._function(stretch.batch, distinct.groups, found.select(form.names))
        output, new, is_cleared = _three(answered)
        if new is not None:
            self._made = self._rows(distinct, new, is_cleared)
        return output

    def _keep(self) -> None:
        if self._made is not None:
            self._states.change(self._partition, self._made)

    def _rows(self, distinct: Distinct, new: Any, is_cleared: Any) -> pa.RecordBatch:
        form = self._states.form
        if isinstance(new, pa.Table):
            found = new.combine_chunks().to_batches()
            new = found[0] if found else pa.RecordBatch.from_pylist([], new.schema)
        if not isinstance(new, pa.RecordBatch) or new.num_rows != len(distinct.keys):
            has = f"{new.num_rows} rows" if hasattr(new, "num_rows") else type(new).__name__
            raise error(
                "WRONG_RESULT", f"the new state has {has}, and {len(distinct.keys)} keys have one"
            )
        if differing := sorted({*form.names} ^ {*new.schema.names}):
            has = "no" if differing[0] in form.names else "a"
            raise error("WRONG_RESULT", f"the new state has {has} column {differing[0]!r}")
        if is_cleared is not None:
            cleared = pc.fill_null(pa.array(is_cleared, pa.bool_()), False)
            if len(cleared) != new.num_rows:
                raise error(
                    "WRONG_RESULT",
                    f"of {len(cleared)} keys it is said whether they are cleared, and there are "
                    f"{new.num_rows}",
                )
            mask = cleared.to_numpy(zero_copy_only=False)
            new = new.take(pa.array(np.arange(new.num_rows), mask=mask))
        columns: list[pa.Array] = [pa.array(distinct.hashes), distinct.keys]
        for variable in form.variables:
            values = _state_column(new.column(variable.name), variable)
            columns.append(values)
            if variable.ttl_ms:
                until = self._states.time_ms + variable.ttl_ms
                gone = values.is_null().to_numpy(zero_copy_only=False)
                columns.append(pa.array(np.full(len(values), until), mask=gone))
        return pa.RecordBatch.from_arrays(columns, schema=form.schema)


def _state_column(values: pa.Array, variable: Variable) -> pa.Array:
    try:
        found = normalized(cast_exactly(variable.name, values, variable.type))
    except TypeError as failure:
        raise error("WRONG_RESULT", f"the new state has {failure}") from None
    check_state(variable.name, found)
    return found


def _three(answered: Any) -> tuple[Any, Any, Any]:
    if isinstance(answered, tuple) and len(answered) in (2, 3):
        return (*answered, None)[:3]
    raise error(
        "WRONG_RESULT",
        "a function with state answers in mode arrow with (output, new state) or (output, new "
        f"state, which keys are cleared), and this one with a value of type "
        f"{type(answered).__name__}",
    )


KEYED_WORKERS: Final[Mapping[str, type[KeyedRecordWorker] | type[KeyedArrowWorker]]] = {
    "record": KeyedRecordWorker,
    "arrow": KeyedArrowWorker,
}
