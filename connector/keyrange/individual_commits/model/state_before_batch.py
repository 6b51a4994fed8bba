"""The state that a batch begins with: that of the commit which its plan names, also where the batch
runs again and later commits are there.

Rule of this file: no Spark and no cluster, so that the process that plans and the one that commits
find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState, fresh
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.source.model.checkpoint import Checkpoint, CommitMark


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
        afresh = {
            p: fresh(state.topic_id, state.committed, state.leader_epoch)
            for p, state in states.items()
        }
        states = columns_of(afresh)
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


def cuts_of(
    known: Snapshot, partitions: Container[TopicPartition], start: Checkpoint, end: Checkpoint
) -> dict[TopicPartition, int]:
    """Where logs were cut back below what was committed, and so begins what a batch has read."""
    # Such a log begins elsewhere than where the batch before ended; an empty batch has read none.
    begun = [each for each in end.initial if each in partitions] if start != end else []
    found = {each: cut_of(known, each, start, end) for each in begun}
    return {each: at for each, at in found.items() if at is not None}
