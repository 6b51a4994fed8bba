"""Timers that wait for a record of their key, where the record does not come or time is up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import keyrange
from keyrange.keyed_state.due_timers import next_timer
from keyrange.keyed_state.variables import StateForm, timer_variables, variables_of
from keyrange.model.key_ranges import SPACE, KeyRange, hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER, NextTimer, SeenTimers, after_batch, earliest
from keyrange.model.watermarks import PartitionClock
from keyrange.work.job_time import job_time
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.state_in_memory import FoldedState, told_in
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task
from samples.working import TIMED_RECORDS, VirtualAlarm

AT = TopicPartition("t", 0)
KEY = b"k"
HASH = hash_of(KEY)
DUE = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=5)


class Changed(FoldedState):
    """As the states of a task in whose key ranges no timers fire: it tells of what it changed."""

    def timers(self, waiting: Any) -> Iterator[tuple[TopicPartition, SeenTimers]]:
        if changes := self._changes[AT]:
            hashes = np.fromiter(waiting.get(AT, ()), np.int64)
            yield AT, SeenTimers(next_timer(changes.runs(), SPACE, hashes, 9), is_exact=False)


def worked_on(
    states: FoldedState,
    mode: str,
    offsets: Sequence[int] = (),
    again: dict[int, int] | None = None,
) -> list[SeenTimers]:
    """What a task says of timers to which records come, `again` those that came before."""

    def one(record: Any, state: Any) -> None:
        if record.offset == 0:
            state.timers.set(DUE)

    def many(records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch) -> Any:
        output = pa.RecordBatch.from_pylist([], pa.schema([("n", pa.int64())]))
        if 0 not in records.column("offset").to_pylist():
            return output, None
        at = state.schema.get_field_index("timers")
        timers = pa.array([[DUE]] * state.num_rows, state.schema.field(at).type)
        return output, state.set_column(at, state.schema.field(at), timers)

    def on_timer(*_: Any) -> Any:
        raise AssertionError("no timer fires here")

    job = Job(
        {AT: TaskPartition((SPACE,), again=again or {})},
        WorkSettings(budget_ms=10),
        mode,
        pa.schema([("n", pa.int64())]),
        one if mode == "record" else many,
        on_timer=on_timer,
        time=job_time(keyrange.ProcessingTime()),
    )
    rows = [
        {"key": KEY, "topic": "t", "partition": 0, "offset": at, "timestamp": DUE, "keyHash": HASH}
        for at in offsets
    ]
    batches = [pa.RecordBatch.from_pylist(rows, TIMED_RECORDS)] if rows else []

    def cost_ms(argument: Any) -> float:
        # Records take most of the time that there is, and timers more than that.
        return 20 if argument is None or isinstance(argument, pa.RecordBatch) else 9

    task = Task(job, VirtualAlarm(cost_ms))
    return [
        SeenTimers.of_flat([*told.values()][2:])
        for batch in run_task(task, batches, states)
        for told in told_in(batch, "timers")
    ]


def states_at(clock_us: int) -> FoldedState:
    form = StateForm((*variables_of({"n": keyrange.ValueState("n long")}), *timer_variables()))
    states = FoldedState(form)
    states.clocks[AT] = PartitionClock(clock_us)
    return states


@pytest.mark.parametrize("mode", ["record", "arrow"])
def test_a_record_that_is_gone_holds_no_timer_back(mode: str) -> None:
    """Nobody has looked for the timers of its key meanwhile."""
    states = states_at(9)
    told = worked_on(states, mode, again={7: HASH})
    assert told == [SeenTimers(NextTimer(KeyRange(HASH, HASH + 1), -NEVER), is_exact=False)]
    assert worked_on(states, mode) == []


@pytest.mark.parametrize("mode", ["record", "arrow"])
def test_timers_that_waited_are_told_of_where_time_is_up(mode: str) -> None:
    """The commit before says nothing of them, because they waited for a record."""
    states = states_at(0)
    worked_on(states, mode, [0])
    states.clocks[AT] = PartitionClock(9)
    # What was changed by earlier batches, a task of this one does not tell of.
    below = states
    states = Changed(below.form, lambda at, _: below._changes[at].runs())
    states.clocks[AT] = PartitionClock(9)
    told = worked_on(states, mode, [1], again={1: HASH})
    assert earliest(after_batch((), told))[0] <= 5
