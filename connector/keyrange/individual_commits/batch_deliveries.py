"""What a batch of a query that commits individually hands out, and in which key ranges: the same
answer in the process that plans and in the one that commits, which has it as a `BatchPlan`.

Rule of this file: no Spark and no cluster, and nothing that differs between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keyrange.errors import error
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.delivery_columns import DeliveryColumns, plan_deliveries
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import cut_span
from keyrange.individual_commits.model.state_before_batch import state_of
from keyrange.individual_commits.model.state_columns import Places, StateColumns, spread
from keyrange.individual_commits.model.verdict_columns import (
    Outcome,
    StrangeVerdict,
    apply_verdicts,
)
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.checkpoint import NEVER_DUE, Checkpoint, CommitMark
from keyrange.model.commit_settings import CommitSettings, DeliveryLimits, RedeliveryPolicy
from keyrange.model.key_ranges import KeyRange, complement
from keyrange.model.offsets import Positions, TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.timers import NEVER
from keyrange.model.watermarks import PartitionClock, PartitionTime, known_by, shared_clock_us
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.ranges.model.range_plan import even_ranges
from keyrange.work.job_time import JobTime
from keyrange.work.model.work_order import TaskPartition, WorkSettings

if TYPE_CHECKING:
    from keyrange.individual_commits.batch_in_checkpoint import Planned
    from keyrange.individual_commits.reported_outcomes import ReportedResults
    from keyrange.individual_commits.transactional_output import SetBack


def plan_batch_deliveries(
    known: Snapshot,
    start: Checkpoint,
    end: Checkpoint,
    options: SourceOptions,
    fires: Mapping[TopicPartition, tuple[KeyRange, ...]] = MappingProxyType({}),
) -> DeliveryColumns:
    """What the batch from `start` to `end` hands out of each partition, from the state at the
    commit that `end` names. `fires`: key ranges in which timers may be due, as `batch_time`. Raises
    ValueError where `end` goes back behind a state."""
    mark = end.commits
    assert mark is not None
    commits = options.commits
    pending_max = commits.limits.pending_max if mark.pending_max is None else mark.pending_max
    states = states_before(known, start, end)
    return plan_deliveries(
        states,
        begins_of_ranges(states, mark, options),
        np.fromiter(map(end.positions.__getitem__, states), np.int64, len(states)),
        mark.due_ms,
        DeliveryLimits(pending_max),
        commits.keeps_order if mark.keeps_order is None else mark.keeps_order,
        fires,
        commits.scope,
    )


class BatchTime(NamedTuple):
    """What late records and timers of each partition of a batch go by, and in which key ranges some
    timers may be due; nothing of a job without time."""

    clocks: Mapping[TopicPartition, PartitionClock] = MappingProxyType({})
    fires: Mapping[TopicPartition, tuple[KeyRange, ...]] = MappingProxyType({})


def batch_time(
    known: Snapshot,
    end: Checkpoint,
    log_ends: Positions,
    now_ms: int | None,
    due_ms: int,
    time: JobTime | None,
    scope: StateScope = OWN_STATE,
) -> BatchTime:
    """Of the batch that ends at `end`, whose time is `now_ms` and in which timers fire again that
    are due at `due_ms`, from the state at its commit. `log_ends` are as of its plan."""
    if time is None or now_ms is None:
        return BatchTime()
    clocks: dict[TopicPartition, PartitionClock] = {}
    fires: dict[TopicPartition, tuple[KeyRange, ...]] = {}
    lagging = set(known.states.lagging) if time.is_event_time else set()
    unread = with_unread(known, end.initial, log_ends, time)
    for home, partitions in scope.groups(end.positions).items():
        found = {p: known.time_of(p, end.topic_ids.get(p.topic, "")) for p in partitions}
        clock, looks = PartitionClock(now_ms * 1000), None
        if time.is_event_time:
            watermarks = known_by(found, unread, now_ms)
            clock = PartitionClock(shared_clock_us(watermarks, time.idle_after_us, now_ms))
            if time.idle_after_us is not None and any(
                each is not None and each.since_ms > now_ms for each in watermarks
            ):
                # None of them is idle before the clock that it was noted by; from a commit on they
                # are by this one (`times_after`).
                looks = PartitionClock(NEVER)
        if behind := lagging.intersection(partitions):
            clock = clock.with_lags(
                (piece.span, found[partition].clock_before(piece.scanned))
                for partition in behind
                for piece in known.states[partition].lagging
            )
        clocks |= dict.fromkeys(partitions, clock)
        # The timers of keys are those of their home.
        if home in found and (spans := _due_spans(found[home], looks or clock, due_ms)):
            fires[home] = tuple(spans)
    return BatchTime(clocks, fires)


def with_unread(
    known: Snapshot, initial: Positions, log_ends: Positions, time: JobTime
) -> set[TopicPartition]:
    """The partitions whose logs end behind what was read, or behind the `initial` position of those
    that have one; none where nobody asks."""
    if time.idle_after_us is None:
        return set()
    read = dict(zip(known.states, known.states.positions.tolist(), strict=True))
    return {each for each, at in {**read, **initial}.items() if log_ends.get(each, at) > at}


def _due_spans(time: PartitionTime, clock: PartitionClock, due_ms: int) -> list[KeyRange]:
    """The key ranges in which some timer may be due."""
    if not clock.behind:
        return [timer.span for timer in time.timers if timer.is_due(clock.at_us, due_ms)]
    return [
        span
        for timer in time.timers
        for span, at_us in clock.within(timer.span)
        if timer.is_due(at_us, due_ms)
    ]


def idle_deliveries(
    states: StateColumns, mark: CommitMark, options: SourceOptions
) -> DeliveryColumns:
    """A batch that runs for the sake of another source, of which nothing is handed out: everything
    stays as the last commit says."""
    spans, ends = begins_of_ranges(states, mark, options), states.positions
    return plan_deliveries(states, spans, ends, NEVER_DUE, DeliveryLimits(pending_max=0))


def states_before(known: Snapshot, start: Checkpoint, end: Checkpoint) -> StateColumns:
    """The states that a batch begins with (`state_of`) of all partitions that it reads."""
    committed, positions, heads = known.states, end.positions, known.states.heads
    others = {each for each in positions if each not in heads}
    others.update(each for each, at in end.initial.items() if heads.get(each, ("", at))[1] != at)
    found = {(each.topic, topic_id) for each, (topic_id, *_) in heads.items()}
    ids = end.topic_ids
    strange = {topic for topic, own in found if ids.get(topic) and own not in ("", ids[topic])}
    others.update(each for each in heads if each.topic in strange)
    own = {each: state_of(known, each, start, end) for each in others if each in positions}
    return committed.only(positions) | own


def work_of(
    delivery: PartitionDelivery,
    spans: Sequence[KeyRange] | None = None,
    again: Collection[int] = (),
    holds_timers: bool = False,
) -> TaskPartition:
    """What a task knows of a partition; of keys only those in `spans`, where it reads no others.
    `again`: the offsets of records that come again to the task of a job with time. `holds_timers`:
    whether rows of timers are held."""

    def is_read(key_hash: int) -> bool:
        return spans is None or any(span.contains(key_hash) for span in spans)

    return TaskPartition(
        tuple(cell.span for cell in delivery.cells),
        delivery.held if spans is None else frozenset(filter(is_read, delivery.held)),
        {
            record.offset: record.deliveries
            for record in delivery.redelivered
            if record.deliveries and is_read(record.key_hash)
        },
        {
            record.offset: record.key_hash
            for record in delivery.redelivered
            if record.offset in again
        },
        frozenset(record.offset for record in delivery.redelivered if record.late),
        tuple(cell.from_offset for cell in delivery.cells) if holds_timers else (),
    )


def work_settings(mark: CommitMark, commits: CommitOptions, timed: bool = True) -> WorkSettings:
    """How often a record is worked on is a matter of the plan: a replay under other options would
    bury others than its first run."""
    planned_max = mark.deliveries_max
    return WorkSettings(
        commits.keeps_order if mark.keeps_order is None else mark.keeps_order,
        commits.policy.deliveries_max if planned_max is None else planned_max,
        commits.record_timeout_ms if timed else 0,
        commits.batch_time_budget_ms if timed else 0,
        commits.policy.backoff_ms,
        commits.policy.backoff_max_ms,
    )


def spans_of(partition: TopicPartition, mark: CommitMark, options: SourceOptions) -> list[KeyRange]:
    """The key ranges that a batch cuts a partition into; what others read is among them. Their
    number is the plan's, not the options': these may change between any two batches, and the state
    of a partition is cut where the ranges end."""
    given = options.key_ranges.given(partition)
    if given is not None:
        return sorted([*given, *complement(given)])
    cuts = mark.cuts.get(partition, ())
    return [
        each for span in even_ranges(mark.ranges.get(partition, 1)) for each in cut_span(span, cuts)
    ]


def begins_of_ranges(
    partitions: Iterable[TopicPartition], mark: CommitMark, options: SourceOptions
) -> Places:
    """Where the ranges begin that `spans_of` has of each partition. Few partitions are cut in a way
    of their own."""
    names, keys = list(partitions), options.key_ranges
    given = map(keys.given, names) if keys.ranges else repeat(None)
    counts = (mark.ranges.get(each, 1) for each in names)
    known: dict[object, int] = {}
    lists: list[list[int]] = []
    which: list[int] = []
    for partition, *key in zip(names, given, counts, map(mark.cuts.get, names), strict=False):
        number = known.setdefault(tuple(key), len(lists))
        if number == len(lists):
            lists.append([each.from_hash for each in spans_of(partition, mark, options)])
        which.append(number)
    return spread(lists, which)


@dataclass(frozen=True)
class BatchPlan:
    """What a batch was planned from: the states before it, and what it hands out."""

    planned: Planned
    states: StateColumns
    deliveries: DeliveryColumns
    commits: CommitOptions
    settings: CommitSettings
    # The committed offsets as the last batch left them, whatever somebody has set since.
    reached: Mapping[TopicPartition, int] = field(default_factory=dict)
    # What somebody has set back since the last batch was planned.
    set_back: Sequence[SetBack] = ()
    # Where the state of keys is, of a job that keeps some.
    runs: Mapping[TopicPartition, tuple[StateRun, ...]] = field(default_factory=dict)
    # What was known of the time of partitions, and what late records and timers went by.
    times: Mapping[TopicPartition, PartitionTime] = field(default_factory=dict)
    clocks: Mapping[TopicPartition, PartitionClock] = field(default_factory=dict)

    def works(self) -> dict[TopicPartition, TaskPartition]:
        """What the tasks know of each partition."""
        return {partition: work_of(delivery) for partition, delivery in self.deliveries.items()}

    def terms(self, timed: bool = True) -> WorkSettings:
        return work_settings(self.planned.mark, self.commits, timed)

    @property
    def policy(self) -> RedeliveryPolicy:
        return replace(self.commits.policy, deliveries_max=self.terms().deliveries_max)

    @property
    def verdict_terms(self) -> dict[str, str]:
        """The options that the rows of a verdict rest on."""
        return {
            "nullKeys": self.settings.null_keys,
            "commit.isolation": self.settings.isolation,
            "unmentioned": "retry" if self.wants_mentions else "done",
        }

    @property
    def wants_mentions(self) -> bool:
        return not self.commits.unmentioned_is_done

    def judge(self, told: ReportedResults, now_ms: int) -> Outcome:
        """The states after the batch, and what is given up. Raises IMPLAUSIBLE_VERDICT."""
        said = told.verdicts()
        try:
            strange = sorted(said.keys() - self.deliveries.keys())
            if strange:
                raise StrangeVerdict(strange[0], "the batch reads no such partition")
            return apply_verdicts(self.deliveries, said, self.policy, now_ms)
        except StrangeVerdict as failure:
            raise error(
                "IMPLAUSIBLE_VERDICT",
                f"what was said of partition {failure.partition} cannot be: {failure}",
                batch=self.planned.batch_id,
            ) from None
