"""The commit table in Delta: `CommitTable` over a `Store`, whoever writes it.

A commit is one transaction of the table. Its application id is the source's, its version the
commit's number, so that of two writers of one source one only can write a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.drivers import Fence, last_source
from keyrange.individual_commits.model.log import (
    Commit,
    CommitKind,
    Snapshot,
    is_written,
    known_at,
    outrun,
)
from keyrange.individual_commits.model.table import CommitTable
from keyrange.individual_commits.table.commit_rows import (
    ADDED,
    FENCE_COLUMNS,
    SCHEMA,
    commits_of,
    fences_of,
    rows_of,
)
from keyrange.options.commits import CommitOptions
from keyrange.storage.delta_rs import DeltaRsStore
from keyrange.storage.store import Bounds, Conflict, Layout, Store, TableConditions, Transaction

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
    2,
    SCHEMA,
    ("group", "source_id", "commit_seq", "committed_at"),
    "commit_seq",
    TABLE_CONDITIONS,
    ADDED,
)

WHOLE_EVERY: Final = 50
_TRIES = 10
# How many commits of a history are held at a time.
_HISTORY_AT_A_TIME = 500


def whole_is_due(seq: int) -> bool:
    """Whether a commit is to hold the state of every partition; who reads the state at any commit
    goes back to the last one of a batch that does."""
    return seq % WHOLE_EVERY == 0


class DeltaCommitTable(CommitTable):
    """The commits of one source. The state at the last commit that was seen is kept, and only what
    came since is read."""

    def __init__(self, store: Store, source_id: str) -> None:
        self._store = store
        self._source_id = source_id
        self._app_id = f"keyrange/{source_id}/commits"
        self._known = Snapshot()
        # How many drivers of a group this store's transactions had counted at the last look.
        self._counted: dict[str, int | None] = {}

    def known(self, seq: int | None = None) -> Snapshot:
        last = self._last() if self._store.refresh() else 0
        wanted = last if seq is None else seq
        if wanted > last or last < self._known.seq:
            message = f"the commit table is at commit {last}"
            wanted = max(wanted, self._known.seq)
            raise error("COMMITS_BEHIND", message, wanted=wanted, table=self._store.uri)
        if wanted == self._known.seq:
            return self._known
        known = self._read_on(wanted) if wanted > self._known.seq > 0 else self._read_back(wanted)
        if seq is None:
            self._known = known
        return known

    def begun(self, group: str) -> int:
        if not self._store.refresh():
            return 0
        self._counted[group] = self._store.version_of(_drivers_of(group))
        return self._begun(group)

    def fences(self, group: str) -> list[Fence]:
        if not self._store.refresh():
            return []
        of_group: Bounds = {"group": (group, group)}
        fences: Bounds = {**of_group, "kind": (CommitKind.FENCE.value, CommitKind.FENCE.value)}
        firsts: Bounds = {**of_group, "commit_seq": (1, 1)}
        found = [self._store.read(bounds, FENCE_COLUMNS) for bounds in (fences, firsts)]
        return fences_of(pa.concat_tables(found))

    def counted(self, group: str) -> Transaction:
        """What a commit is written under, besides its own transaction, that may only stand where no
        driver was counted in a group since the last look at the table."""
        count = self._store.version_of(_drivers_of(group))
        return Transaction(_drivers_of(group), (count or 0) + 1, count)

    def append(
        self, commit: Commit, begun: int | None = None, counted: Transaction | None = None
    ) -> None:
        """`counted` goes with the commit; COMMITS_FENCED where a driver was counted since."""
        if commit.source_id != self._source_id:
            raise ValueError(f"the commit is one of source {commit.source_id}")
        # Where the last commit that was seen is the one before, the transaction finds by itself
        # whether another has been written since.
        known = self._known if 0 < self._known.seq == commit.seq - 1 else self.known()
        if is_written(known, commit):
            return
        rows = rows_of(commit)
        if begun is not None:
            count = self._counted.get(commit.group)
            counted = Transaction(_drivers_of(commit.group), (count or 0) + 1, count)
        for _ in range(_TRIES):
            written = True
            try:
                self._write(commit, rows, counted)
            except Conflict:
                written = is_written(self.known(), commit)
                if not written and counted is not None and self._is_over(counted):
                    raise outrun(commit) from None
            except KeyrangeError as failure:
                if not self._landed(commit, failure):
                    raise
            else:
                self._keep(commit)
            # A driver whose store keeps no count may have come between look and write: of two, the
            # one that landed later finds the other.
            self._check_begun(commit, begun)
            if written:
                return
        message = "other writers were faster every time"
        raise error("COMMITS_UNWRITABLE", message, table=self._store.uri, commit_seq=commit.seq)

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Commit]:
        last = self._last() if self._store.refresh() else 0
        until = last + 1 if until_seq is None else min(until_seq, last + 1)
        for at in range(max(from_seq, 1), until, _HISTORY_AT_A_TIME):
            yield from self._commits(at, min(at + _HISTORY_AT_A_TIME, until) - 1)

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

    def maintain(self, keep_from_seq: int) -> None:  # noqa: ARG002
        """All commits are kept, and with them the history: the table takes appends only."""
        self._store.maintain()

    def _last(self) -> int:
        """The number of the last commit."""
        written = self._store.version_of(self._app_id)
        if written is None:
            # A copy of the rows knows no transactions.
            written = self._store.greatest("commit_seq", self._bounds(None, None))
        return written or 0

    def _keep(self, commit: Commit) -> None:
        """Take a commit in that was written."""
        if not self._store.skips_in_silence:
            self._known = self._known.after(commit)
        elif not is_written(self.known(), commit):
            raise self._missing(commit.seq)

    def _begun(self, group: str, run_id: str = "") -> int:
        """How many drivers have begun in a group, others than that of a run, whoever wrote them."""
        fences: Bounds = {
            "group": (group, group),
            "kind": (CommitKind.FENCE.value, CommitKind.FENCE.value),
        }
        runs = self._store.read(fences, ["run_id"]).column("run_id").to_pylist()
        return len({*runs} - {run_id})

    def _check_begun(self, commit: Commit, begun: int | None) -> None:
        if begun is not None and self._begun(commit.group, commit.run_id) != begun:
            raise outrun(commit)

    def _is_over(self, counted: Transaction) -> bool:
        """Whether another driver was counted since."""
        return self._store.version_of(counted.app_id) not in (None, counted.after)

    def _write(self, commit: Commit, rows: pa.Table, counted: Transaction | None) -> None:
        note = {
            "keyrange.kind": commit.kind.value,
            "keyrange.queryId": commit.query_id,
            "keyrange.runId": commit.run_id,
            "keyrange.batchId": str(commit.batch_id),
        }
        transactions = [Transaction(self._app_id, commit.seq, commit.seq - 1 or None)]
        if counted is not None:
            transactions.append(counted)
        self._store.write(rows, transactions, note)

    def _landed(self, commit: Commit, failure: KeyrangeError) -> bool:
        """Whether a commit was written although the store said that it failed."""
        try:
            return is_written(self.known(), commit)
        except KeyrangeError as second:
            if second.condition.name != TABLE_CONDITIONS.unreadable:
                raise
            message = f"{failure.message}; whether the commit was written all the same cannot be"
            raise error(
                failure.condition.name, f"{message} seen either: {second.message}"
            ) from None

    def _bounds(self, from_seq: int | None, last: int | None) -> Bounds:
        mine = (self._source_id, self._source_id)
        return {"source_id": mine, "commit_seq": (from_seq, last)}

    def _commits(self, from_seq: int, last: int, newest_only: bool = False) -> list[Commit]:
        """The commits [from_seq, last]. Raises COMMITS_DAMAGED where one is not there."""
        rows = self._store.read(self._bounds(from_seq, last))
        commits = commits_of(rows, self._source_id, newest_only)
        for seq, commit in zip(range(from_seq, last + 1), commits, strict=False):
            if commit.seq != seq:
                raise self._missing(seq)
        if len(commits) != last + 1 - from_seq:
            raise self._missing(from_seq + len(commits))
        return commits

    def _missing(self, seq: int) -> KeyrangeError:
        message = "the table does not hold all commits"
        where = {"source_id": self._source_id, "commit_seq": seq}
        return error("COMMITS_DAMAGED", message, table=self._store.uri, **where)

    def _read_on(self, seq: int) -> Snapshot:
        """The state at a commit behind the one that is kept."""
        known = self._known
        for commit in self._commits(known.seq + 1, seq):
            known = known.after(commit)
        return known

    def _read_back(self, seq: int) -> Snapshot:
        """The state at any commit, from the last whole one before it."""
        back = WHOLE_EVERY
        while True:
            from_seq = max(seq + 1 - back, 1)
            commits = self._commits(from_seq, seq, newest_only=True) if seq else []
            if from_seq == 1 or any(each.is_base for each in commits):
                return known_at(commits, seq)
            back *= 4


def _drivers_of(group: str) -> str:
    """The application whose versions count the drivers that have begun in a group."""
    return f"keyrange/{group}/drivers"


def open_commit_table(options: CommitOptions, source_id: str) -> DeltaCommitTable:
    """The commits of one source, read and written by delta-rs.

    Nothing is opened before the first call. Raises PACKAGE_NOT_FOUND without deltalake.
    """
    return DeltaCommitTable(
        DeltaRsStore(options.table, LAYOUT, options.revealed_storage()), source_id
    )
