"""Where rows of timers stand that are held: behind what was read of their key range before."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import keyrange
from keyrange.keyed_state.state_handles import instant
from keyrange.keyed_state.variables import StateForm, timer_variables, variables_of
from keyrange.model.key_ranges import SPACE, hash_of, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.model.watermarks import PartitionClock
from keyrange.work.job_time import job_time
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.state_in_memory import FoldedState, told_in
from keyrange.work.task_context import Job, RowsOf, Task
from keyrange.work.task_run import run_task
from samples.working import TIMED_RECORDS, VirtualAlarm

AT = TopicPartition("t", 0)
ROWS = pa.schema([("name", pa.string()), ("offset", pa.int64())])
CELLS = tuple(split_evenly(SPACE, 2))
LOW, HIGH = (
    next(key for key in map(b"%d".__mod__, range(99)) if cell.contains(hash_of(key)))
    for cell in CELLS
)


class Batches:
    """Every record sets a timer of its key, which is due in the next batch."""

    def __init__(self, mode: str) -> None:
        self.mode, self.fails = mode, False
        form = StateForm((*variables_of({"n": keyrange.ValueState("n long")}), *timer_variables()))
        self.states = FoldedState(form)

    def run(
        self,
        begins: tuple[int, ...],
        records: list[tuple[bytes, int]],
        again: Any = None,
        at_once: int = 9,
    ) -> list[tuple[str, int | None, bool]]:
        """The rows of a batch, by key: behind which record each stands, and whether it is of a
        timer. The task gets so many records `at_once`. Without `begins` rows are not held."""
        self.states.clocks[AT] = PartitionClock(10)
        self.states.fires = [AT]
        self.states.time_ms += 1_000
        one = self.mode == "record"
        work = TaskPartition(CELLS, again=again or {}, begins=begins)
        job = Job(
            {AT: work},
            WorkSettings(backoff_ms=10),
            self.mode,
            ROWS,
            self._one if one else self._many,
            keeps_offsets=bool(begins),
            outputs=(RowsOf(ROWS, ("name",), is_staged=True),),
            on_timer=self._on_timer if one else self._on_timers,
            time=job_time(keyrange.EventTime()),
        )
        rows = [
            {
                "key": key,
                "topic": "t",
                "partition": 0,
                "offset": at,
                "timestamp": instant(10**6),
                "keyHash": hash_of(key),
            }
            for key, at in records
        ]
        whole = pa.RecordBatch.from_pylist(rows, TIMED_RECORDS)
        batches = [whole.slice(first, at_once) for first in range(0, len(rows), at_once)]
        found: list[tuple[str, int | None, bool]] = []
        for made in run_task(Task(job, VirtualAlarm(lambda _: 0)), batches, self.states):
            places = list(told_in(made, "change"))
            if places:
                names = made.column("name").to_pylist()
                pairs = zip(names, places, strict=True)
                found += [(name, at["offset"], bool(at["fired"])) for name, at in pairs]
        return sorted(found)

    def _one(self, record: Any, state: Any) -> Any:
        state.timers.set(instant(5))
        return record.key.decode(), record.offset

    def _on_timer(self, key: bytes, _at: Any, _state: Any) -> Any:
        if self.fails:
            raise ValueError("not yet")
        return key.decode(), None

    def _many(self, records: pa.RecordBatch, _groups: pa.Array, state: pa.RecordBatch) -> Any:
        at = state.schema.get_field_index("timers")
        field = state.schema.field(at)
        timers = pa.array([[instant(5)]] * state.num_rows, field.type)
        names = records.column("key").cast(pa.string())
        rows = pa.RecordBatch.from_arrays([names, records.column("offset")], schema=ROWS)
        return rows, state.set_column(at, field, timers)

    def _on_timers(self, timers: pa.RecordBatch, _groups: pa.Array, state: pa.RecordBatch) -> Any:
        if self.fails:
            raise ValueError("not yet")
        names = timers.column("key").cast(pa.string())
        offsets = pa.nulls(len(names), pa.int64())
        return pa.RecordBatch.from_arrays([names, offsets], schema=ROWS), state


@pytest.fixture(params=["record", "arrow"])
def batches(request: pytest.FixtureRequest) -> Batches:
    return Batches(request.param)


LOW_NAME, HIGH_NAME = LOW.decode(), HIGH.decode()


def test_each_key_range_has_a_place_of_its_own(batches: Batches) -> None:
    assert batches.run((0, 0), [(LOW, 0), (HIGH, 1)]) == sorted(
        [(LOW_NAME, 0, False), (HIGH_NAME, 1, False)]
    )
    # The range of one key has fallen behind. Timers fire without records, and with them.
    assert batches.run((1, 7), [(LOW, 1)]) == sorted(
        [(LOW_NAME, 0, True), (LOW_NAME, 1, False), (HIGH_NAME, 6, True)]
    )


def test_a_timer_that_failed_stands_where_it_stood(batches: Batches) -> None:
    batches.run((0, 0), [(LOW, 0)])
    batches.fails = True
    # The record waits for the timer.
    assert batches.run((1, 1), [(LOW, 1)]) == []
    batches.fails = False
    assert batches.run((2, 2), [(LOW, 1)], {1: hash_of(LOW)}) == [
        (LOW_NAME, 0, True),
        (LOW_NAME, 1, False),
    ]


def test_a_timer_that_waited_for_a_record_stands_behind_it(batches: Batches) -> None:
    batches.run((0, 0), [(LOW, 0)])
    assert batches.run((5, 5), [(LOW, 3)], {3: hash_of(LOW)}) == [
        (LOW_NAME, 3, False),
        (LOW_NAME, 3, True),
    ]


def test_a_timer_that_became_due_in_the_batch_stands_behind_the_record_that_set_it(
    batches: Batches,
) -> None:
    assert batches.run((0, 0), [(LOW, 3), (HIGH, 4), (LOW, 5)], at_once=2) == sorted(
        [(LOW_NAME, 3, False), (LOW_NAME, 3, True), (HIGH_NAME, 4, False), (LOW_NAME, 5, False)]
    )


def test_a_timer_stands_behind_no_record_of_another_key_range(batches: Batches) -> None:
    batches.run((0, 0), [(LOW, 0)])
    # The next records of its range, which has fallen behind, are to stand behind it.
    assert batches.run((5, 60), [(LOW, 3), (HIGH, 50)], {3: hash_of(LOW)}) == sorted(
        [(LOW_NAME, 3, False), (LOW_NAME, 3, True), (HIGH_NAME, 50, False)]
    )


def test_a_timer_that_failed_where_rows_were_not_held_stands_before_the_records_that_wait_for_it(
    batches: Batches,
) -> None:
    batches.run((), [(LOW, 0)])
    batches.fails = True
    assert batches.run((), [(LOW, 1), (LOW, 2)]) == []
    batches.fails = False
    waited = {at: hash_of(LOW) for at in (1, 2)}
    assert batches.run((9, 9), [(LOW, 1), (LOW, 2)], waited) == [
        (LOW_NAME, -1, True),
        (LOW_NAME, 1, False),
        (LOW_NAME, 2, False),
    ]


def test_where_rows_are_not_held_one_that_failed_stands_before_all_that_fires_since(
    batches: Batches,
) -> None:
    batches.run((0, 0), [(LOW, 0)])
    batches.fails = True
    assert batches.run((1, 1), []) == []
    batches.fails = False
    assert batches.run((), []) == [(LOW_NAME, None, True)]
