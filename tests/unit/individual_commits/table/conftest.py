"""A commit table of their own for the tests of this directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tables.commit_contract import append_all
from tables.delta_commits import COMMITS, table_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A commit table with three commits."""
    append_all(table_at(tmp_path / "commits"), COMMITS)
    return tmp_path / "commits"
