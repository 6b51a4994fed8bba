"""Commit tables in Delta for the tests of what may happen to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from commit_contract import SOURCE, batch, fence
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.commit_schema import rows_of
from keyrange.individual_commits.table.commit_table import (
    LAYOUT,
    DeltaCommitTable,
    open_commit_table,
)
from keyrange.options.commits import CommitOptions
from keyrange.options.secrets import Secret
from keyrange.storage.delta_rs import DeltaRsStore
from keyrange.storage.table_store import Transaction

GOLDEN = Path(__file__).parent / "golden"
COMMITS = [fence(1), batch(2), batch(3)]


def table_at(path: Path, source_id: str = SOURCE, **storage: str) -> DeltaCommitTable:
    return open_commit_table(
        CommitOptions(
            table=str(path), storage={each: Secret(text) for each, text in storage.items()}
        ),
        source_id,
    )


def leave_by_version_1(path: Path, commits: Iterable[Commit]) -> None:
    """Write commits as the first version of the table had them: no leader epochs."""
    columns = [each for each in LAYOUT.schema if each.name not in LAYOUT.added]
    layout = replace(LAYOUT, version=1, schema=pa.schema(columns), added=())
    store = DeltaRsStore(str(path), layout, {})
    for commit in commits:
        before = commit.seq - 1 or None
        mark = Transaction(f"keyrange/{commit.source_id}/commits", commit.seq, before)
        store.write(rows_of(commit).select(layout.schema.names), [mark], {})


def golden_rows(version: int) -> list[dict[str, Any]]:
    """Rows with fences as a version of the table had them."""
    rows = json.loads((GOLDEN / f"commit-fences-v{version}.json").read_text())
    for row in rows:
        row["done"] = bytes.fromhex(row["done"]) if "done" in row else None
        for name in ("committed_at", "oldest_hole_at"):
            row[name] = datetime.fromisoformat(row[name]) if name in row else None
    return rows


def in_epoch(commit: Commit, leader_epoch: int) -> Commit:
    """The commit, its states read in the log of the leader of an epoch."""
    states = {p: replace(s, leader_epoch=leader_epoch) for p, s in commit.states.items()}
    return replace(commit, states=states)
