"""Commit tables as a query leaves them behind, for the screens that show them.

Rule of this file: batch after batch is judged by the code that judges for real; chance is seeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from keyrange.individual_commits.model.commit import Commit, CommitCounts, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    PartitionState,
    PendingRecord,
    fresh,
)
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.individual_commits.table import commit_admin
from keyrange.individual_commits.table.commit_admin import Commits, choose_source
from keyrange.model.commit_settings import CommitSettings, DeliveryLimits, RedeliveryPolicy
from keyrange.model.key_ranges import HASH_MAX, SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause, RecordOutcome
from tables.commit_model import apply_verdict, plan_delivery
from tables.commit_tables import MemoryCommitTable

BEGAN_MS = 1_780_000_000_000
BATCH_MS = 10_000
TOPIC_ID = "0123456789abcdef0123456789abcdef"
GROUP, SOURCE, QUERY, RUN = "flights", "source-1", "query-1", "run-1"


def place_of(offset: int) -> int:
    """Where the key of a record lies: anywhere, and always the same."""
    return (offset * 2654435761 * 4294967291 + 12345) % HASH_MAX


def put_in_place(
    monkeypatch: pytest.MonkeyPatch,
    query: Query,
    sources: Sequence[tuple[str, str]] = ((GROUP, SOURCE),),
) -> None:
    """Let commands find a query's table at any path, as one that holds these groups and sources."""

    def found(path: str, group: str, source: str, _: Mapping[str, str]) -> Commits:
        of_group, named = choose_source(path, sources, group, source)
        last = query.table.last_source(of_group) or named[0]
        return Commits(path, named[0] if len(named) == 1 else last, query.table, len(named) - 1)

    monkeypatch.setattr(commit_admin, "open_commits", found)


@dataclass
class Query:
    """A query that fails now and then, and the table that it writes.

    `fails` is the share of the records whose first delivery fails; later ones succeed with the
    chance `heals`.
    """

    partitions: int = 3
    ranges: int = 8
    fails: float = 0.01
    heals: float = 0.5
    begin: int = 0
    seed: int = 1
    now_ms: int = BEGAN_MS
    table: MemoryCommitTable = field(default_factory=lambda: MemoryCommitTable(SOURCE))
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    done: dict[TopicPartition, set[int]] = field(default_factory=dict)
    dead: dict[TopicPartition, list[PendingRecord]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.batch_id = -1
        self._append(CommitKind.FENCE, {}, {})

    def run(self, batches: int, records: int, tail: int = 0) -> Query:
        """Batches of so many records for each partition; the logs hold `tail` more."""
        for _ in range(batches):
            self.batch(records, tail)
        return self

    def batch(self, records: int, tail: int = 0, of: Iterable[int] | None = None) -> None:
        """Of the partitions `of`, or of all."""
        self.batch_id += 1
        self.now_ms += BATCH_MS
        states, counts = {}, {}
        for number in range(self.partitions) if of is None else of:
            partition = TopicPartition("flights", number)
            state = self.states.get(partition) or fresh(TOPIC_ID, self.begin)
            states[partition], counts[partition] = self._work(partition, state, records, tail)
        self.states |= states
        self._append(CommitKind.BATCH, states, counts)

    def became(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """A commit of a batch that read nothing of these partitions."""
        self.batch_id += 1
        self.states |= states
        self._append(CommitKind.BATCH, states, {})

    def _work(
        self, partition: TopicPartition, state: PartitionState, records: int, tail: int
    ) -> tuple[PartitionState, CommitCounts]:
        end = state.position + records
        spans = split_evenly(SPACE, self.ranges)
        delivery = plan_delivery(state, spans, end, self.now_ms, DeliveryLimits())
        held = set(delivery.held)
        failed = [
            RecordOutcome(record.offset, record.key_hash, Cause.REJECTED)
            for record in delivery.redelivered
            if self.random.random() >= self.heals
        ]
        again = {record.offset for record in delivery.redelivered}
        new = range(min(cell.from_offset for cell in delivery.cells), end)
        done = self.done.setdefault(partition, set())
        for offset in new:
            key_hash = place_of(offset)
            if offset < state.piece_of(key_hash).scanned:
                continue
            if key_hash in held:
                failed.append(RecordOutcome(offset, key_hash, Cause.HELD_BACK))
            elif self.random.random() < self.fails:
                cause = Cause.TIMED_OUT if self.random.random() < 0.2 else Cause.REJECTED
                failed.append(RecordOutcome(offset, key_hash, cause))
            else:
                done.add(offset)
        not_done = {each.offset for each in failed}
        done |= again - not_done
        verdict = PartitionVerdict(tuple(sorted(failed)))
        judged = apply_verdict(state, delivery, verdict, RedeliveryPolicy(3), self.now_ms)
        self.dead.setdefault(partition, []).extend(judged.dead)
        counts = CommitCounts(
            done=records + len(again) - len(failed),
            rejected=len(failed),
            dead=len(judged.dead),
            redelivered=len(again),
            log_end=end + tail,
        )
        return judged.state, counts

    def _append(
        self,
        kind: CommitKind,
        states: Mapping[TopicPartition, PartitionState],
        counts: Mapping[TopicPartition, CommitCounts],
    ) -> None:
        seq = len(self.table.store) + 1
        batch_id = self.batch_id if kind is CommitKind.BATCH else -1
        self.table.append(
            Commit(
                seq,
                kind,
                GROUP,
                SOURCE,
                QUERY,
                RUN,
                batch_id,
                self.now_ms,
                CommitSettings(),
                states,
                counts,
            )
        )
