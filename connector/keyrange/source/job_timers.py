"""A job's state and timers in the process that plans: when the clock makes a timer due, what tasks
are told of time, and what the progress is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from keyrange.individual_commits.batch_deliveries import batch_time, with_unread
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.messages.protocol import isolation_level
from keyrange.keyed_state.model.state_runs import last_seq
from keyrange.members.model.copy_book import KnownState
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.offsets import LATEST, READ_UNCOMMITTED, Positions
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.timers import NEVER, Retries, earliest
from keyrange.model.watermarks import BEGIN, Watermark, known_by, shared_due_ms
from keyrange.options import SourceOptions
from keyrange.work.job_time import JobTime
from keyrange.work.model.work_order import StateOrder


def ends_of_logs(
    cluster: Cluster,
    options: SourceOptions,
    time: JobTime | None,
    view: ClusterView,
    latest: Positions,
) -> Positions:
    """Where logs end, of which the query reads up to the `latest` offsets. What is behind an open
    transaction it has not read: with `idle_after` a partition with that is not idle."""
    is_all = isolation_level(options.client) == READ_UNCOMMITTED
    if is_all or time is None or time.idle_after_us is None:
        return latest
    found = cluster.list_offsets(view, dict.fromkeys(latest, LATEST), READ_UNCOMMITTED)
    return {partition: at for partition, (at, _) in found.items()}


def timers_due_in_s(
    known: Snapshot,
    log_ends: Positions,
    time: JobTime | None,
    retries: Retries,
    scope: StateScope = OWN_STATE,
) -> float | None:
    """When the clock makes the next timer due; None where no clock does: event time goes on with
    records. Timers of a partition that is absent, without an end of its log, fire when it is back.
    """
    if time is None:
        return None
    due_ms, now_ms = NEVER, retries.now_ms
    unread = with_unread(known, {}, log_ends, time)
    for home, partitions in scope.groups(known.times.keys() & log_ends.keys()).items():
        timer_us, retry_ms = earliest(known.times[home].timers if home in partitions else ())
        times = {each: known.times[each] for each in partitions}
        watermarks = known_by(times, unread, now_ms)
        again_ms = now_ms if retry_ms <= retries.due_ms else retry_ms
        due_ms = min(due_ms, again_ms, _due_at_ms(timer_us, watermarks, time))
    return None if due_ms == NEVER else max(due_ms - now_ms, 0) / 1000


def retries_ms(known: Snapshot, log_ends: Positions) -> list[int]:
    """When timers that failed are due again, in ms since 1970; of no absent partition."""
    there = known.times.keys() & log_ends.keys()
    timers = chain.from_iterable(known.times[each].timers for each in there)
    return [timer.retry_ms for timer in timers if timer.retry_ms != NEVER]


def retry_in_s(known: Snapshot, log_ends: Positions, retries: Retries) -> float | None:
    """When the first timer fires again of those that failed and wait for that."""
    waiting = (at for at in retries_ms(known, log_ends) if at > retries.due_ms)
    return soonest(*((at - retries.now_ms) / 1000 for at in waiting))


def soonest(*found: float | None) -> float | None:
    return min((each for each in found if each is not None), default=None)


def _due_at_ms(timer_us: int, watermarks: Sequence[Watermark | None], time: JobTime) -> int:
    """In ms since 1970; NEVER where no clock makes a timer due."""
    if timer_us == NEVER:
        return NEVER
    if not time.is_event_time:
        return timer_us // 1000
    return shared_due_ms(watermarks, time.idle_after_us, timer_us)


def state_order(
    known: Snapshot,
    end: Checkpoint,
    mark: CommitMark,
    now_ms: int,
    time: JobTime | None,
    options: SourceOptions,
) -> StateOrder:
    """What the tasks of a batch that ends at `end`, with its `mark`, are told of state, from what
    is `known` at the commit of that, and of time, if the job has any. Timers are work as records
    are, and the limit of a batch is theirs too."""
    # Who planned it may have kept no state.
    clock_ms = now_ms if mark.clock_ms is None else mark.clock_ms
    now_ms = clock_ms if mark.time_ms is None else mark.time_ms
    found = {p: known.runs_of(p, end.topic_ids.get(p.topic, "")) for p in end.positions}
    runs = {partition: each for partition, each in found.items() if each}
    scope = options.commits.scope
    order = StateOrder(
        *(last_seq(chain.from_iterable(runs.values()), mark.seq), now_ms, runs),
        scope=scope,
        topic_id=end.topic_ids.get(scope.topic, ""),
        retries=Retries(clock_ms, mark.due_ms),
    )
    if time is None:
        return order
    told = batch_time(known, end, end.log_ends, now_ms, mark.due_ms, time, scope)
    most = options.max_offsets_per_trigger
    if most is not None:
        spans = sum(map(len, told.fires.values()))
        most = max(most // max(spans, 1), 1)
    return replace(order, clocks=told.clocks, timers_max=most)


def known_state(known: Snapshot, source_id: str) -> KnownState:
    """What executors may copy of the state as of a commit."""
    from keyrange.keyed_state.cache import place_of

    states = known.states
    return KnownState(source_id, known.runs, lambda at: place_of(states.topic_id_of(at) or "", at))


def state_metrics(known: Snapshot, now_ms: int) -> dict[str, float]:
    """What there is of state, as of a commit; and of a job with time what holds timers back: how
    far the watermark that is farthest back is behind the clock, and of how many partitions timers
    wait for a pending record of their key, or for one that failed."""
    runs = [run for each in known.runs.values() for run in each]
    rows, size_bytes = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
    found: dict[str, float] = {"rows": rows, "bytes": size_bytes, "runs": len(runs)}
    times = known.times.values()
    watermarks_us = [
        each.watermark.at_us
        for each in times
        if each.watermark is not None and each.watermark.at_us != BEGIN
    ]
    if watermarks_us:
        found["watermarkLagSeconds"] = (now_ms - min(watermarks_us) // 1000) / 1000
    if times:
        found["timersAwaitRecords"] = len(set(known.states.places_of_pending.part.tolist()))
        found["timersAwaitRetry"] = sum(earliest(each.timers)[1] != NEVER for each in times)
    return found
