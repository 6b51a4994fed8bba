"""Commit tables in Delta for the tests of what may happen to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.commit_table import (
    DeltaCommitTable,
    open_commit_table,
)
from keyrange.options.commits import CommitOptions
from keyrange.options.secrets import Secret
from tables.commit_contract import SOURCE, batch, fence

COMMITS = [fence(1), batch(2), batch(3)]


def table_at(path: Path, source_id: str = SOURCE, **storage: str) -> DeltaCommitTable:
    return open_commit_table(
        CommitOptions(
            table=str(path), storage={each: Secret(text) for each, text in storage.items()}
        ),
        source_id,
    )


def in_epoch(commit: Commit, leader_epoch: int) -> Commit:
    """The commit, its states read in the log of the leader of an epoch."""
    states = {p: replace(s, leader_epoch=leader_epoch) for p, s in commit.states.items()}
    return replace(commit, states=states)
