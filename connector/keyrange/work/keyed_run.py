"""The records and timers of one task whose function keeps state for keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from keyrange.model.key_ranges import KeyRange
from keyrange.model.timers import NEVER, NextTimer, SeenTimers
from keyrange.work.event_times import LATE, EventTimes, with_times
from keyrange.work.keyed_arrow_worker import KeyedArrowWorker
from keyrange.work.keyed_record_worker import KeyedRecordWorker
from keyrange.work.keyed_states import States
from keyrange.work.outcome_rows import OutcomeRows, member_rows, other_rows
from keyrange.work.task_context import Task
from keyrange.work.task_records import last_rows, outcomes, stretches

KeyedWorker = KeyedRecordWorker | KeyedArrowWorker
_WORKERS: Final[dict[str, type[KeyedRecordWorker] | type[KeyedArrowWorker]]] = {
    "record": KeyedRecordWorker,
    "arrow": KeyedArrowWorker,
}


def run_keyed(
    task: Task, batches: Iterable[pa.RecordBatch], states: States
) -> Iterator[pa.RecordBatch]:
    """The rows of the task. Timers that are due of its key ranges fire before the records of these.
    The states are changed behind the last row."""
    job = task.job
    worker = _WORKERS[job.mode](task, states)
    times = None
    if job.time is not None and job.time.is_event_time:
        times = EventTimes(job.time, task, states.time_ms, states.figures)
    for stretch in stretches(task, batches):
        yield from _fire(worker, states)
        admitted = stretch
        if times is not None:
            refused = OutcomeRows(stretch.raw)
            admitted = times.admitted(stretch, states.clock_us(stretch.partition), refused)
            yield from outcomes(task, refused)
        elif job.time is not None and job.mode == "arrow":
            clock_us = states.clock_us(stretch.partition)
            all_now = pa.repeat(pa.scalar(clock_us, pa.int64()), len(stretch.offsets))
            admitted = with_times(stretch, all_now, clock_us)
        if len(admitted.offsets):
            names = admitted.batch.schema.names
            late = admitted.batch.column(LATE) if times is not None and LATE in names else None
            not_done = OutcomeRows(admitted.raw, late)
            yield from worker.work(admitted, not_done)
            yield from outcomes(task, not_done)
    yield from _fire(worker, states)
    worker.finish()
    yield from last_rows(task)
    if times is not None:
        for hidden in times.rows():
            yield other_rows(job.schema, hidden)
    rows = [(*partition, *seen.flat()) for partition, seen in states.timers(task.waiting)]
    for partition, key_hash in task.gone():
        # Nobody has looked for them: the next batch does.
        due = NextTimer(KeyRange(key_hash, key_hash + 1), -NEVER)
        rows.append((*partition, *SeenTimers(due, is_exact=False).flat()))
    if rows:
        yield other_rows(job.schema, member_rows("timers", rows))


def _fire(worker: KeyedWorker, states: States) -> Iterator[pa.RecordBatch]:
    for firing in states.firing():
        yield from worker.fire(firing)
