"""Commit tables in Delta for the tests of what may happen to them."""

from __future__ import annotations

from pathlib import Path

from commit_contract import SOURCE, batch, fence
from keyrange.delta.commit_table import DeltaCommitTable, open_commit_table
from keyrange.options.commits import CommitOptions
from keyrange.secret import Secret

COMMITS = [fence(1), batch(2), batch(3)]


def table_at(path: Path, source_id: str = SOURCE, **storage: str) -> DeltaCommitTable:
    return open_commit_table(
        CommitOptions(
            table=str(path), storage={each: Secret(text) for each, text in storage.items()}
        ),
        source_id,
    )
