"""What in the commits of a source contradicts itself; in a claim of a consumer also what others of
its group have left.

Rule of this file: it finds and says, and stops at nothing; what a reader of the table refuses, it
lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    PartitionState,
    PendingRecord,
    cut_span,
)
from keyrange.individual_commits.model.range_claims import Claim, is_of_consumer, read_claim
from keyrange.model.key_ranges import SPACE, KeyRange, index_of
from keyrange.model.offsets import TopicPartition


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


@dataclass(frozen=True, slots=True)
class _Step:
    """A source behind its commit `seq`."""

    seq: int
    claim: Claim
    states: Mapping[TopicPartition, PartitionState]


class Handovers:
    """The consumers of a group, by their commits, each source's oldest first; a text that is no
    claim is passed over. What the commits do not go back to is not judged.

    A claim of a consumer (`range_claims.py`) brings the state of the ranges that it takes along,
    from the source that was believed of them before. That source writes nothing of a range that it
    does not hold, so what it has left is still to be seen in it.
    """

    def __init__(self, histories: Mapping[str, Iterable[Commit]]) -> None:
        of_consumers = {each: list(histories[each]) for each in histories if is_of_consumer(each)}
        self._steps = {source: list(_steps(commits)) for source, commits in of_consumers.items()}
        # Sources of whose commits the oldest are not known.
        self._cut_off = {
            source for source, commits in of_consumers.items() if commits and commits[0].seq > 1
        }
        self._known_cuts: dict[TopicPartition, list[int]] = {}

    def wrong(
        self, commit: Commit, partition: TopicPartition, before: PartitionState | None
    ) -> Iterator[str]:
        """What a consumer's claim changed and may not; `before` is what its source said before."""
        claim, after = claim_of(commit), commit.states[partition]
        if claim is None:
            yield "a claim cannot be read"
            return
        held = claim.held(partition)
        if before is not None and before.topic_id not in ("", after.topic_id):
            # What is done of a topic that was created anew is done of no record of the other one.
            before = None
        spans = [piece.span for state in (before, after) if state for piece in state.pieces]
        for span in cut_span(SPACE, _borders([*spans, *held])):
            if index_of(held, span.from_hash) is None:
                if before is not None and not _follows(after, before, span):
                    yield f"a claim changed what is done of {span}, which it does not hold"
                continue
            if before is not None and _said(before, span) == _said(after, span):
                continue
            # Cut so that each part is one piece of one source.
            for part in cut_span(span, self._cuts(partition)):
                source, left = self._left(commit, claim, partition, part.from_hash)
                if left is None or left.topic_id not in ("", after.topic_id):
                    continue
                # A source also cuts back what it has left, when it claims other ranges later.
                if not (_follows(after, left, part) or _follows(left, after, part)):
                    yield f"a claim took {part} over, not as source {source} has left it"

    def _left(
        self, commit: Commit, claim: Claim, partition: TopicPartition, key_hash: int
    ) -> tuple[str, PartitionState | None]:
        """The source that was believed of a place before it was claimed, and its state; None where
        it may be one that had it in commits that are not known."""
        found: tuple[int, str, PartitionState | None] = (-1, "", None)
        for source, steps in self._steps.items():
            own = source == commit.source_id
            for step in reversed(steps):
                epoch = _epoch(step.claim, partition, key_hash)
                if step.seq < commit.seq if own else epoch < claim.epoch:
                    left = epoch, source, step.states.get(partition)
                    found = max(found, left, key=lambda each: each[:2]) if epoch >= 0 else found
                    break
            else:
                if source in self._cut_off:
                    return source, None
        return found[1:]

    def _cuts(self, partition: TopicPartition) -> list[int]:
        """Where anything is cut that a consumer has said of a partition."""
        if partition not in self._known_cuts:
            spans: list[KeyRange] = []
            for steps in self._steps.values():
                for step in steps:
                    spans += [each.span for each in step.claim.ranges.get(partition, ())]
                    state = step.states.get(partition)
                    spans += [piece.span for piece in state.pieces] if state else []
            self._known_cuts[partition] = _borders(spans)
        return self._known_cuts[partition]


def claim_of(commit: Commit) -> Claim | None:
    """The claim in a fence of a consumer; None where there is none."""
    try:
        return read_claim(commit.claim)
    except ValueError:
        return None


def _steps(commits: Iterable[Commit]) -> Iterator[_Step]:
    claim: Claim | None = None
    states: Mapping[TopicPartition, PartitionState] = {}
    for commit in commits:
        if commit.kind is CommitKind.FENCE:
            claim = claim_of(commit) or claim
        states = commit.states if commit.whole else {**states, **commit.states}
        if claim is not None:
            yield _Step(commit.seq, claim, states)


def _epoch(claim: Claim, partition: TopicPartition, key_hash: int) -> int:
    """The epoch in which a place was claimed last; -1 where it was not."""
    claimed = claim.ranges.get(partition, ())
    return next((each.epoch for each in claimed if each.span.contains(key_hash)), -1)


def _said(state: PartitionState, part: KeyRange) -> tuple[int, tuple[PendingRecord, ...]]:
    """What a state says of a part of one of its pieces."""
    piece = state.piece_of(part.from_hash)
    return piece.scanned, tuple(
        record for record in piece.pending if part.contains(record.key_hash)
    )


def _follows(later: PartitionState, earlier: PartitionState, part: KeyRange) -> bool:
    """Whether a state says the same of a part as another, or what is left of it in the log of a
    later leader."""
    said = _said(later, part)
    if said == _said(earlier, part):
        return True
    if not 0 <= earlier.leader_epoch < later.leader_epoch:
        return False
    end, _ = said
    return said == _said(earlier.cut_back(end), part)


def _borders(spans: Iterable[KeyRange]) -> list[int]:
    return sorted({border for span in spans for border in (span.from_hash, span.until_hash)})
