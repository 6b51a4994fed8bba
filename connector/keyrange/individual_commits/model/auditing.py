"""What in the commits of a source contradicts itself.

Rule of this file: it finds and says, and stops at nothing; what a reader of the table refuses, it
lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.range_claims import is_of_consumer
from keyrange.individual_commits.model.range_handovers import Handovers
from keyrange.kafka.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Something that cannot be, at a commit, of a partition where it is of one."""

    seq: int
    partition: TopicPartition | None
    said: str


def audit(commits: Iterable[Commit], handovers: Handovers | None = None) -> Iterator[Contradiction]:
    """Everything that does not fit together in commits of one source, oldest first.

    The first of them may be any: what came before it is not asked for. `handovers` are those of a
    consumer's group.
    """
    handovers = handovers or Handovers({})
    states: dict[TopicPartition, PartitionState] = {}
    before: Commit | None = None
    batch_id = -1
    for commit in commits:
        if before is not None:
            yield from _order(before, commit, states)
        if commit.kind is CommitKind.BATCH:
            if commit.batch_id <= batch_id:
                said = f"batch {commit.batch_id} is committed after batch {batch_id}"
                yield Contradiction(commit.seq, None, said)
            batch_id = max(batch_id, commit.batch_id)
        for partition, state in sorted(commit.states.items()):
            known = states.get(partition)
            if commit.kind is CommitKind.FENCE and is_of_consumer(commit.source_id):
                wrong = handovers.wrong(commit, partition, known)
                yield from (Contradiction(commit.seq, partition, said) for said in wrong)
            elif known is not None:
                cut = commit.cut_back.get(partition, known.position)
                found = _moves(commit, known.cut_back(cut), state)
                yield from (Contradiction(commit.seq, partition, said) for said in found)
            log_end = commit.counts[partition].log_end if partition in commit.counts else -1
            if 0 <= log_end < state.position:
                said = f"position {state.position} lies beyond the log's end, {log_end}"
                yield Contradiction(commit.seq, partition, said)
        if commit.whole:
            for partition in sorted(states.keys() - commit.states.keys()):
                said = "a commit of every partition leaves it out"
                yield Contradiction(commit.seq, partition, said)
            states = {}
        states |= commit.states
        before = commit


def _order(
    before: Commit, commit: Commit, states: Mapping[TopicPartition, PartitionState]
) -> Iterator[Contradiction]:
    if commit.seq != before.seq + 1:
        yield Contradiction(commit.seq, None, f"it follows commit {before.seq}")
    # What a consumer has left may be done by others, before whoever claims it changes the terms.
    is_claim = commit.kind is CommitKind.FENCE and is_of_consumer(commit.source_id)
    left = any(state.committed < state.position for state in states.values())
    if before.terms != commit.terms and left and not is_claim:
        yield Contradiction(
            commit.seq, None, f"its numbers rest on {commit.terms}, not {before.terms}"
        )


def _moves(commit: Commit, before: PartitionState, after: PartitionState) -> Iterator[str]:
    """What of a partition may not change the way it did."""
    if before.topic_id != after.topic_id:
        # Another topic under the same name begins anew.
        return
    if after.position < before.position:
        yield f"the position went back from {before.position} to {after.position}"
    if commit.kind is CommitKind.RESET:
        if after.position != before.position:
            yield f"a reset moved the position from {before.position} to {after.position}"
        return
    if commit.kind is CommitKind.FENCE and after != before:
        yield "a driver that begins changed what is done"
        return
    if after.committed < before.committed:
        yield f"the committed offset fell from {before.committed} to {after.committed}"
    if after.position == before.position and after.scanned < before.scanned:
        yield f"what was scanned fell from {before.scanned} to {after.scanned}"
    known = {record.offset for record in before.pending}
    for record in after.pending:
        if record.offset not in known and record.offset < before.piece_of(record.key_hash).scanned:
            yield f"offset {record.offset} was done and is a pending record again"
