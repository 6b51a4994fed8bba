"""A commit table in memory: what `CommitTable` promises, in the fewest words.

The suite that all writers pass runs on it too, and the simulations use it in the place of Delta.
"""

from __future__ import annotations

from collections.abc import Iterator

from keyrange.errors import error
from keyrange.individual_commits.model.commit import (
    Commit,
    CommitKind,
    CommitTable,
    Snapshot,
    known_at,
)
from keyrange.individual_commits.model.driver_fences import check_next, outrun
from keyrange.individual_commits.model.driver_order import Fence, last_source


class MemoryCommitTable(CommitTable):
    """The commits of one source; `store` is the table itself, for those who share it."""

    def __init__(self, source_id: str, store: list[Commit] | None = None) -> None:
        self._source_id = source_id
        self.store: list[Commit] = [] if store is None else store

    def known(self, seq: int | None = None) -> Snapshot:
        mine = self._mine()
        last = len(mine)
        if seq is not None and seq > last:
            raise error("COMMITS_BEHIND", f"the commit table is at commit {last}", wanted=seq)
        return known_at(mine, last if seq is None else seq)

    def begun(self, group: str) -> int:
        return len(self._runs(group))

    def fences(self, group: str) -> list[Fence]:
        return [
            Fence(
                each.source_id,
                each.seq,
                each.run_id,
                each.query_id,
                each.group_seq,
                each.driver,
                each.committed_at_ms,
            )
            for each in self.store
            if each.group == group and (each.kind is CommitKind.FENCE or each.seq == 1)
        ]

    def append(self, commit: Commit, begun: int | None = None) -> None:
        if commit.source_id != self._source_id:
            raise ValueError(f"the commit is one of source {commit.source_id}")
        known = self.known()
        if known.has(commit):
            return
        check_next(known, commit)
        if begun is not None and len(self._runs(commit.group) - {commit.run_id}) != begun:
            raise outrun(commit)
        self.store.append(commit)

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Commit]:
        for commit in self._mine():
            if from_seq <= commit.seq and (until_seq is None or commit.seq < until_seq):
                yield commit

    def backwards(self, seq: int) -> Iterator[Commit]:
        return reversed(list(self.history(1, seq + 1)))

    def by_hand(self, from_seq: int) -> set[int]:
        mine = (each for each in self._mine() if each.kind is not CommitKind.BATCH)
        return {each.seq for each in mine if each.seq >= from_seq}

    def last_source(self, group: str, with_states: bool = False) -> str | None:
        return last_source(self.fences(group), self._has_states if with_states else None)

    def _has_states(self, source_id: str, from_seq: int, until_seq: int | None) -> bool:
        return any(
            commit.states
            for commit in self.store
            if commit.source_id == source_id
            and from_seq <= commit.seq
            and (until_seq is None or commit.seq < until_seq)
        )

    def maintain(self) -> None:
        """Nothing grows here that would have to be kept small."""

    def _runs(self, group: str) -> set[str]:
        return {c.run_id for c in self.store if (c.group, c.kind) == (group, CommitKind.FENCE)}

    def _mine(self) -> list[Commit]:
        return [commit for commit in self.store if commit.source_id == self._source_id]
