"""One driver at a time writes the commits of a group: what a driver does that begins.

Drivers of one checkpoint have one source, whose fences are enough. A driver with another checkpoint
has a source of its own: that it finds the group's other one, and stops it, is a matter of this
file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from keyrange.core.checkpoint import CommitMark
from keyrange.core.commits.agreement import lacking
from keyrange.core.commits.log import Commit, Kind
from keyrange.core.commits.table import CommitTable
from keyrange.errors import KeyrangeError, error

TableOf = Callable[[str], CommitTable]


def begin(table_of: TableOf, fence: Commit, mark: CommitMark, may_replace: bool) -> None:
    """Write `fence`, the first commit of a run, and stop the driver of any other source of its
    group. `fence.seq` is filled in; `mark` is that of the run's first batch, and `may_replace`
    whether the options let a new checkpoint go on in a group that has commits.

    Raises COMMITS_OF_ANOTHER_QUERY, COMMITS_FENCED where another source of the group has taken
    over or begins at the same time, COMMITS_BEHIND where the table lacks what the batch was planned
    from, COMMITS_AHEAD where the one that is resumed from has gone on since.
    """
    table = table_of(fence.source_id)
    # What is found from here on holds only while nobody else begins.
    begun = table.begun(fence.group)
    known = table.known()
    if known.seq < mark.seq:
        raise lacking(known, mark)
    others = {table.last_source(fence.group)} - {None, fence.source_id}
    for other in others:
        # One that has begun and done nothing is no reason to stop.
        if known.seq and table.last_source(fence.group, with_states=True) != fence.source_id:
            raise _taken_over(fence, other)
        if not known.seq and not may_replace:
            raise error(
                "COMMITS_OF_ANOTHER_QUERY",
                f"another query has begun to commit under group '{fence.group}' since this one "
                "was planned",
                source_id=other,
            )
    if mark.resumes is not None and known.batch_id < 0:
        source_id, seq = mark.resumes
        _check_stands(table_of(source_id), seq, fence)
        others.add(source_id)
    for other in others:
        _stop(table_of(str(other)), str(other), fence)
    table.append(replace(fence, seq=known.seq + 1), begun)


def _stop(table: CommitTable, source_id: str, fence: Commit) -> None:
    """A driver of that source that runs finds this fence behind its own."""
    known = table.known()
    terms = fence.terms if known.terms is None else known.terms
    table.append(replace(fence, source_id=source_id, seq=known.seq + 1, terms=terms))


def _check_stands(table: CommitTable, seq: int, fence: Commit) -> None:
    """Whether the source that is resumed from has done nothing since commit `seq`."""
    for commit in table.history(seq + 1):
        if commit.kind is not Kind.FENCE:
            raise error(
                "COMMITS_AHEAD",
                f"the checkpoint resumes from commit {seq} of source {commit.source_id}, which "
                f"has gone on to commit {commit.seq} since",
                source_id=fence.source_id,
            )


def _taken_over(fence: Commit, other: str | None) -> KeyrangeError:
    return error(
        "COMMITS_FENCED",
        f"source {other} has taken over group '{fence.group}' of the commit table, and source "
        f"{fence.source_id} is not to write any more",
        source_id=fence.source_id,
    )
