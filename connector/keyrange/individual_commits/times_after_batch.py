"""How far time has come in the partitions of a batch behind it, and when timers are due next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.state_columns import StateColumns
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import UNKNOWN, SeenTimers, after_batch
from keyrange.model.watermarks import (
    BEGIN,
    PartitionClock,
    PartitionTime,
    moved,
    shared_from,
    starts_after,
)
from keyrange.work.job_time import JobTime

if TYPE_CHECKING:
    from keyrange.individual_commits.batch_run import BatchRun

_Timers = list[SeenTimers]


def times_after(
    running: BatchRun,
    known: Snapshot,
    states: StateColumns,
    time: JobTime | None,
    back: Container[TopicPartition] = (),
) -> dict[TopicPartition, PartitionTime]:
    """What is known of the time of a batch's partitions after its commit, with which they have
    `states`; `known` is the last one before that. `back`: partitions that somebody has set back
    since the batch was planned."""
    plan = running.plan
    now_ms = plan.planned.mark.time_ms
    if time is None or now_ms is None:
        return {}
    latest_us, late, timers = _seen(running)
    scope = plan.commits.scope
    begun = scope.homes(plan.planned.end.initial)
    worked_on = scope.homes(plan.deliveries.states.where(plan.deliveries.busy))
    topic_ids = plan.planned.end.topic_ids
    lagging = set(states.lagging) if time.is_event_time else set()
    found: dict[TopicPartition, PartitionTime] = {}
    for partition in plan.states:
        before = plan.times.get(partition, PartitionTime())
        now = known.time_of(partition, topic_ids.get(partition.topic, ""))
        clock_us = plan.clocks.get(partition, PartitionClock()).at_us
        is_set = now != before or partition in back
        if is_set and plan.planned.mark.resumes is None:
            # Somebody has set it back since the batch was planned.
            due = UNKNOWN if scope.home(partition) == partition else now.timers
            before, after = now, replace(now, timers=due, starts=())
            clock_us = BEGIN if now.watermark is None else clock_us
        else:
            latest = latest_us.get(partition)
            due = after_batch(before.timers, timers.get(partition, ()))
            if partition in begun and before != PartitionTime():
                # Its log was cut back, or begins anew: records that timers waited for are gone.
                due = UNKNOWN
            watermark = before.watermark
            if scope.home(partition) in worked_on:
                delays_us = time.delay_us, time.idle_after_us
                watermark = moved(watermark, clock_us, latest, *delays_us, now_ms)
            if scope.is_shared and time.is_event_time:
                watermark = shared_from(watermark, clock_us, now_ms)
            if watermark is not None and watermark.since_ms > now_ms:
                # By a clock that was ahead by more than the time of batches waits for.
                watermark = replace(watermark, since_ms=now_ms)
            after = PartitionTime(watermark, due, late=before.late)
        after = replace(after, late=after.late + late.get(partition, 0))
        if partition in lagging:
            scanned = [piece.scanned for piece in states[partition].lagging]
            position = plan.states[partition].position
            after = replace(after, starts=starts_after(before, position, clock_us, scanned))
        if after != PartitionTime() or partition in known.times:
            found[partition] = after
    return found


def _seen(
    running: BatchRun,
) -> tuple[dict[TopicPartition, int], Counter[TopicPartition], dict[TopicPartition, _Timers]]:
    """What tasks have said: the greatest event time of each partition, how many records were late,
    and when timers are due."""
    rows = running.manifest.rows if running.manifest is not None else {}
    latest_us: dict[TopicPartition, int] = {}
    late: Counter[TopicPartition] = Counter()
    for topic, number, at_us, count in rows.get("event_time", ()):
        partition = TopicPartition(topic, number)
        latest_us[partition] = max(at_us, latest_us.get(partition, at_us))
        late[partition] += count
    timers: dict[TopicPartition, _Timers] = {}
    for topic, number, *told in rows.get("timers", ()):
        timers.setdefault(TopicPartition(topic, number), []).append(SeenTimers.of_flat(told))
    return latest_us, late, timers
