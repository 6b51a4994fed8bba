"""What a batch did, in numbers of records."""

from __future__ import annotations

from keyrange.individual_commits.batch_run import BatchRun
from keyrange.individual_commits.model.commit import CommitCounts
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.model.offsets import TopicPartition


def counts_of(running: BatchRun, judged: Outcome) -> dict[TopicPartition, CommitCounts]:
    """What a batch did with the partitions of which it handed something out, in records."""
    told, plan, planned = running.told, running.plan, running.plan.planned
    ends, log_ends = planned.end.positions, planned.mark.log_ends
    verdicts, deliveries = told.verdicts(), plan.deliveries
    again = dict(zip(deliveries, deliveries.redelivered_counts().tolist(), strict=True))
    found: dict[TopicPartition, CommitCounts] = {}
    for partition in deliveries.states.where(deliveries.busy):
        not_done = verdicts[partition].not_done if partition in verdicts else ()
        held_back = sum(not each.cause.was_worked_on for each in not_done)
        found[partition] = CommitCounts(
            done=told.done.get(partition, 0),
            rejected=len(not_done) - held_back,
            held_back=held_back,
            dead=len(judged.dead.get(partition, ())),
            redelivered=again[partition],
            log_end=log_ends.get(partition, ends[partition]),
        )
    return found
