"""The suite of all commit tables, on the one in memory and on the one in Delta by delta-rs."""

from __future__ import annotations

from pathlib import Path

import pytest

from commit_contract import CommitTableContract, OpenTable
from commit_tables import MemoryCommitTable
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions


class TestInMemory(CommitTableContract):
    @pytest.fixture
    def open_table(self) -> OpenTable:
        store: list[Commit] = []
        return lambda source_id: MemoryCommitTable(source_id, store)


class TestByDeltaRs(CommitTableContract):
    @pytest.fixture
    def open_table(self, tmp_path: Path) -> OpenTable:
        options = CommitOptions(table=str(tmp_path / "commits"))
        return lambda source_id: open_commit_table(options, source_id)
