"""`jobs/compact_commits.py`: fewer files, the same commits, and what is wrong said in a line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet
import pytest

from keyrange.individual_commits.table import dead_letters
from keyrange.individual_commits.table.commit_table import DeltaCommitTable, open_commit_table
from keyrange.individual_commits.table.dead_letters import DeadLetter, open_dead_letters
from keyrange.options.commits import CommitOptions
from keyrange.storage.delta_log import DeltaLog
from spark.notebooks import load_job
from tables.commit_contract import SOURCE, batch, fence

pytestmark = pytest.mark.ordinary

COMMITS = 60


@pytest.fixture(scope="module")
def job() -> Any:
    return load_job("compact_commits")


def table_at(path: Path) -> DeltaCommitTable:
    return open_commit_table(CommitOptions(table=str(path)), SOURCE)


def filled(path: Path) -> None:
    table = table_at(path)
    for seq in range(1, COMMITS + 1):
        table.append(fence(1) if seq == 1 else batch(seq))


def files_of(path: Path) -> int:
    return len(deltalake.DeltaTable(path).file_uris())


def test_tables_of_small_files_become_one(
    job: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "commits"
    filled(path)
    options = CommitOptions(table=str(path), dead_letter_table=f"{path}_dead_letters")
    letter = DeadLetter(
        group="g", source_id=SOURCE, query_id="q", batch_id=3, topic="t", topic_id="id",
        partition=0, offset=7, key=b"k", value=b"v", error="no",
    )  # fmt: skip
    open_dead_letters(options).append(SOURCE, 3, [letter], 1000)
    # Left behind by a writer that was killed, longer ago than the table's retention.
    orphan = path / "part-of-nobody.parquet"
    pyarrow.parquet.write_table(dead_letters.SCHEMA.empty_table(), orphan)
    long_ago_s = time.time() - 7200
    os.utime(orphan, (long_ago_s, long_ago_s))
    before = list(table_at(path).history())
    assert files_of(path) == COMMITS

    with caplog.at_level("INFO"):
        assert job.main([str(path)]) == 0

    assert files_of(path) == 1
    assert list(table_at(path).history()) == before
    assert not orphan.exists()
    assert f"{path}: 1 files" in caplog.text
    assert f"before {COMMITS} files" in caplog.text
    assert f"{path}_dead_letters: 1 files" in caplog.text
    assert f"{path}_members" not in caplog.text
    # Somebody who has the table open goes on writing.
    table = table_at(path)
    table.append(batch(COMMITS + 1))
    assert table.known().seq == COMMITS + 1


def test_a_query_that_was_faster_is_left_alone(
    job: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "commits"
    filled(path)
    plain = DeltaLog.append

    def late(log: DeltaLog, *arguments: Any, **named: Any) -> None:
        # Another compaction has taken the same files meanwhile.
        monkeypatch.setattr(DeltaLog, "append", plain)
        assert job.main([str(path)]) == 0
        plain(log, *arguments, **named)

    monkeypatch.setattr(DeltaLog, "append", late)
    with caplog.at_level("INFO"):
        assert job.main([str(path)]) == 0
    assert "a query was faster" in caplog.text
    assert files_of(path) == 1
    assert len(list(table_at(path).history())) == COMMITS


def test_what_is_wrong_is_said(
    job: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert job.main([str(tmp_path / "none")]) == 1
    assert "none: there is no commit table" in caplog.text
    path = tmp_path / "commits"
    table_at(path).append(fence(1))

    def fails(_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(deltalake.DeltaTable, "create_checkpoint", fails)
    assert job.main([str(tmp_path / "none"), str(path)]) == 1
    assert "[COMMITS_UNWRITABLE]" in caplog.text
    assert "no space left" in caplog.text
    with pytest.raises(SystemExit, match="takes NAME=VALUE"):
        job.main([str(path), "--option", "token"])
