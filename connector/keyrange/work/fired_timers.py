"""Timers of a job whose function is called with one record after the other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.due_timers import wake_times
from keyrange.keyed_state.state_entries import ABSENT, Entry
from keyrange.keyed_state.state_handles import NO_ON_TIMER, instant
from keyrange.keyed_state.variables import TIMER_RETRY, TIMERS
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER
from keyrange.model.watermarks import BEGIN
from keyrange.values.python_rows import python_values
from keyrange.work.keyed_states import States
from keyrange.work.keys_ahead import KeysAhead
from keyrange.work.limited_calls import called
from keyrange.work.model.outcome import Cause
from keyrange.work.records import Place, Row
from keyrange.work.table_forms import form_of
from keyrange.work.task_context import Task
from keyrange.work.timer_places import timer_places
from keyrange.work.user_errors import Said

# When a timer was due, the record behind which its rows stand, where that is asked, and these.
_Fired = tuple[int, "int | None", "Sequence[Row]"]


@dataclass(frozen=True, slots=True)
class FiredTimer:
    """A timer for which a function is called. `at_us`: in microseconds since 1970."""

    partition: TopicPartition
    at_us: int

    @property
    def place(self) -> Place:
        return {"partition": self.partition, "timer": instant(self.at_us).isoformat()}


class RecordTimers:
    """Fires timers of the keys whose state is read ahead.

    The timers of a key fire in the order of their times, before the records that are read behind
    them. They wait as long as a record of the key does that came before; a timer that failed goes
    before all others of its key, and the key's records wait for it. So does what was due with it;
    timers that became due later fire behind the records that waited.
    """

    def __init__(
        self,
        task: Task,
        states: States,
        keys: KeysAhead,
        checked: Callable[[FiredTimer, Any], Any],
    ) -> None:
        """`checked`: of the rows that a function answers with, those that fit. Raises one of UNFIT
        for others, and WrongResult for what is no answer."""
        self._task, self._keys, self._checked = task, keys, checked
        self._retries, self._figures = states.retries, states.figures
        names = states.form.names
        self._timers, self._retry = names.index(TIMERS), names.index(TIMER_RETRY)
        self._form = form_of(task.job)
        # Keys whose timers are due and wait for a record.
        self._waiting: list[int] = []
        # The keys as records have them; made when a timer fires.
        self._read_keys: Sequence[Any] | None = None

    def before(self, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output of timers that are due of the keys whose state was `found`, before records of
        these are worked on."""
        timers_us, retries_ms = wake_times(found)
        due = np.flatnonzero((timers_us <= self._keys.clock_us) | (retries_ms != NEVER))
        self._waiting = []
        self._read_keys = None
        yield from self._fire(due.tolist(), has_waited=False)

    def behind(self) -> Iterator[pa.RecordBatch]:
        """The output of timers that have waited for records, which were worked on."""
        waiting, self._waiting = self._waiting, []
        yield from self._fire(waiting, has_waited=True)
        for group in set(waiting).difference(self._waiting):
            timers = self._keys.entries[group][self._timers]
            if timers is not ABSENT and timers[0] <= self._keys.clock_us:
                # The time of the batch was up: nobody but this task knows that they are due.
                self._keys.changed.add(group)

    def _fire(self, groups: Iterable[int], has_waited: bool) -> Iterator[pa.RecordBatch]:
        rows: list[Row] = []
        times_us: list[int] = []
        offsets: list[int | None] = []
        partition = self._keys.partition
        for group in groups:
            for at_us, behind, made in self._fired_of(group, has_waited):
                rows += made
                times_us += [at_us] * len(made)
                offsets += [behind] * len(made)
        for table, output, at_rows in self._form.parts(rows):
            if output.num_rows:
                own = range(len(rows)) if at_rows is None else at_rows
                given = [times_us[at] for at in own], [offsets[at] for at in own]
                yield self._task.output(output, timer_places(partition, *given), None, table)

    def _fired_of(self, group: int, has_waited: bool) -> Iterator[_Fired]:
        """The timers of a key that fire, each with its rows: those that were due when one of them
        failed, and those that became due since, unless records waited for that one."""
        task, keys = self._task, self._keys
        key_hash, entry = keys.hashes[group], keys.entries[group]
        retry, last_us = entry[self._retry], None
        if retry is not ABSENT:
            _, due_ms, until_us, behind = retry
            if due_ms > self._retries.due_ms:
                task.hold(keys.partition, key_hash)
                return
            behind = task.timer_places.of_failed(keys.partition, behind)
            last_us = yield from self._fired_until(group, until_us, BEGIN, behind)
            if last_us is None:
                return
        timers = entry[self._timers]
        if timers is ABSENT or timers[0] > keys.clock_us:
            return
        if task.waits(keys.partition, key_hash):
            self._waiting.append(group)
            return
        last_us = BEGIN if last_us is None else last_us
        behind = task.timer_places.behind(keys.partition, key_hash, has_waited)
        yield from self._fired_until(group, keys.clock_us, last_us, behind)

    def _fired_until(
        self, group: int, until_us: int, last_us: int, offset: int | None
    ) -> Generator[_Fired, None, int | None]:
        """The timers of a key that are due at `until_us`, each with its rows, behind one that fired
        at `last_us` and the record at `offset`. Answers with the last one that has; None where no
        other one is to fire now."""
        entry = self._keys.entries[group]
        while (timers := entry[self._timers]) is not ABSENT:
            # One that was set for a time that has fired is for the next batch: else it could set
            # itself for ever.
            at = bisect_right(timers, last_us)
            if at == len(timers) or timers[at] > until_us:
                return last_us
            last_us = timers[at]
            made = self._call(group, last_us, until_us, offset)
            if made is None:
                return None
            yield last_us, offset, made
        return last_us

    def _call(
        self, group: int, at_us: int, until_us: int, offset: int | None
    ) -> Sequence[Row] | None:
        """The rows of a timer, one of those that were due at `until_us`; None where it has not
        fired."""
        task, keys = self._task, self._keys
        allowance = task.limits.allowance(task.alarm.now_ms())
        if task.limits.spent:
            return None
        keys.begin(group)
        keys.current.before = keys.current.entry[:]
        self._take_off(keys.current.entry, at_us)
        made, failed = called(task, partial(self._rows, group), at_us, 1, allowance)
        if failed is None:
            keys.settle()
            self._figures.timers_fired += 1
            rows: list[Row] = made
            return rows
        if failed.cause is None:
            keys.current.take_back()
            return None
        return self._failed(group, at_us, (until_us, offset), failed.cause, failed.why)

    def _rows(self, group: int, at_us: int) -> list[Row]:
        """The rows of a timer. Raises as `_answer`, and one of UNFIT where table or topic refuses
        one."""
        made = self._answer(group, at_us)
        rows = [made] if isinstance(made, tuple) and made and self._form.width else list(made)
        if self._form.may_refuse:
            self._form.parts(rows)
        return rows

    def _answer(self, group: int, at_us: int) -> Any:
        """Of the rows that the function of timers answers with, those that fit. Raises what it
        raises, and as `checked`."""
        keys, job = self._keys, self._task.job
        if self._read_keys is None:
            raw, reader = keys.keys, job.values
            self._read_keys = (
                raw
                if reader is None
                else python_values(reader.read_keys(pa.array(raw, pa.binary())))
            )
        if job.on_timer is None:
            raise RuntimeError(NO_ON_TIMER)
        answered = job.on_timer(self._read_keys[group], instant(at_us), keys.state)
        return (
            () if answered is None else self._checked(FiredTimer(keys.partition, at_us), answered)
        )

    def _take_off(self, entry: Entry, at_us: int) -> None:
        """A timer of a key is none any more."""
        timers = entry[self._timers]
        at = bisect_left(timers, at_us)
        entry[self._timers] = timers[:at] + timers[at + 1 :] or ABSENT
        entry[self._retry] = ABSENT

    def _failed(
        self, group: int, at_us: int, fires: tuple[int, int | None], cause: Cause, why: Said
    ) -> Sequence[Row] | None:
        """A timer has failed: it comes again, or it is given up, and fires no more. `fires`: up to
        when its key's timers were due, and behind which record."""
        task, keys = self._task, self._keys
        key, key_hash, entry = keys.keys[group], keys.hashes[group], keys.entries[group]
        keys.current.take_back()
        self._figures.timers_failed += 1
        retry = entry[self._retry]
        deliveries = 1 if retry is ABSENT else retry[0] + 1
        keys.changed.add(group)
        task.limits.settled()
        failed = (keys.partition, (key, key_hash), at_us, deliveries)
        due_ms = task.fail_timer(*failed, self._retries.now_ms, cause, why)
        if due_ms is None:
            self._take_off(entry, at_us)
            return ()
        entry[self._retry] = (deliveries, due_ms, *fires)
        return None
