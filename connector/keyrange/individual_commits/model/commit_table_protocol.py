"""What a commit table can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from keyrange.individual_commits.model.commit import Commit, Snapshot
from keyrange.individual_commits.model.driver_order import Fence


class CommitTable(Protocol):
    """The commits of one source in one table. Every call sees what others have written meanwhile;
    only for the state at a commit that was seen, it need not look.

    All raise KeyrangeError: COMMITS_DAMAGED where what is stored contradicts itself,
    UNSUPPORTED_COMMITS where a newer version wrote it, COMMITS_UNREADABLE and COMMITS_UNWRITABLE
    where the store fails.
    """

    def known(self, seq: int | None = None) -> Snapshot:
        """The state at commit `seq`, or at the last one; `Snapshot()` where there is none.

        Raises COMMITS_BEHIND where the table has not come as far as `seq`.
        """
        ...

    def seen(self) -> Snapshot:
        """The state at the last commit that was seen, without a look."""
        ...

    def begun(self, group: str) -> int:
        """A number that grows with every driver that begins under a group's name."""
        ...

    def fences(self, group: str) -> list[Fence]:
        """All fences under a group's name, in no order. The first commit of a source is one
        whatever it is: a source that has commits is never passed over."""
        ...

    def append(self, commit: Commit, begun: int | None = None) -> None:
        """Write one commit, in one transaction of the table; with `begun` only where no driver has
        begun under the group's name since it was that number.

        A commit that is there already (`Snapshot.has`) changes nothing; `commit.py` says which
        ones may follow. Raises COMMITS_FENCED where another driver has begun since or its commit
        stands in this one's place, COMMITS_BEHIND where commits before it are gone.
        """
        ...

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Commit]:
        """The commits in [from_seq, until_seq), oldest first."""
        ...

    def last_source(self, group: str, with_states: bool = False) -> str | None:
        """The source whose driver began last under a group's name, `with_states` the last one that
        then said what is done; None where there is none. No clock decides."""
        ...

    def maintain(self) -> None:
        """Keep reading and writing cheap: compact, checkpoint, remove files that nobody reads. All
        commits stay, and with them the history."""
        ...
