"""Prepared commits: what is kept beside a table, for each run of a source, until it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.prepared_commits import PreparedCommit, PreparedCommits
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause

PARTITION = TopicPartition("t", 0)
PENDING = PendingRecord(5, 7, 1, 0, 1_000, Cause.TIMED_OUT)
STATE = PartitionState("id", 9, (KeyRangeState(SPACE, 9, (PENDING,)),), 3)
COMMIT = Commit(
    *(4, CommitKind.BATCH, "g", "consumer/g/a", "a", "run-1", 4, 2_000),
    states={PARTITION: STATE},
    who="a",
    cut_back={PARTITION: 8},
)


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedCommits:
    return PreparedCommits(str(tmp_path / "commits"), {})


def test_what_is_written_is_read(prepared: PreparedCommits) -> None:
    assert prepared.of("consumer/g/a") == []
    prepared.write(PreparedCommit(COMMIT, "mark"))
    [found] = prepared.of("consumer/g/a")
    assert found.mark == "mark"
    assert dict(found.commit.states) == {PARTITION: STATE}
    assert replace(found.commit, states={}) == replace(COMMIT, states={})
    assert prepared.of("consumer/g/b") == []


def test_a_run_keeps_its_last_one(prepared: PreparedCommits, tmp_path: Path) -> None:
    for run in ("run-1", "run-2", "run-1"):
        seq = len(prepared.of("consumer/g/a")) + 4
        commit = replace(COMMIT, run_id=run, seq=seq, batch_id=seq)
        prepared.write(PreparedCommit(commit, f"{run} {seq}"))
    prepared.write(PreparedCommit(replace(COMMIT, source_id="consumer/g/b"), "other"))
    assert [each.mark for each in prepared.of("consumer/g/a")] == ["run-1 6", "run-2 5"]
    first, second = prepared.of("consumer/g/a")
    prepared.remove([first])
    prepared.remove([first])
    assert prepared.of("consumer/g/a") == [second]
    assert len(prepared.of("consumer/g/b")) == 1
    assert not (tmp_path / "commits").exists()


@pytest.mark.parametrize("length", [0.0, 0.3, 0.9])
def test_one_that_is_damaged_is_named(
    prepared: PreparedCommits, tmp_path: Path, length: float
) -> None:
    prepared.write(PreparedCommit(COMMIT, "mark"))
    [file] = tmp_path.glob("commits_transactions/*/run-1.arrow")
    data = file.read_bytes()
    file.write_bytes(data[: int(length * len(data))])
    with pytest.raises(KeyrangeError, match=r"COMMITS_DAMAGED.*run-1"):
        prepared.of("consumer/g/a")


def test_one_of_another_source_is_damage(prepared: PreparedCommits, tmp_path: Path) -> None:
    prepared.write(PreparedCommit(COMMIT, "mark"))
    prepared.write(PreparedCommit(replace(COMMIT, source_id="consumer/g/b"), "mark"))
    one, other = sorted(tmp_path.glob("commits_transactions/*/run-1.arrow"))
    one.write_bytes(other.read_bytes())
    with pytest.raises(KeyrangeError, match="COMMITS_DAMAGED"):
        [prepared.of(source) for source in ("consumer/g/a", "consumer/g/b")]
