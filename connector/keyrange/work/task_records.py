"""What a task is handed, for its function, and what it says beside output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from keyrange.work.outcome_rows import OutcomeRows, other_rows
from keyrange.work.record_stretches import RecordStretch, cut
from keyrange.work.task_context import Task


def stretches(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordStretch]:
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


def last_rows(task: Task) -> Iterator[pa.RecordBatch]:
    """What a task says at its end."""
    for hidden in task.last_rows():
        if len(hidden):
            yield other_rows(task.job.schema, hidden)


def outcomes(task: Task, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
    """The records that are not done."""
    if len(not_done):
        yield other_rows(task.job.schema, not_done.hidden())
