"""What a run of processing.py has to leave behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from keyrange.options.commits import CommitOptions


def check(home: Path, values: list[bytes]) -> None:
    """Each value once, in the sink or, where it can fail, among the dead letters; and no pending
    record."""
    sink = DeltaTable(str(home / "sink")).to_pyarrow_table().to_pylist()
    letters = DeltaTable(str(home / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    done = sorted(row["text"].encode() for row in sink)
    dead = sorted(row["value"] for row in letters if row["kind"] == "dead")
    assert len(done) == len(set(done))
    assert len(dead) == len(set(dead))
    assert sorted(done + dead) == sorted(values)
    assert {value[:1] for value in dead} <= {b"!", b"?"}
    assert not [value for value in done if value.startswith(b"!")]
    states: dict[Any, Any] = _states(home)
    assert all(state.committed == state.position and not state.pending for state in states.values())


def _states(home: Path) -> dict[Any, Any]:
    from keyrange.individual_commits.table.commit_table import open_commit_table

    options = CommitOptions(table=str(home / "commits"))
    [source] = os.listdir(home / "commits_verdicts")
    return dict(open_commit_table(options, source).known().states)
