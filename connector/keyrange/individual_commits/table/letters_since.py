"""What became of dead letters since they were written.

A reset of the commits, or a replay that ended before it was noted, hands records out again. So a
letter is found by its record: where a reset behind it says that the record is not done, the letter
is not the last word on it, whether the record was done then or was given up once more.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.table.commit_schema import commits_of
from keyrange.individual_commits.table.commit_table import LAYOUT
from keyrange.individual_commits.table.dead_letters import DeadLetter, ResetOf
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import hash_of_record
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.table_store import Bounds, Store


class Resets:
    """The resets of a commit table, of all its groups; none where there is no such table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of: dict[tuple[str, TopicPartition], list[Commit]] = {}
        self._batches: dict[str, pa.Table] = {}
        if not store.refresh():
            return
        kind = CommitKind.RESET.value
        rows = store.read({"kind": (kind, kind)})
        sources = rows.column("source_id")
        for source in pc.unique(sources).to_pylist():
            for commit in commits_of(rows.filter(pc.equal(sources, source)), source):
                for partition in commit.states:
                    self._of.setdefault((commit.group, partition), []).append(commit)

    def handed_out_by(self, letter: DeadLetter) -> Commit | None:
        """The first reset that handed out a letter's record again; None where none did."""
        partition = TopicPartition(letter.topic, letter.partition)
        return next(
            (
                commit
                for commit in self._of.get((letter.group, partition), ())
                if self._is_behind(commit, letter) and _is_handed_out(commit, partition, letter)
            ),
            None,
        )

    def _is_behind(self, commit: Commit, letter: DeadLetter) -> bool:
        if commit.source_id != letter.source_id:
            return commit.committed_at_ms >= letter.written_at_ms
        # The clocks of driver and command may differ: of one source its batches tell.
        if commit.source_id not in self._batches:
            bounds: Bounds = {"source_id": (commit.source_id, commit.source_id)}
            self._batches[commit.source_id] = self._store.read(bounds, ["commit_seq", "batch_id"])
        rows = self._batches[commit.source_id]
        before = rows.filter(pc.less(rows.column("commit_seq"), commit.seq))
        last = pc.max(before.column("batch_id")).as_py()
        return last is not None and int(last) >= letter.batch_id


def _is_handed_out(commit: Commit, partition: TopicPartition, letter: DeadLetter) -> bool:
    state = commit.states[partition]
    if letter.topic_id and state.topic_id not in ("", letter.topic_id):
        return False
    key_hash = hash_of_record(letter.key, letter.offset, commit.terms.null_keys == "first")
    return not state.piece_of(key_hash).is_done(letter.offset)


def reset_of(table: str, storage: Mapping[str, str]) -> ResetOf:
    """Finds of a letter of a commit table the first reset that handed its record out again. The
    table is read when it is first asked."""

    @functools.cache
    def resets() -> Resets:
        return Resets(DeltaStore(table, LAYOUT, storage))

    return lambda letter: resets().handed_out_by(letter)
