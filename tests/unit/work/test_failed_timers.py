"""The order of a key's timers and records around a timer that fails."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import keyrange
from keyrange.keyed_state.state_handles import instant, microseconds
from keyrange.keyed_state.variables import StateForm, timer_variables, variables_of
from keyrange.model.key_ranges import SPACE, hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.watermarks import PartitionClock
from keyrange.work.job_time import job_time
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.state_in_memory import FoldedState, told_in
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task
from samples.working import TIMED_RECORDS, VirtualAlarm

AT = TopicPartition("t", 0)
KEY = b"k"
HASH = hash_of(KEY)
NO_ROWS = pa.RecordBatch.from_pylist([], pa.schema([("n", pa.int64())]))


class Key:
    """A key whose function sets timers with its first record, and the batches that it has."""

    def __init__(
        self,
        mode: str,
        timers_us: list[int],
        deliveries_max: int = 5,
        scope: StateScope = OWN_STATE,
    ) -> None:
        self.mode, self.timers_us, self.failing = mode, timers_us, set[int]()
        self.settings = WorkSettings(backoff_ms=10, deliveries_max=deliveries_max)
        form = StateForm((*variables_of({"n": keyrange.ValueState("n long")}), *timer_variables()))
        self.scope = scope
        self.states = FoldedState(form, scope=scope)
        # What was done, in its order: offsets of records, and times of timers, as text.
        self.done: list[str] = []
        self.failed: list[dict[str, Any]] = []

    def batch(
        self, clock_us: int, offsets: list[int], again: list[int] | None = None
    ) -> dict[int, Cause]:
        """One batch; which of its records are not done, and why."""
        self.states.clocks[AT] = PartitionClock(clock_us)
        self.states.fires = [self.scope.home(AT)]
        self.states.time_ms += 1_000
        work = TaskPartition((SPACE,), again=dict.fromkeys(again or [], HASH))
        one = self.mode == "record"
        job = Job(
            {AT: work},
            self.settings,
            self.mode,
            NO_ROWS.schema,
            self._one if one else self._many,
            on_timer=self._on_timer if one else self._on_timers,
            time=job_time(keyrange.EventTime()),
            scope=self.scope,
        )
        rows = [
            {
                "key": KEY,
                "topic": "t",
                "partition": 0,
                "offset": at,
                "timestamp": instant(10**6),
                "keyHash": HASH,
            }
            for at in sorted([*offsets, *(again or [])])
        ]
        batches = [pa.RecordBatch.from_pylist(rows, TIMED_RECORDS)] if rows else []
        said: dict[int, Cause] = {}
        for found in run_task(Task(job, VirtualAlarm(lambda _: 0)), batches, self.states):
            said |= {told["offset"]: Cause(told["cause"]) for told in told_in(found, "outcome")}
            self.failed += told_in(found, "failed_timer")
        return said

    def _one(self, record: Any, state: Any) -> None:
        self.done.append(f"record {record.offset}")
        if record.offset == 0:
            for each in self.timers_us:
                state.timers.set(instant(each))

    def _many(self, records: pa.RecordBatch, _groups: pa.Array, state: pa.RecordBatch) -> Any:
        offsets = records.column("offset").to_pylist()
        self.done += [f"record {at}" for at in offsets]
        if 0 not in offsets:
            return NO_ROWS, None
        at = state.schema.get_field_index("timers")
        field = state.schema.field(at)
        timers = pa.array([[instant(each) for each in self.timers_us]], field.type)
        return NO_ROWS, state.set_column(at, field, timers)

    def _on_timer(self, _key: bytes, at: datetime, _state: Any) -> None:
        self._fires([microseconds(at)])

    def _on_timers(self, timers: pa.RecordBatch, _groups: pa.Array, state: pa.RecordBatch) -> Any:
        self._fires(pc.cast(timers.column("at"), pa.int64()).to_pylist())
        return NO_ROWS, state

    def _fires(self, times_us: list[int]) -> None:
        if self.failing & {*times_us}:
            raise ValueError("not now")
        self.done += [f"timer {each}" for each in times_us]


MODES = pytest.mark.parametrize("mode", ["record", "arrow"])


@MODES
def test_what_became_due_since_stands_behind_the_records_that_waited(mode: str) -> None:
    key = Key(mode, [30, 35, 50])
    key.batch(0, [0])
    key.failing = {30}
    assert key.batch(40, [1]) == {1: Cause.AWAITS_TIMER}
    assert key.batch(60, [2], [1]) == {1: Cause.AWAITS_TIMER, 2: Cause.AWAITS_TIMER}
    key.failing = set()
    assert key.batch(60, [3], again=[1, 2]) == {}
    assert key.done == [
        *("record 0", "timer 30", "timer 35"),
        *("record 1", "record 2", "record 3"),
        "timer 50",
    ]


@MODES
def test_of_several_that_were_due_each_may_fail(mode: str) -> None:
    key = Key(mode, [30, 35, 50])
    key.batch(0, [0])
    key.failing = {35}
    assert key.batch(40, [1]) == {1: Cause.AWAITS_TIMER}
    assert key.done == ["record 0", "timer 30"]
    key.failing = {35}
    key.batch(60, [], again=[1])
    key.failing = set()
    key.batch(70, [], again=[1])
    assert key.done == ["record 0", "timer 30", "timer 35", "record 1", "timer 50"]


@MODES
def test_where_no_record_waited_all_that_are_due_fire(mode: str) -> None:
    key = Key(mode, [30, 35, 50, 80])
    key.batch(0, [0])
    key.failing = {30}
    key.batch(40, [])
    key.failing = set()
    key.batch(60, [1])
    assert key.done == ["record 0", "timer 30", "timer 35", "timer 50", "record 1"]


@MODES
def test_one_that_is_given_up_lets_the_others_fire_in_their_order(mode: str) -> None:
    key = Key(mode, [30, 35, 50], deliveries_max=2)
    key.batch(0, [0])
    key.failing = {30}
    assert key.batch(40, [1]) == {1: Cause.AWAITS_TIMER}
    key.batch(60, [], again=[1])
    key.batch(60, [])
    assert key.done[0] == "record 0"
    assert [each for each in key.done if each != "record 1"] == [
        *("record 0", "timer 35", "timer 50")
    ]
    assert key.done.index("record 1") < key.done.index("timer 50")
    told = [(each["at_us"], each["deliveries"], each["given_up"]) for each in key.failed]
    assert told == [(30, 1, False), (30, 2, True)]
    assert {Cause(each["cause"]) for each in key.failed} == {Cause.REJECTED}


@MODES
def test_one_that_waited_for_a_record_of_another_topic_is_of_the_one_with_the_state(
    mode: str,
) -> None:
    """Its letter is replayed where the state of its key stands."""
    key = Key(mode, [30], deliveries_max=1, scope=StateScope("home"))
    key.batch(0, [0])
    key.failing = {30}
    key.batch(40, [], again=[1])
    [told] = key.failed
    assert (key.done, told["given_up"]) == (["record 0", "record 1"], True)
    assert (told["topic"], told["partition"]) == ("home", 0)
