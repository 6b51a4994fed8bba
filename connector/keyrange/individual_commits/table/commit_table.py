"""The commit table in Delta: `CommitTable` over a `Store`.

A commit is one transaction of the table. Its application id is the source's, its version the
commit's number, so that of two writers of one source one only can write a number. A commit that
its driver writes once more is known by `Snapshot.has`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from keyrange.individual_commits.model.commit import (
    BASE_EVERY,
    Commit,
    CommitKind,
    CommitTable,
    Snapshot,
    known_at,
)
from keyrange.individual_commits.model.driver_fences import check_next, outrun
from keyrange.individual_commits.model.driver_order import Fence, last_source
from keyrange.individual_commits.table.commit_schema import (
    FENCE_COLUMNS,
    SCHEMA,
    commits_of,
    fence_bounds,
    fences_of,
    rows_of,
)
from keyrange.options.commits import CommitOptions
from keyrange.storage.conflict_retry import Entry
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.numbered_log import NumberedLog, pages, pages_back
from keyrange.storage.table_store import Bounds, Layout, Store, TableConditions, Transaction

TABLE_CONDITIONS: Final = TableConditions(
    gone="COMMITS_GONE",
    damaged="COMMITS_DAMAGED",
    unsupported="UNSUPPORTED_COMMITS",
    unreadable="COMMITS_UNREADABLE",
    unwritable="COMMITS_UNWRITABLE",
    behind="COMMITS_BEHIND",
)
LAYOUT: Final = Layout(
    "commits",
    1,
    SCHEMA,
    ("group", "source_id", "commit_seq", "committed_at"),
    "commit_seq",
    TABLE_CONDITIONS,
)


class DeltaCommitTable(CommitTable):
    """The commits of one source. The state at the last commit that was seen is kept, and only what
    came since is read."""

    def __init__(self, store: Store, source_id: str) -> None:
        self._store = store
        self._source_id = source_id
        self._log = NumberedLog(
            store,
            TABLE_CONDITIONS,
            "commit",
            f"keyrange/{source_id}/commits",
            "commit_seq",
            {"source_id": source_id},
        )
        self._known = Snapshot()

    def known(self, seq: int | None = None) -> Snapshot:
        if seq and seq == self._known.seq:
            # What a commit has left does not change.
            return self._known
        last = self._log.last(max(seq or 0, self._known.seq))
        wanted = last if seq is None else seq
        if wanted == self._known.seq:
            return self._known
        known = self._read_on(wanted) if wanted > self._known.seq > 0 else self._read_back(wanted)
        if seq is None:
            self._known = known
        return known

    def seen(self) -> Snapshot:
        return self._known

    def begun(self, group: str) -> int:
        return (self._store.refresh() and self._store.version_of(_drivers_of(group))) or 0

    def fences(self, group: str) -> list[Fence]:
        if not self._store.refresh():
            return []
        firsts: Bounds = {"group": (group, group), "commit_seq": (1, 1)}
        found = [self._store.read(each, FENCE_COLUMNS) for each in (fence_bounds(group), firsts)]
        return fences_of(pa.concat_tables(found), self._store.uri)

    def append(self, commit: Commit, begun: int | None = None) -> None:
        if commit.source_id != self._source_id:
            raise ValueError(f"the commit is one of source {commit.source_id}")
        rows = rows_of(commit)
        also = [] if begun is None else [_next_driver(commit.group, begun)]
        # Where the last commit that was seen is the one before, the transaction finds by itself
        # whether another has been written since.
        kept = [self._known] if 0 < self._known.seq == commit.seq - 1 else []

        def next_entry() -> Entry | None:
            known = kept.pop() if kept else self.known()
            if known.has(commit):
                return None
            check_next(known, commit)
            if any(map(self._is_over, also)):
                raise outrun(commit)
            return self._log.entry(commit.seq, rows, _note(commit), *also)

        if self._log.append(next_entry):
            self._known = self._known.after(commit)

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Commit]:
        for page in pages(from_seq, until_seq, self._log.last()):
            yield from self._commits(page[0], page[-1])

    def backwards(self, seq: int) -> Iterator[Commit]:
        for page in pages_back(min(seq, self._log.last())):
            yield from reversed(self._commits(page[0], page[-1]))

    def by_hand(self, from_seq: int) -> set[int]:
        if not self._store.refresh():
            return set()
        own = {"source_id": (self._source_id, self._source_id), "commit_seq": (from_seq, None)}
        found: set[int] = set()
        for kind in CommitKind:
            if kind is not CommitKind.BATCH:
                bounds = own | {"kind": (kind.value, kind.value)}
                found.update(self._store.read(bounds, ["commit_seq"])["commit_seq"].to_pylist())
        return found

    def last_source(self, group: str, with_states: bool = False) -> str | None:
        return last_source(self.fences(group), self._has_states if with_states else None)

    def _has_states(self, source_id: str, from_seq: int, until_seq: int | None) -> bool:
        last = None if until_seq is None else until_seq - 1
        # A commit without states is a row without a topic.
        bounds = {
            "source_id": (source_id, source_id),
            "commit_seq": (from_seq, last),
            "topic": ("", None),
        }
        return self._store.greatest("commit_seq", bounds) is not None

    def maintain(self) -> None:
        self._store.maintain()

    def _is_over(self, counted: Transaction) -> bool:
        """Whether another driver was counted since."""
        return self._store.version_of(counted.app_id) not in (None, counted.after)

    def _commits(self, from_seq: int, last: int, newest_only: bool = False) -> list[Commit]:
        """The commits [from_seq, last]. Raises COMMITS_DAMAGED where one is not there."""
        return self._log.read(
            from_seq,
            last,
            lambda rows: commits_of(rows, self._source_id, newest_only, self._store.uri),
            lambda commit: commit.seq,
        )

    def _read_on(self, seq: int) -> Snapshot:
        """The state at a commit behind the one that is kept."""
        known = self._known
        for commit in self._commits(known.seq + 1, seq):
            known = known.after(commit)
        return known

    def _read_back(self, seq: int) -> Snapshot:
        """The state at any commit, from the last whole one before it."""
        back = BASE_EVERY
        while True:
            from_seq = max(seq + 1 - back, 1)
            commits = self._commits(from_seq, seq, newest_only=True)
            if from_seq == 1 or any(each.is_base for each in commits):
                return known_at(commits, seq)
            back *= 4


def _note(commit: Commit) -> dict[str, str]:
    return {
        "keyrange.kind": commit.kind.value,
        "keyrange.queryId": commit.query_id,
        "keyrange.runId": commit.run_id,
        "keyrange.batchId": str(commit.batch_id),
    }


def _next_driver(group: str, begun: int) -> Transaction:
    """What counts one more driver of a group in which so many have begun."""
    return Transaction(_drivers_of(group), begun + 1, begun or None)


def _drivers_of(group: str) -> str:
    """The application whose versions count the drivers that have begun in a group."""
    return f"keyrange/{group}/drivers"


def open_commit_table(options: CommitOptions, source_id: str) -> DeltaCommitTable:
    """The commits of one source.

    Nothing is opened before the first call. Raises PACKAGE_NOT_FOUND without deltalake.
    """
    return DeltaCommitTable(
        DeltaStore(options.table, LAYOUT, options.revealed_storage()), source_id
    )
