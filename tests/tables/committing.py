"""Commits of batches written by a test, in the place of the process that runs a job's function."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from keyrange.individual_commits.batch_deliveries import plan_batch_deliveries
from keyrange.individual_commits.model.commit import Commit, CommitKind, CommitTable
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_before_batch import planned_from, state_of
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.model.checkpoint import Checkpoint, read_checkpoint
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause, RecordOutcome
from tables.commit_model import apply_verdict
from tables.commit_tables import MemoryCommitTable

Verdicts = Mapping[TopicPartition, PartitionVerdict]
INDIVIDUAL = {"commitMode": "individual", "commitTable": "/nowhere/commits"}


class Committed:
    """A commit table in memory, and the commits of a query that a test writes to it."""

    def __init__(self) -> None:
        self.store: list[Commit] = []
        self.asked = 0

    def __call__(self, options: CommitOptions, source_id: str) -> CommitTable:
        """As `open_commit_table`."""
        counted = self

        class Counting(MemoryCommitTable):
            def known(self, seq: int | None = None) -> Any:
                counted.asked += 1
                return super().known(seq)

        return Counting(source_id, self.store)


def commit_batch(
    table: Any,
    options: SourceOptions,
    start: Any,
    end: Any,
    verdicts: Verdicts | None = None,
    batch_id: int | None = None,
    run_id: str = "run",
    whole: bool = False,
) -> dict[TopicPartition, PartitionDelivery]:
    """Commit what a batch was planned to hand out, all of it done but for what `verdicts` say;
    returns what that was. `table` opens the table of a source, `start` and `end` are JSON."""
    first, last = (e if isinstance(e, Checkpoint) else read_checkpoint(e) for e in (start, end))
    mark = last.commits
    assert mark is not None
    known = planned_from(mark, lambda source: table(options.commits, source))
    deliveries = plan_batch_deliveries(known, first, last, options)
    now_ms = int(time.time() * 1000)
    judged = {
        partition: apply_verdict(
            state_of(known, partition, first, last),
            delivery,
            (verdicts or {}).get(partition, PartitionVerdict()),
            options.commits.policy,
            now_ms,
        ).state
        for partition, delivery in deliveries.items()
    }
    own = table(options.commits, mark.source_id)
    at = own.known()
    away = last.absent.keys() & known.states.keys() - at.states.keys()
    judged |= {partition: known.states[partition] for partition in away}
    own.append(
        Commit(
            seq=at.seq + 1,
            kind=CommitKind.BATCH,
            group=options.commits.group,
            source_id=mark.source_id,
            query_id="query",
            run_id=run_id,
            batch_id=at.batch_id + 1 if batch_id is None else batch_id,
            committed_at_ms=now_ms,
            terms=options.commits.terms(options.key_ranges),
            states=judged,
            whole=whole,
            ownership=options.key_ranges.ownership,
        )
    )
    return deliveries


def rejected(*records: tuple[int, int]) -> PartitionVerdict:
    """Offsets with their places, of records that failed."""
    return PartitionVerdict(
        tuple(RecordOutcome(at, key_hash, Cause.REJECTED) for at, key_hash in records)
    )


def state(
    position: int,
    pending: Iterable[PendingRecord] = (),
    scanned: int | None = None,
    topic_id: str = "",
) -> PartitionState:
    """A partition whose map has one piece."""
    reached = position if scanned is None else scanned
    return PartitionState(topic_id, position, (KeyRangeState(SPACE, reached, tuple(pending)),))


def commit_states(
    store: list[Commit],
    source_id: str,
    states: Mapping[TopicPartition, PartitionState],
    kind: CommitKind = CommitKind.BATCH,
    terms: CommitSettings | None = None,
) -> None:
    """One more commit of a source, as if its batch had come to these states."""
    seq = sum(commit.source_id == source_id for commit in store) + 1
    store.append(
        Commit(
            seq=seq,
            kind=kind,
            group="default",
            source_id=source_id,
            query_id="query",
            run_id="run",
            batch_id=seq - 1 if kind is CommitKind.BATCH else -1,
            committed_at_ms=0,
            terms=terms or CommitSettings(),
            states=states,
        )
    )
