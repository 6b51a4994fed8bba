"""The suite of all commit tables, on the one in memory and on the one in Delta by delta-rs."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.commit_table import DeltaCommitTable, open_commit_table
from keyrange.options.commits import CommitOptions
from project.forms import by_form
from tables.commit_contract import SOURCE, CommitTableContract, OpenTable, append_all
from tables.commit_tables import MemoryCommitTable
from tables.delta_commits import COMMITS, table_at
from tables.memory_store import MemoryStore, Shared


class TestInMemory(CommitTableContract):
    @pytest.fixture
    def open_table(self) -> OpenTable:
        store: list[Commit] = []
        return lambda source_id: MemoryCommitTable(source_id, store)


class TestByDeltaRs(CommitTableContract):
    many = by_form(60, 130, 130)

    @pytest.fixture
    def open_table(self, tmp_path: Path) -> OpenTable:
        options = CommitOptions(table=str(tmp_path / "commits"))
        return lambda source_id: open_commit_table(options, source_id)


def test_the_state_at_the_last_commit_that_was_seen_takes_no_look() -> None:
    shared = Shared()
    table = DeltaCommitTable(MemoryStore(shared), SOURCE)
    append_all(table, COMMITS)
    called: list[str] = []
    shared.hook = called.append
    assert table.known(3).seq == 3
    assert called == []
    assert table.known().seq == 3
    assert called == ["refresh"]


@pytest.mark.parametrize("name", ["a b", "a+b", "100%", "\u00e9"])
def test_a_path_and_its_uri_are_one_place(tmp_path: Path, name: str) -> None:
    """delta-rs decodes a URI, where Hadoop takes it as it is."""
    place = tmp_path / name
    append_all(table_at(f"file://{place}"), COMMITS)
    assert table_at(str(place)).known().seq == table_at(f"file:{place}").known().seq == len(COMMITS)
    assert [each.name for each in tmp_path.iterdir()] == [name]
