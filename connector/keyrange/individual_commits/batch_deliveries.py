"""What a batch of a query that commits individually hands out: the same answer in the process that
plans and in the one that commits.

Rule of this file: no Spark and no cluster, and nothing that differs between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.new_and_due_records import (
    DeliveryLimits,
    PartitionDelivery,
    plan_delivery,
)
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_before_batch import state_of
from keyrange.individual_commits.ranges_of_batch import spans_of
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.ranges.model.key_ranges import KeyRange
from keyrange.source.model.checkpoint import NEVER_DUE, Checkpoint, CommitMark
from keyrange.work.model.work_order import TaskPartition, WorkSettings


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
