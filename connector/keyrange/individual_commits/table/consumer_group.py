"""What the consumers of a group have done together, for who looks at it or sets it by hand: each
consumer writes a source of its own, and is believed of the keys that it claimed last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from keyrange.errors import error
from keyrange.individual_commits.model.commit import CommitTable, Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.range_claims import (
    Claim,
    Claims,
    begun_at,
    believed,
    group_state,
    is_of_consumer,
    of_topic,
    read_claim,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The sources of a group's consumers, with what each claims and has committed."""

    sources: Mapping[str, Commits]
    claims: Claims
    known: Mapping[str, Snapshot]

    def together(self, last: Snapshot) -> Snapshot:
        """What is known at the last commit of one source, with the states of all."""
        partitions = {p for each in self.known.values() for p in each.states}
        found = {p: group_state(self.claims, self._states(p), p) for p in sorted(partitions)}
        return replace(last, states=columns_of({p: s for p, s in found.items() if s is not None}))

    def begun(self, partition: TopicPartition) -> int:
        """Where the group began with a partition."""
        return begun_at(self.claims, partition) or 0

    def believed(self, partition: TopicPartition) -> set[str]:
        """Whose states of a partition count."""
        return {source for _, source in believed(self.claims, partition, SPACE) if source}

    def of_believed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[str, dict[TopicPartition, PartitionState]]:
        """By source what it has done of those of some partitions of which it is believed."""
        found: dict[str, dict[TopicPartition, PartitionState]] = {}
        for p in partitions:
            states = self._states(p)
            for source in sorted(self.believed(p) & states.keys()):
                found.setdefault(source, {})[p] = states[source]
        return found

    def _states(self, partition: TopicPartition) -> dict[str, PartitionState]:
        """The states of a partition, of the topic that was claimed last, by source."""
        known = {s: each.states.get(partition) for s, each in self.known.items()}
        states = {source: state for source, state in known.items() if state is not None}
        newest = max(states, key=lambda source: self.claims[source].epoch)
        return of_topic(states, states[newest].topic_id)


def consumer_group(commits: Commits) -> ConsumerGroup | None:
    """The consumers of a group; None where a source was named, or it is of a query. Raises
    COMMITS_DAMAGED."""
    if not (commits.others and is_of_consumer(commits.source_id)):
        return None
    claims = {source: _claim(commits.path, table) for source, table in commits.of_group.items()}
    found = {source: claim for source, claim in claims.items() if claim is not None}
    return ConsumerGroup(
        {s: Commits(commits.path, s, commits.of_group[s]) for s in found},
        found,
        {s: commits.of_group[s].known() for s in found},
    )


def _claim(path: str, table: CommitTable) -> Claim | None:
    for seq in sorted(table.by_hand(1), reverse=True):
        for commit in table.history(seq, seq + 1):
            if commit.claim:
                try:
                    return read_claim(commit.claim)
                except ValueError as fault:
                    where = {"source_id": commit.source_id, "commit_seq": seq}
                    raise error("COMMITS_DAMAGED", str(fault), table=path, **where) from None
    return None
