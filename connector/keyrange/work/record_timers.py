"""Timers of a job whose function is called with one record after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.due_timers import wake_times
from keyrange.keyed_state.model.figures import StateFigures
from keyrange.keyed_state.state_entries import ABSENT, Entry
from keyrange.keyed_state.state_handles import Current, instant
from keyrange.keyed_state.variables import TIMER_RETRY, TIMERS
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER
from keyrange.work.model.time_limits import ANY_TIME, Interruption
from keyrange.work.record_timer import RecordTimeout
from keyrange.work.records import Place, Row, WrongResult
from keyrange.work.table_forms import form_of
from keyrange.work.task_context import Task
from keyrange.work.user_errors import FAILURES, Said, overtime, said_of


@dataclass(frozen=True, slots=True)
class FiredTimer:
    """A timer for which a function is called. `at_us`: in microseconds since 1970."""

    partition: TopicPartition
    at_us: int

    @property
    def place(self) -> Place:
        return {"partition": self.partition, "timer": instant(self.at_us).isoformat()}


class KeyStates(Protocol):
    """The state of some keys, which have numbers: `keyed_record_worker.KeyedRecordWorker`."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def time_ms(self) -> int: ...

    @property
    def figures(self) -> StateFigures: ...

    def clock_us(self) -> int: ...

    def key_of(self, group: int) -> tuple[bytes, int, Entry]: ...

    def begin_timer(self, group: int) -> Current: ...

    def call_for_timer(self, function: Callable[..., Any], group: int, at_us: int) -> Any: ...

    def settle_timer(self) -> None: ...

    def take_back_timer(self) -> None: ...

    def note_changed(self, group: int) -> None: ...


class RecordTimers:
    """Fires timers of the keys whose state a worker has read ahead.

    The timers of a key fire in the order of their times, before the records that are read behind
    them. They wait as long as a record of the key does that came before; a timer that failed goes
    before all others of its key, and the key's records wait for it.
    """

    def __init__(self, task: Task, worker: KeyStates, names: Sequence[str]) -> None:
        """`names`: of the variables of the state."""
        self._task, self._worker = task, worker
        self._timers, self._retry = names.index(TIMERS), names.index(TIMER_RETRY)
        self._form = form_of(task.job)
        self._has_keys = any(each.keys for each in task.job.outputs)
        # Keys whose timers are due and wait for a record.
        self._waiting: list[int] = []

    def before(self, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output of timers that are due of the keys whose state was `found`, before records of
        these are worked on."""
        timers_us, retries_ms = wake_times(found)
        due = np.flatnonzero((timers_us <= self._worker.clock_us()) | (retries_ms != NEVER))
        self._waiting = []
        yield from self._fire(due.tolist(), None)

    def behind(self, offset: int) -> Iterator[pa.RecordBatch]:
        """The output of timers that have waited for records up to `offset`."""
        waiting, self._waiting = self._waiting, []
        yield from self._fire(waiting, offset)
        for group in set(waiting).difference(self._waiting):
            _, _, entry = self._worker.key_of(group)
            timers = entry[self._timers]
            if timers is not ABSENT and timers[0] <= self._worker.clock_us():
                # The time of the batch was up: nobody but this task knows that they are due.
                self._worker.note_changed(group)

    def _fire(self, groups: Iterable[int], offset: int | None) -> Iterator[pa.RecordBatch]:
        rows: list[Row] = []
        times_us: list[int] = []
        for group in groups:
            for at_us, made in self._fired_of(group):
                rows += made
                times_us += [at_us] * len(made)
        for table, output, at_rows in self._form.parts(rows):
            if output.num_rows:
                own = times_us if at_rows is None else [times_us[at] for at in at_rows]
                places = self._task.timer_places(self._worker.partition, own, offset)
                yield self._task.output(output, places, None, table)

    def _fired_of(self, group: int) -> Iterator[tuple[int, Sequence[Row]]]:
        """The timers of a key that fire, each with its rows."""
        task, worker = self._task, self._worker
        _, key_hash, entry = worker.key_of(group)
        retry, clock_us, last_us = entry[self._retry], worker.clock_us(), None
        if retry is not ABSENT:
            if retry[1] > worker.time_ms:
                task.hold(worker.partition, key_hash)
                return
        elif task.waits(worker.partition, key_hash):
            self._waiting.append(group)
            return
        while (timers := entry[self._timers]) is not ABSENT and timers[0] <= clock_us:
            if last_us is not None and timers[0] <= last_us:
                # One that was set for a time that has fired: else it could set itself for ever.
                return
            last_us = timers[0]
            made = self._call(group, last_us)
            if made is None:
                return
            yield last_us, made

    def _call(self, group: int, at_us: int) -> Sequence[Row] | None:
        """The rows of a timer; None where it has not fired."""
        task, worker = self._task, self._worker
        limits, hands = task.limits, task.hands
        limited = task.job.terms.has_limits
        allowance = limits.allowance(hands.now_ms()) if limited else ANY_TIME
        if limits.spent:
            return None
        current = worker.begin_timer(group)
        entry = current.entry
        current.before = entry[:]
        entry[self._timers] = entry[self._timers][1:] or ABSENT
        entry[self._retry] = ABSENT
        function = task.job.on_timer
        assert function is not None

        def call(_: Any) -> Any:
            return worker.call_for_timer(function, group, at_us)

        try:
            made = hands.call(call, None, allowance.timeout_ms)
            rows = [made] if isinstance(made, tuple) and made and self._form.width else list(made)
            if self._has_keys:
                self._form.parts(rows)
        except RecordTimeout as failure:
            if limits.interrupted(allowance, 1, hands.now_ms()) is Interruption.HAND_BACK:
                current.take_back()
                return None
            return self._failed(group, at_us, overtime(failure, allowance.timeout_ms))
        except WrongResult as failure:
            raise failure.error from None
        except FAILURES as failure:
            return self._failed(group, at_us, said_of(failure))
        limits.settled()
        worker.settle_timer()
        worker.figures.timers_fired += 1
        return rows

    def _failed(self, group: int, at_us: int, why: Said) -> Sequence[Row] | None:
        """A timer has failed: it comes again, or it is given up, and fires no more."""
        task, worker = self._task, self._worker
        key, key_hash, entry = worker.key_of(group)
        worker.take_back_timer()
        worker.figures.timers_failed += 1
        retry = entry[self._retry]
        deliveries = 1 if retry is ABSENT else retry[0] + 1
        worker.note_changed(group)
        task.limits.settled()
        if task.gives_up_timer(worker.partition, key, key_hash, at_us, deliveries, why):
            entry[self._timers] = entry[self._timers][1:] or ABSENT
            entry[self._retry] = ABSENT
            return ()
        entry[self._retry] = (deliveries, task.due_again_ms(deliveries, worker.time_ms))
        task.hold(worker.partition, key_hash)
        return None
