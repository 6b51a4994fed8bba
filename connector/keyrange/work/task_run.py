"""What runs in the executors: the records of a task to the rows of a verdict.

The ways of working share what a task has decided (`state`). Once the batch's time is up the rest is
only looked at, to say from which offset on each key range is handed back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from keyrange.work.column_workers import ColumnWorker
from keyrange.work.function_workers import ArrowWorker, RecordWorker
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.rare_collections import rare_collections
from keyrange.work.record_alarm import RecordAlarm
from keyrange.work.record_stretches import RecordStretch, cut
from keyrange.work.task_context import Job, Task

if TYPE_CHECKING:
    from keyrange.work.keyed_states import States

_WORKERS: Final[dict[str, type[RecordWorker | ArrowWorker | ColumnWorker]]] = {
    "record": RecordWorker,
    "arrow": ArrowWorker,
    "column": ColumnWorker,
}


def work_of(
    job: Job, states: States | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: a task's records to rows of the verdict. The state of their keys is in
    `states` behind the last row."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with RecordAlarm(job.terms.has_limits) as alarm:
            yield from run_task(Task(job, alarm), batches, states)

    return work


def run_task(
    task: Task, batches: Iterable[pa.RecordBatch], states: States | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one task. Its function's `states`, where it keeps any, are changed behind the
    last row."""
    with rare_collections():
        if states is None:
            yield from _run(task, _stretches(task, batches))
        else:
            # Other functions do without what it imports.
            from keyrange.work.keyed_run import run_keyed

            yield from run_keyed(task, _stretches(task, batches), states)


def _stretches(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordStretch]:
    """What the function is to work on, one after the other. Once the time of the batch is up the
    rest is handed back."""
    job = task.job
    for batch in batches:
        for stretch in cut(batch, job.nulls_first, job.values):
            if job.needs_order:
                task.order.check(stretch)
            if job.mentions:
                task.blocks.add(stretch.partition, stretch.offsets)
            if task.limits.spent:
                task.hand_back(stretch)
            else:
                yield stretch


def _run(task: Task, stretches: Iterable[RecordStretch]) -> Iterator[pa.RecordBatch]:
    worker = _WORKERS[task.job.mode](task)
    for stretch in stretches:
        not_done = OutcomeRows(stretch.raw)
        yield from worker.work(stretch, not_done)
        yield from not_done.told(task.job.schema)
    yield from task.last_rows()
