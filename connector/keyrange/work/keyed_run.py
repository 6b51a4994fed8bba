"""The records and timers of one task whose function keeps state for keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.model.key_ranges import KeyRange
from keyrange.model.timers import NEVER, NextTimer, SeenTimers
from keyrange.model.watermarks import PartitionClock
from keyrange.work.event_times import with_times
from keyrange.work.keyed_arrow_worker import KeyedArrowWorker
from keyrange.work.keyed_record_worker import KeyedRecordWorker
from keyrange.work.keyed_states import States
from keyrange.work.late_records import LATE, EventTimes
from keyrange.work.outcome_rows import OutcomeRows, told_rows
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.task_context import Task

KeyedWorker = KeyedRecordWorker | KeyedArrowWorker
_WORKERS: Final[dict[str, type[KeyedWorker]]] = {
    "record": KeyedRecordWorker,
    "arrow": KeyedArrowWorker,
}


def run_keyed(
    task: Task, stretches: Iterable[RecordStretch], states: States
) -> Iterator[pa.RecordBatch]:
    """The rows of the task. Timers that are due of its key ranges fire before the records of these.
    The states are changed behind the last row."""
    job = task.job
    worker = _WORKERS[job.mode](task, states)
    times = None
    if job.time is not None and job.time.is_event_time:
        times = EventTimes(job.time, task, states.time_ms, states.figures)
    for stretch in stretches:
        yield from _fire(task, worker, states)
        for part, clock_us in _by_clock(stretch, states.clock(stretch.partition)):
            if task.limits.spent:
                task.hand_back(part)
            else:
                yield from _worked_on(task, worker, times, part, clock_us)
    yield from _fire(task, worker, states)
    worker.finish()
    yield from task.last_rows()
    if times is not None:
        yield from told_rows(job.schema, "event_time", times.rows())
    rows = [(*partition, *seen.flat()) for partition, seen in states.timers(task.waiting)]
    for partition, key_hash in task.gone():
        # Nobody has looked for them: the next batch does.
        due = NextTimer(KeyRange(key_hash, key_hash + 1), -NEVER)
        rows.append((*partition, *SeenTimers(due, is_exact=False).flat()))
    yield from told_rows(job.schema, "timers", rows)


def _worked_on(
    task: Task,
    worker: KeyedWorker,
    times: EventTimes | None,
    stretch: RecordStretch,
    clock_us: int,
) -> Iterator[pa.RecordBatch]:
    """The output of records whose keys go by one clock, and what is not done of them."""
    job, late = task.job, None
    if times is not None:
        refused = OutcomeRows(stretch.raw)
        stretch = times.admitted(stretch, clock_us, refused)
        yield from refused.told(job.schema)
        if LATE in stretch.batch.schema.names:
            late = stretch.batch.column(LATE)
    elif job.time is not None and job.mode == "arrow":
        all_now = pa.repeat(pa.scalar(clock_us, pa.int64()), len(stretch.offsets))
        stretch = with_times(stretch, all_now, clock_us)
    if len(stretch.offsets):
        not_done = OutcomeRows(stretch.raw, late)
        yield from worker.work(stretch, not_done)
        yield from not_done.told(job.schema)


def _by_clock(stretch: RecordStretch, clock: PartitionClock) -> Iterator[tuple[RecordStretch, int]]:
    """The records of some key ranges, with the clock that they go by."""
    if not clock.behind:
        yield stretch, clock.at_us
        return
    clocks_us = np.full(len(stretch.offsets), clock.at_us)
    for span, at_us in clock.behind:
        hashes = stretch.key_hashes
        clocks_us[(span.from_hash <= hashes) & (hashes < span.until_hash)] = at_us
    for at_us in np.unique(clocks_us).tolist():
        yield stretch.at(np.flatnonzero(clocks_us == at_us)), at_us


def _fire(task: Task, worker: KeyedWorker, states: States) -> Iterator[pa.RecordBatch]:
    for firing in states.firing(task.waiting_now):
        yield from worker.fire(firing)
