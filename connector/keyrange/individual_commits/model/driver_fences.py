"""Which driver may write the next commit: the last one that has begun, and no other."""

from __future__ import annotations

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot


def check_next(known: Snapshot, commit: Commit) -> None:
    """Refuse a commit that may not follow what is in the table, which is at `known` and does not
    have it.

    Raises KeyrangeError: COMMITS_FENCED where another driver has begun since, or wrote something
    else under its number, COMMITS_BEHIND where commits before it are gone.
    """
    if commit.kind is CommitKind.BATCH and known.seq:
        check_run(known, commit.run_id, commit.source_id)
    if commit.seq > known.seq + 1:
        raise error(
            "COMMITS_BEHIND",
            f"the commit table is at commit {known.seq}, and commit {commit.seq} cannot follow it",
            source_id=commit.source_id,
        )
    if commit.seq <= known.seq:
        raise _fenced(known, commit.run_id, commit.source_id)


def check_run(known: Snapshot, run_id: str, source_id: str) -> None:
    """Raises COMMITS_FENCED where another run than this one writes the commits of a source."""
    if known.run_id != run_id:
        raise _fenced(known, run_id, source_id)


def _fenced(known: Snapshot, run_id: str, source_id: str) -> KeyrangeError:
    return error(
        "COMMITS_FENCED",
        f"run {known.run_id} writes the commits of this query, and run {run_id} is not to write "
        "any more",
        source_id=source_id,
        seq=known.seq,
    )


def outrun(commit: Commit) -> KeyrangeError:
    """Another driver has begun in the group of a commit by which a driver would have."""
    return error(
        "COMMITS_FENCED",
        f"another driver has begun under group '{commit.group}' of the commit table at the same "
        f"time, and run {commit.run_id} is not to write",
        source_id=commit.source_id,
    )
