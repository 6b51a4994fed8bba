"""Functions that keep state for each key, called with many records, the numbers of their keys, and
the states of these; and with many timers of many keys in the same way.

What a function has made of states counts once its records are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.due_timers import first_timers, wake_times, without_times
from keyrange.keyed_state.exact_columns import cast_exactly, check_state
from keyrange.keyed_state.expiry import alive
from keyrange.keyed_state.sorted_blocks import Keys, Numbers, keys_at
from keyrange.keyed_state.state_entries import normalized
from keyrange.keyed_state.state_handles import NO_ON_TIMER, microseconds
from keyrange.keyed_state.states_of_task import Firing
from keyrange.keyed_state.variables import KEY, KEY_HASH, TIMER_RETRY, TIMERS, Variable
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER
from keyrange.model.watermarks import BEGIN
from keyrange.work.function_workers import ArrowWorker
from keyrange.work.keyed_states import NO_KEY, States, clock_of, numbered
from keyrange.work.limited_calls import called
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.records import WrongResult, copied
from keyrange.work.task_context import Task
from keyrange.work.timer_places import timer_places
from keyrange.work.user_errors import Said


class KeyedArrowWorker(ArrowWorker):
    """Calls the function with many records, the numbers of their keys, and the states of these."""

    def __init__(self, task: Task, states: States) -> None:
        super().__init__(task)
        assert task.job.function is not None
        self._function: Callable[..., Any] = task.job.function
        self._states = states
        self._partition = TopicPartition("", 0)
        # The time up to which timers fire now.
        self._clock_us = BEGIN
        # The new state of the keys of the records that the function was given last.
        self._made: pa.RecordBatch | None = None
        # Whether of each key only the first timer fires.
        self._only_first = False
        # The record behind which rows of timers stand that fire now, where that is asked.
        self._behind: int | None = None
        # How many timers the function was given last.
        self._fired_count = 0
        # Of some records the numbers of their keys, and the state of these as it was read before
        # them, while it is so.
        self._ahead: tuple[pa.Array, pa.RecordBatch] | None = None
        # Keys whose timers are due and wait for a record.
        self._waiting = Keys(np.array([], np.int64), pa.array([], pa.binary()))

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        self._partition = stretch.partition
        self._clock_us = clock_of(self._states, stretch)
        rows = np.arange(len(stretch.offsets))
        if stretch.has_key is not None and not stretch.has_key.all():
            for at in rows[~stretch.has_key].tolist():
                self._task.fail(stretch, at, Cause.NO_KEY, NO_KEY, not_done)
            rows = rows[stretch.has_key]
        if self._states.form.has_timers:
            keys = stretch.raw.column("key").take(pa.array(rows))
            self._ahead = self._read(keys, stretch.key_hashes[rows])
            yield from self._fire_due(self._ahead[1], has_waited=False)
        yield from self._piece(stretch, rows, not_done)
        if self._states.form.has_timers:
            self._task.came(stretch)
            found = self._states.look_up(self._partition, self._waiting)
            yield from self._fire_due(found, has_waited=True)

    def fire(self, firing: Firing) -> Iterator[pa.RecordBatch]:
        """The output of timers that are due."""
        self._partition, self._clock_us = firing.partition, firing.clock_us
        for rows in firing.rows:
            found = alive(rows, self._states.form, self._states.time_ms)
            yield from self._fire_due(found, has_waited=False)

    def _fire_due(self, found: pa.RecordBatch, has_waited: bool) -> Iterator[pa.RecordBatch]:
        """The output of timers that are due of keys whose state was `found`, and do not wait for a
        record; with `has_waited` they have, and it was worked on."""
        task, partition = self._task, self._partition
        timers_us, retries_ms = wake_times(found)
        failed = retries_ms != NEVER
        hashes = found.column(KEY_HASH).to_numpy()
        for key_hash in hashes[failed & (retries_ms > self._states.retries.due_ms)].tolist():
            task.hold(partition, key_hash)
        due = timers_us <= self._clock_us
        due[due] = [not task.waits(partition, each) for each in hashes[due].tolist()]
        self._waiting = keys_at(found, np.flatnonzero((timers_us <= self._clock_us) & ~due))
        again = failed & (retries_ms <= self._states.retries.due_ms)
        rows = np.flatnonzero(due | again)
        for behind, own in self._by_place(found, hashes, rows, has_waited):
            self._behind = behind
            yield from self._fired(found.take(pa.array(own)), has_waited)
        if again.any():
            yield from self._fire_since(keys_at(found, np.flatnonzero(again)), has_waited)

    def _by_place(
        self, found: pa.RecordBatch, hashes: Numbers, rows: Numbers, has_waited: bool
    ) -> Iterator[tuple[int | None, Numbers]]:
        """The rows of keys whose timers fire, by the record behind which their output stands. All
        at once where nobody asks."""
        if not self._task.timer_places.asked:
            if len(rows):
                yield None, rows
            return
        stand, places = self._task.timer_places, dict[int | None, list[int]]()
        retries = found.column(TIMER_RETRY).to_pylist()
        for row in rows.tolist():
            if (retry := retries[row]) is not None:
                behind = stand.of_failed(self._partition, retry["offset"])
            else:
                behind = stand.behind(self._partition, int(hashes[row]), has_waited)
            places.setdefault(behind, []).append(row)
        for behind, own in places.items():
            yield behind, np.array(own, np.int64)

    def _fire_since(self, keys: Keys, has_waited: bool) -> Iterator[pa.RecordBatch]:
        """The output of timers that became due while another one of their key had failed, which is
        done: unless records waited for that one."""
        waiting = self._waiting
        found = self._states.look_up(self._partition, keys)
        yield from self._fire_due(found.filter(found.column(TIMER_RETRY).is_null()), has_waited)
        waits = [each.keys for each in (waiting, self._waiting)]
        hashes = np.concatenate((waiting.hashes, self._waiting.hashes))
        order = np.argsort(hashes, kind="stable")
        self._waiting = Keys(hashes[order], pa.concat_arrays(waits).take(pa.array(order)))

    def _fired(self, rows: pa.RecordBatch, has_waited: bool) -> Iterator[pa.RecordBatch]:
        """The output of the timers that are due of some keys, given to the function at once, and of
        fewer keys where it fails; of one key the first timer alone."""
        task, limits = self._task, self._task.limits
        self._ahead = None
        allowance = limits.allowance(task.alarm.now_ms())
        if limits.spent:
            self._leave(rows, has_waited)
            return
        count = rows.num_rows
        parts, failed = called(task, self._call_for_timers, rows, count, allowance)
        if failed is None:
            self._keep()
            self._states.figures.timers_fired += self._fired_count
            for table, output in parts:
                if output.num_rows:
                    count = output.num_rows
                    times_us, behind = [self._clock_us] * count, [self._behind] * count
                    places = timer_places(self._partition, times_us, behind)
                    yield task.output(output, places, None, table)
        elif failed.cause is None:
            self._leave(rows, has_waited)
        elif count > 1:
            yield from self._fired(rows.slice(0, count // 2), has_waited)
            yield from self._fired(rows.slice(count // 2), has_waited)
        elif self._fired_count > 1:
            yield from self._one_by_one(rows, has_waited)
        else:
            self._failed_timer(rows, failed.cause, failed.why)

    def _one_by_one(self, rows: pa.RecordBatch, has_waited: bool) -> Iterator[pa.RecordBatch]:
        """The output of the timers of one key, the first of them alone and then the others, unless
        that fails."""
        clock_us, [until_us] = self._clock_us, self._until_us(rows).tolist()
        self._only_first = True
        yield from self._fired(rows, has_waited)
        self._only_first = False
        rows_left = self._states.look_up(self._partition, keys_at(rows, np.array([0])))
        first, next_one = (int(first_timers(each)[0]) for each in (rows, rows_left))
        has_failed = rows_left.column(TIMER_RETRY).null_count == 0
        # One that was set for a time that has fired waits: it could set itself for ever.
        if not has_failed and first < next_one <= until_us:
            self._clock_us = until_us
            yield from self._fired(rows_left, has_waited)
            self._clock_us = clock_us

    def _until_us(self, rows: pa.RecordBatch) -> Numbers:
        """Up to which time the timers of some keys fire: where one failed, those that were due
        then."""
        column = rows.column(TIMER_RETRY)
        found = np.full(rows.num_rows, self._clock_us)
        failed = column.is_valid().to_numpy(zero_copy_only=False)
        found[failed] = column.field("clock_us").to_numpy(zero_copy_only=False)[failed]
        return found

    def _leave(self, rows: pa.RecordBatch, has_waited: bool) -> None:
        """Timers are left for the next batch. Nobody but this task knows that they are due which
        have waited for a record."""
        if has_waited:
            self._states.change(self._partition, rows)

    def _call_for_timers(self, rows: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The output of the timers that are due of some keys. Their new state waits for `_keep`."""
        form = self._states.form
        column = rows.column(TIMERS)
        owners = pc.list_parent_indices(column)
        times = column.flatten()
        until = first_timers(rows) if self._only_first else self._until_us(rows)
        is_due = times.cast(pa.int64()).to_numpy() <= until[owners.to_numpy()]
        groups = owners.filter(pa.array(is_due)).cast(pa.int32())
        self._fired_count = len(groups)
        left = form.with_column(rows, TIMERS, without_times(column, is_due))
        none = pa.nulls(rows.num_rows, form.schema.field(TIMER_RETRY).type)
        left = form.with_column(left, TIMER_RETRY, none)
        reader, keys = self._task.job.values, rows.column(KEY).take(groups)
        if reader is not None:
            keys = reader.read_keys(keys)
        given = pa.RecordBatch.from_arrays([keys, times.filter(pa.array(is_due))], ["key", "at"])
        on_timer = self._task.job.on_timer
        if on_timer is None:
            raise RuntimeError(NO_ON_TIMER)
        try:
            answered = on_timer(given, groups, left.select(form.given))
            output, new, is_cleared = _three(answered)
            self._made = left if new is None else self._rows(left, new, is_cleared)
            return self._cast(output)
        except KeyrangeError as failure:
            raise WrongResult(failure) from None

    def _failed_timer(self, rows: pa.RecordBatch, cause: Cause, why: Said) -> None:
        """The timers of one key have failed: the key comes again, or the first of them is given up,
        and fires no more."""
        task, form = self._task, self._states.form
        [key], [key_hash] = rows.column(KEY).to_pylist(), rows.column(KEY_HASH).to_pylist()
        [timers], [retry] = rows.column(TIMERS).to_pylist(), rows.column(TIMER_RETRY).to_pylist()
        deliveries = 1 if retry is None else retry["deliveries"] + 1
        told: Any = {"deliveries": deliveries, "clock_us": int(self._until_us(rows)[0])}
        told["offset"] = self._behind
        self._states.figures.timers_failed += 1
        failed = (self._partition, (key, key_hash), microseconds(timers[0]), deliveries)
        told["due_ms"] = task.fail_timer(*failed, self._states.retries.now_ms, cause, why)
        if told["due_ms"] is None:
            timers, told = timers[1:] or None, None
        for name, value in ((TIMERS, timers), (TIMER_RETRY, told)):
            rows = form.with_column(rows, name, pa.array([value], form.schema.field(name).type))
        self._states.change(self._partition, rows)

    def finish(self) -> None:
        return

    def _answer(self, stretch: RecordStretch) -> Any:
        """The output. The new state waits for `_keep`. Raises what the function does, one of UNFIT
        for a state that does not fit, WRONG_RESULT."""
        self._made = None
        form = self._states.form
        ahead, self._ahead = self._ahead, None
        if ahead is None or len(ahead[0]) != len(stretch.offsets):
            # Some of the records were left out, or timers have changed what was read.
            ahead = self._read(stretch.raw.column("key"), stretch.key_hashes)
        groups, found = ahead
        answered = self._function(stretch.batch, groups, found.select(form.given))
        output, new, is_cleared = _three(answered)
        if new is not None:
            self._made = self._rows(found, new, is_cleared)
        return output

    def _read(self, keys: pa.Array, hashes: Numbers) -> tuple[pa.Array, pa.RecordBatch]:
        """The numbers of the keys of some records, and the state of these."""
        groups, distinct = numbered(keys, hashes)
        return groups, self._states.look_up(self._partition, distinct)

    def _keep(self) -> None:
        if self._made is not None:
            self._states.change(self._partition, self._made)

    def _rows(self, found: pa.RecordBatch, new: Any, is_cleared: Any) -> pa.RecordBatch:
        """The new state of the keys of the rows `found`, which say what they had."""
        form, count = self._states.form, found.num_rows
        if isinstance(new, pa.Table):
            batches = new.combine_chunks().to_batches()
            new = batches[0] if batches else pa.RecordBatch.from_pylist([], new.schema)
        if not isinstance(new, pa.RecordBatch) or new.num_rows != count:
            has = f"{new.num_rows} rows" if hasattr(new, "num_rows") else type(new).__name__
            raise error("WRONG_RESULT", f"the new state has {has}, and {count} keys have one")
        if TIMERS in form.given and TIMERS not in new.schema.names:
            # A function that sets no timers need not hand them on.
            new = new.append_column(form.schema.field(TIMERS), found.column(TIMERS))
        if differing := sorted({*form.given} ^ {*new.schema.names}):
            has = "no" if differing[0] in form.given else "a"
            raise error("WRONG_RESULT", f"the new state has {has} column {differing[0]!r}")
        if TIMERS in form.given and self._task.job.on_timer is None and _any_in(new.column(TIMERS)):
            raise error("WRONG_RESULT", f"the new state has timers, and {NO_ON_TIMER}")
        if is_cleared is not None:
            cleared = pc.fill_null(pa.array(is_cleared, pa.bool_()), False)
            if len(cleared) != count:
                raise error(
                    "WRONG_RESULT",
                    f"of {len(cleared)} keys it is said whether they are cleared, and there are "
                    f"{count}",
                )
            mask = cleared.to_numpy(zero_copy_only=False)
            new = new.take(pa.array(np.arange(count), mask=mask))
        columns: list[pa.Array] = [found.column(KEY_HASH), found.column(KEY)]
        for variable in form.variables:
            if variable.name == TIMER_RETRY:
                # A record of a key whose timer has failed is not given to the function.
                columns.append(found.column(TIMER_RETRY))
                continue
            values = _state_column(new.column(variable.name), variable)
            columns.append(values)
            if variable.ttl_ms:
                until = self._states.time_ms + variable.ttl_ms
                gone = values.is_null().to_numpy(zero_copy_only=False)
                columns.append(pa.array(np.full(len(values), until), mask=gone))
        return copied(pa.RecordBatch.from_arrays(columns, schema=form.schema))


def _any_in(lists: pa.Array) -> bool:
    return bool(pc.any(pc.greater(pc.list_value_length(lists), 0)).as_py())


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
