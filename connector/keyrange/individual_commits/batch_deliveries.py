"""What a batch of a query that commits individually hands out: the same answer in the process that
plans and in the one that commits.

Rule of this file: no Spark and no cluster, and nothing that differs between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_delivery import (
    DeliveryLimits,
    PartitionDelivery,
    plan_delivery,
)
from keyrange.individual_commits.model.partition_progress import PartitionState, cut_span, fresh
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.ranges.model.key_ranges import KeyRange, complement
from keyrange.ranges.model.range_counts import even_ranges
from keyrange.source.model.checkpoint import NEVER_DUE, Checkpoint, CommitMark
from keyrange.work.model.task_results import TaskPartition, WorkSettings


def plan_batch_deliveries(
    known: Snapshot, start: Checkpoint, end: Checkpoint, options: SourceOptions
) -> dict[TopicPartition, PartitionDelivery]:
    """What the batch from `start` to `end` hands out of each partition, from the state at the
    commit that `end` names."""
    mark = end.commits
    assert mark is not None
    commits = options.commits
    pending_max = commits.limits.pending_max if mark.pending_max is None else mark.pending_max
    keeps_order = commits.keeps_order if mark.keeps_order is None else mark.keeps_order
    deliveries: dict[TopicPartition, PartitionDelivery] = {}
    for partition, at in sorted(end.positions.items()):
        deliveries[partition] = plan_delivery(
            state_of(known, partition, start, end),
            spans_of(partition, mark, options),
            at,
            mark.due_ms,
            DeliveryLimits(pending_max),
            keeps_order,
        )
    return deliveries


def idle_deliveries(
    states: Mapping[TopicPartition, PartitionState], mark: CommitMark, options: SourceOptions
) -> dict[TopicPartition, PartitionDelivery]:
    """A batch that runs for the sake of another source, of which nothing is handed out: everything
    stays as the last commit says."""
    return {
        partition: plan_delivery(
            state,
            spans_of(partition, mark, options),
            state.position,
            NEVER_DUE,
            DeliveryLimits(pending_max=0),
        )
        for partition, state in sorted(states.items())
    }


def planned_from(mark: CommitMark, known_at: Callable[[str, int], Snapshot]) -> Snapshot:
    """What the plan of a batch knows, by a function that says what is known of a source up to a
    commit.

    A query that resumes begins with the states of the other source, and with no commit: batches
    have numbers of their own in every checkpoint.
    """
    if mark.resumes is not None:
        return resumed_from(known_at(*mark.resumes))
    return known_at(mark.source_id, mark.seq)


def resumed_from(before: Snapshot) -> Snapshot:
    """What a query knows that goes on from the commits of another source.

    In transactional isolation finished output above the committed offset is in the other source's
    verdicts and in no sink: it is made again.
    """
    states = before.states
    if before.terms is not None and before.terms.isolation == "transactional":
        states = {
            p: fresh(state.topic_id, state.committed, state.leader_epoch)
            for p, state in states.items()
        }
    return Snapshot(states=states, terms=before.terms, runs=before.runs)


def state_of(
    known: Snapshot, partition: TopicPartition, start: Checkpoint, end: Checkpoint
) -> PartitionState:
    """The state of a partition before a batch: as it was committed, or that of one that begins.

    Where a log was cut back, what was committed below the cut holds.
    """
    topic_id = end.topic_ids.get(partition.topic, "")
    begins = end.initial.get(partition)
    at = begins if begins is not None else start.positions[partition]
    state = known.states.get(partition)
    if state is None or (topic_id and state.topic_id not in ("", topic_id)):
        return fresh(topic_id, at)
    if begins is None or begins == state.position:
        return state
    cut = cut_of(known, partition, start, end)
    return state.cut_back(cut) if cut is not None else fresh(topic_id, at)


def cut_of(
    known: Snapshot, partition: TopicPartition, start: Checkpoint, end: Checkpoint
) -> int | None:
    """Where the log of a partition was cut back before a batch, below what was committed of it;
    None where it was not."""
    topic_id = end.topic_ids.get(partition.topic, "")
    begins, state = end.initial.get(partition), known.states.get(partition)
    if begins is None or state is None or (topic_id and state.topic_id not in ("", topic_id)):
        return None
    stood = partition in start.positions or partition in start.absent
    # Of a start without a checkpoint only what it resumes from has leader epochs.
    went_on = stood and (not start.fresh or partition in start.leader_epochs)
    return begins if went_on and begins < state.position else None


def work_of(delivery: PartitionDelivery, spans: Sequence[KeyRange] | None = None) -> TaskPartition:
    """What a task knows of a partition; of keys only those in `spans`, where it reads no others."""

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
    )


def spans_of(partition: TopicPartition, mark: CommitMark, options: SourceOptions) -> list[KeyRange]:
    """The key ranges that a batch cuts a partition into; what others read is among them."""
    given = options.key_ranges.given(partition)
    if given is not None:
        return sorted([*given, *complement(given)])
    cuts = mark.cuts.get(partition, ())
    return [
        each for span in even_ranges(mark.ranges.get(partition, 1)) for each in cut_span(span, cuts)
    ]
