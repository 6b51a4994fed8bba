"""One driver at a time writes the commits of a group: what a driver does that begins.

Drivers of one checkpoint have one source, whose fences are enough. A driver with another checkpoint
has a source of its own: that it finds the group's other one, and stops it, is a matter of this
file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model import driver_order
from keyrange.individual_commits.model.commit import Commit, CommitKind, CommitTable, Snapshot
from keyrange.individual_commits.model.driver_order import (
    Fence,
    last_source,
    living,
    next_group_seq,
)
from keyrange.individual_commits.model.state_before_batch import lacking
from keyrange.model.checkpoint import CommitMark
from keyrange.storage.model.sink_driver import Driver, application_of

TableOf = Callable[[str], CommitTable]


def begin(
    table_of: TableOf, fence: Commit, mark: CommitMark, may_replace: bool, anew: bool = False
) -> Driver:
    """Write `fence`, the first commit of a run, and stop the driver of any other source of its
    group. Its numbers are filled in; `mark` is that of the run's first batch, and `may_replace`
    whether the options let a new checkpoint go on in a group that has commits, `anew` wherever
    they stand.

    Returns the driver that has begun so. It names the sources whose drivers a user's table may
    still hear: those that have begun since the last batch of its own source, and all others of the
    group where there is none. Who stopped them here may have ended before it told the table.

    Raises COMMITS_OF_ANOTHER_QUERY, COMMITS_FENCED where another source of the group has taken
    over or begins at the same time, COMMITS_BEHIND where the table lacks what the batch was planned
    from, COMMITS_AHEAD where the group has gone on since a new checkpoint was planned.
    """
    table = table_of(fence.source_id)
    # What is found from here on holds only while nobody else begins.
    begun = table.begun(fence.group)
    fences = table.fences(fence.group)
    known = table.known()
    if known.seq < mark.seq:
        raise lacking(known, mark)
    fence = replace(fence, group_seq=next_group_seq(fences), driver=fence.source_id)
    last = last_source(fences)
    others = (living(fences) | ({last} if last else set())) - {fence.source_id}
    has_batches = known.batch_id >= 0
    # Before it is asked which of them has come last: what one commits after that is noticed below.
    since = {each: table_of(each).known().seq for each in sorted(others)} if has_batches else {}
    owner = table.last_source(fence.group, with_states=True)
    if others:
        # Imported state is there to be taken up.
        may_replace |= mark.resumes is not None and table_of(mark.resumes[0]).known().is_import
        _check_may_stop(fence, known, others, owner or last, mark, may_replace)
    if mark.resumes is not None and not has_batches:
        since = dict([mark.resumes])
        others.add(mark.resumes[0])
    if others and not has_batches and not anew and owner not in (None, *since):
        raise _gone_on(fence, str(owner))
    in_order = driver_order.begun(fences)
    queries = {each.source_id: each.query_id for each in in_order}
    committed: dict[str, int] = {}
    for other in sorted(others):
        if has_batches:
            _stop(table_of(other), fence, other, since[other], _taken_over)
        elif anew:
            _stop(table_of(other), fence, other)
        else:
            # What the others do must be what the plan knows of it, none of it where it knows none.
            stands = since.get(other, 0)
            _stop(table_of(other), fence, other, stands, _gone_on)
            committed |= _committed(table_of(other), stands, queries.get(other, ""), other)
    table.append(replace(fence, seq=known.seq + 1), begun)
    unheard = {each.source_id for each in fences} - {fence.source_id}
    if has_batches and unheard:
        unheard &= _begun_since(_run_of_last_batch(table, known.seq), in_order)
        for other in sorted(unheard):
            there = table_of(other)
            committed |= _committed(there, there.known().seq, queries.get(other, ""), other)
    applications = frozenset(
        application_of(queries[each], each) for each in unheard if each in queries
    )
    return Driver(fence.source_id, fence.group_seq, frozenset(unheard), committed, applications)


def _check_may_stop(
    fence: Commit,
    known: Snapshot,
    others: set[str],
    owner: str | None,
    mark: CommitMark,
    may_replace: bool,
) -> None:
    # One that has begun and done nothing is no reason to stop. One that has no batch may take over
    # anew from where it was planned to, which is looked at where the other one is stopped.
    begins_anew = known.batch_id < 0 and mark.resumes is not None and mark.resumes[0] == owner
    if known.seq and owner != fence.source_id and not begins_anew:
        raise _taken_over(fence, owner)
    if not known.seq and not may_replace:
        raise error(
            "COMMITS_OF_ANOTHER_QUERY",
            f"another query has begun to commit under group '{fence.group}' since this one was "
            "planned",
            source_id=max(others),
        )


def _stop(
    table: CommitTable,
    fence: Commit,
    source_id: str,
    since: int = 0,
    refusal: Callable[[Commit, str], KeyrangeError] | None = None,
) -> None:
    """A driver of that source that runs finds this fence behind its own. With `refusal` what it has
    done since commit `since` is looked at before, and it can do nothing more in between: where it
    has done anything, the refusal is raised."""
    known = table.known()
    if refusal is not None:
        for commit in table.history(since + 1, known.seq + 1):
            if commit.kind is not CommitKind.FENCE:
                raise refusal(fence, source_id)
    terms = fence.terms if known.terms is None else known.terms
    table.append(replace(fence, source_id=source_id, seq=known.seq + 1, terms=terms))


def _committed(table: CommitTable, seq: int, query_id: str, source_id: str) -> dict[str, int]:
    """The last batch of a source up to a commit by its application, -1 for none; nothing where
    somebody has said behind it where to go on."""
    last = next((each for each in table.backwards(seq) if each.kind is not CommitKind.FENCE), None)
    if last is not None and last.kind is not CommitKind.BATCH:
        return {}
    return {application_of(query_id, source_id): -1 if last is None else last.batch_id}


def _run_of_last_batch(table: CommitTable, seq: int) -> str:
    return next(each.run_id for each in table.backwards(seq) if each.kind is CommitKind.BATCH)


def _begun_since(run_id: str, in_order: list[Fence]) -> set[str]:
    """The sources in which drivers began after that run did."""
    at = max((n for n, fence in enumerate(in_order) if fence.run_id == run_id), default=-1)
    return {fence.source_id for fence in in_order[at + 1 :]}


def _gone_on(fence: Commit, source_id: str) -> KeyrangeError:
    return error(
        "COMMITS_AHEAD",
        f"source {source_id} of group '{fence.group}' has gone on since the checkpoint was "
        "planned from the group's commits",
        source_id=fence.source_id,
    )


def _taken_over(fence: Commit, other: str | None) -> KeyrangeError:
    return error(
        "COMMITS_FENCED",
        f"source {other} has taken over group '{fence.group}' of the commit table, and source "
        f"{fence.source_id} is not to write any more",
        source_id=fence.source_id,
    )
