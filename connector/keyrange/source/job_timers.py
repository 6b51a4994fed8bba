"""A job's state and timers in the process that plans: when the clock makes a timer due, what tasks
are told of time, and what the progress is."""

from __future__ import annotations

from dataclasses import replace

from keyrange.individual_commits.batch_deliveries import batch_time
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.timers import NEVER, earliest
from keyrange.model.watermarks import Watermark
from keyrange.options import SourceOptions
from keyrange.work.job_time import JobTime
from keyrange.work.model.work_order import StateOrder


def timers_due_in_s(known: Snapshot, time: JobTime | None, now_ms: int) -> float | None:
    """When the clock makes the next timer due; None where no clock does: event time goes on with
    records."""
    if time is None:
        return None
    due_ms = NEVER
    for each in known.times.values():
        timer_us, retry_ms = earliest(each.timers)
        due_ms = min(due_ms, retry_ms, _due_at_ms(timer_us, each.watermark, time))
    return None if due_ms == NEVER else max(due_ms - now_ms, 0) / 1000


def _due_at_ms(timer_us: int, watermark: Watermark | None, time: JobTime) -> int:
    """In ms since 1970; NEVER where no clock makes a timer due."""
    if timer_us == NEVER:
        return NEVER
    if not time.is_event_time:
        return timer_us // 1000
    if watermark is None or time.idle_after_us is None:
        return NEVER
    wait_us = max(timer_us - watermark.at_us, 0)
    return watermark.since_ms + (time.idle_after_us + wait_us) // 1000


def with_time(
    order: StateOrder,
    known: Snapshot,
    end: Checkpoint,
    time: JobTime | None,
    options: SourceOptions,
) -> StateOrder:
    """What the tasks of a batch are told of time, if the job has any. Timers are work as records
    are, and the limit of a batch is theirs too."""
    if time is None:
        return order
    found = batch_time(known, end, order.time_ms, time)
    most = options.max_offsets_per_trigger
    if most is not None:
        spans = sum(map(len, found.fires.values()))
        most = max(most // max(spans, 1), 1)
    return replace(order, clocks=found.clocks, timers_max=most)


def state_metrics(known: Snapshot, now_ms: int) -> dict[str, float]:
    """What there is of state, as of a commit; and of a job with event time, how far the watermark
    that is farthest back is behind the clock."""
    runs = [run for each in known.runs.values() for run in each]
    rows, size_bytes = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
    found: dict[str, float] = {"rows": rows, "bytes": size_bytes, "runs": len(runs)}
    times = known.times.values()
    watermarks_us = [each.watermark.at_us for each in times if each.watermark is not None]
    if watermarks_us:
        found["watermarkLagSeconds"] = (now_ms - min(watermarks_us) // 1000) / 1000
    return found
