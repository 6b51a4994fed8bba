"""Which files of states are removed: those that no commit within the retention names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Final

from keyrange.errors import error
from keyrange.individual_commits.model.commit import Commit, CommitTable
from keyrange.keyed_state.model.state_runs import files_of
from keyrange.options.commits import CommitOptions
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import FAILURES

# By how much the clocks of drivers and stores may differ.
_CLOCKS_MS: Final = 600_000


class OldStateFiles:
    """The files of a source's states that no commit within the retention names; of one run of a
    query."""

    def __init__(self, commits: CommitOptions) -> None:
        self._commits = commits
        self._again_at_ms = 0

    def remove(self, table: CommitTable, commit: Commit, now_ms: int) -> None:
        """Behind a commit of a batch, once in so many and in a hundredth of the retention: it takes
        a list of all files. Raises STATE_UNWRITABLE."""
        if not commit.whole or now_ms < self._again_at_ms:
            return
        commits = self._commits
        self._again_at_ms = now_ms + commits.state_retention_ms // 100
        try:
            directory = Directory(commits.state_directory, commits.revealed_storage())
            # By a clock that is ahead, what the last days have written would be old.
            runs = chain.from_iterable(commit.runs.values())
            last = max(runs, key=lambda run: run.until_seq, default=None)
            written_at_s = None if last is None else directory.written_at_s(last.file)
            now_ms = now_ms if written_at_s is None else min(now_ms, int(written_at_s * 1000))
            oldest_ms = now_ms - commits.state_retention_ms
            names = {name.rpartition("/")[2] for name in kept_files(table, oldest_ms)}
            directory.remove_older(commit.source_id, names, oldest_ms - _CLOCKS_MS)
        except FAILURES as failure:
            text = f"old files of states cannot be removed: {failure}"
            raise error("STATE_UNWRITABLE", text, path=commits.state_directory) from None


def kept_files(table: CommitTable, since_ms: int) -> set[str]:
    """Of the files that were written before a time those that commits name which were written
    since, and some others.

    Nobody reads all these commits: there may be a million of them. A file comes into the state with
    the commit of the batch that wrote it. So it was there when the time came, or its batch was the
    one that was worked on then. But a driver that begins may commit what was written long ago, and
    who sets commits back brings files back.
    """
    known = table.known()
    first = first_since(table, known.seq, since_ms)
    # Whatever clocks say.
    kept = files_of(known.runs)
    if first > 1:
        kept |= files_of(table.known(first - 1).runs)
    by_hand = table.by_hand(first)
    wanted = {first, *by_hand, *(seq + 1 for seq in by_hand)}
    for from_seq, last in _stretches(seq for seq in wanted if seq <= known.seq):
        for commit in table.history(from_seq, last + 1):
            kept |= files_of(commit.runs)
    return kept


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of numbers that follow one another."""
    for _, same in groupby(enumerate(sorted(numbers)), lambda each: each[1] - each[0]):
        own = [number for _, number in same]
        yield own[0], own[-1]


def first_since(table: CommitTable, last: int, since_ms: int) -> int:
    """The first commit that was written at `since_ms` or later, `last` + 1 if none was."""

    def written_at_ms(seq: int) -> int:
        return next(iter(table.history(seq, seq + 1))).committed_at_ms

    return 1 + bisect_left(range(1, last + 1), since_ms, key=written_at_ms)
