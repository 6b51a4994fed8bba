"""`keyrange state`: what it says of states that are gone, and what it leaves where it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import commanding
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.model.offsets import TopicPartition
from tables.state_commits import AT, StateCommits

OTHER = TopicPartition("flights", 1)


@pytest.fixture
def query(tmp_path: Path) -> StateCommits:
    """Of two partitions that have state."""
    made = StateCommits(tmp_path)
    made.commit(CommitKind.FENCE)
    made.batch(0, [{"key": b"a", "n": {"n": 1}}, {"key": b"b", "n": {"n": 2}}])
    made.batch(1, [{"key": b"a", "n": {"n": 3}}], OTHER)
    return made


def test_state_that_a_reset_took_back_to_none_is_gone(query: StateCommits) -> None:
    query.commit(CommitKind.RESET, states={AT: fresh("id", 0)}, runs={AT: ()}, who="ann")
    found = commanding.document("state", "diff", query.path, "--from", 3)
    assert (found["new"], found["changed"], found["gone"]) == (0, 0, 2)
    assert {row["key"]: row["after"] for row in found["rows"]} == {"a": None, "b": None}
    rows = commanding.document("state", "history", query.path, "--key", "a")["rows"]
    told = [(row["seq"], row["partition"], row["state"]) for row in rows]
    assert told == [(4, 0, None), (3, 1, {"n": 3}), (2, 0, {"n": 1})]


def test_an_export_that_fails_leaves_no_file(query: StateCommits, tmp_path: Path) -> None:
    """It would be a Parquet file of some of the keys, which `state import` takes."""
    query.batch(2, [{"key": b"c", "n": {"n": 4}}])
    [run] = query.table.known().runs[OTHER]
    (tmp_path / "commits_state" / run.file).unlink()
    to = tmp_path / "state.parquet"
    assert "STATE_GONE" in str(commanding.run("state", "export", query.path, "--to", to).exception)
    assert not to.exists()
