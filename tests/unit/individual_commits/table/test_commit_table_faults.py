"""What becomes of a commit table on which something happens: named, and nothing lost or doubled."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

from commit_contract import SOURCE, append_all, batch, condition, fence
from damaged_tables import (
    add_a_column,
    another_table,
    append_rows,
    cut_a_file,
    cut_the_log,
    delete,
    delete_a_file,
    delete_the_log,
    empty_a_file,
    fill,
    leave_a_gap_in_the_log,
    make_read_only,
    newer_protocol,
    newer_version,
    note_transaction,
    other_files,
    set_property,
)
from delta_commits import COMMITS, table_at
from keyrange.errors import CATALOGUE, KeyrangeError
from keyrange.individual_commits.model.log import known_at
from keyrange.individual_commits.table.commit_rows import rows_of
from keyrange.individual_commits.table.commit_table import LAYOUT, open_commit_table
from keyrange.options.commits import CommitOptions
from keyrange.options.secrets import Secret
from keyrange.storage.delta_rs import DeltaRsStore


def forgets_transactions(path: Path) -> None:
    set_property(path, "delta.setTransactionRetentionDuration", "interval 1 days")


def lost_commit(path: Path) -> None:
    append_rows(path, rows_of(batch(5)))
    note_transaction(path, 4, APP, 5)


def doubled_commit(path: Path) -> None:
    append_rows(path, rows_of(batch(3)))


def commit_of_another_run(path: Path) -> None:
    append_rows(path, rows_of(batch(3, run_id="run-2")))


APP = f"keyrange/{SOURCE}/commits"
HAPPENED: dict[Callable[[Path], None], str] = {
    delete_a_file: "COMMITS_GONE",
    cut_a_file: "COMMITS_DAMAGED",
    empty_a_file: "COMMITS_DAMAGED",
    cut_the_log: "COMMITS_DAMAGED",
    leave_a_gap_in_the_log: "COMMITS_DAMAGED",
    add_a_column: "FOREIGN_TABLE",
    newer_version: "UNSUPPORTED_COMMITS",
    newer_protocol: "UNSUPPORTED_COMMITS",
    forgets_transactions: "FOREIGN_TABLE",
    another_table: "FOREIGN_TABLE",
    delete_the_log: "FOREIGN_TABLE",
    other_files: "FOREIGN_TABLE",
    lost_commit: "COMMITS_DAMAGED",
    doubled_commit: "COMMITS_DAMAGED",
    commit_of_another_run: "COMMITS_DAMAGED",
}


@pytest.mark.parametrize("happens", HAPPENED, ids=lambda happens: happens.__name__)
def test_a_driver_that_begins_is_told_by_name(path: Path, happens: Callable[[Path], None]) -> None:
    happens(path)
    for call in (lambda t: t.known(), lambda t: t.append(batch(4)), lambda t: list(t.history())):
        with pytest.raises(KeyrangeError) as raised:
            call(table_at(path))
        assert condition(raised) == HAPPENED[happens]
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 900


def test_files_that_were_compacted_and_vacuumed_under_a_reader_are_read_anew(path: Path) -> None:
    """The reader's version names files that are gone; the same rows are in the next one's."""
    store = DeltaRsStore(str(path), LAYOUT, {})
    assert store.refresh()
    rows = store.read({})
    table = deltalake.DeltaTable(str(path))
    table.optimize.compact()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    assert store.greatest("commit_seq", {}) == 3
    assert store.read({}).sort_by("commit_seq") == rows.sort_by("commit_seq")


WHILE_IT_RUNS: dict[Callable[[Path], None], str] = {
    delete: "COMMITS_GONE",
    delete_the_log: "COMMITS_GONE",
    another_table: "FOREIGN_TABLE",
    add_a_column: "FOREIGN_TABLE",
    newer_version: "UNSUPPORTED_COMMITS",
}


@pytest.mark.parametrize("happens", WHILE_IT_RUNS, ids=lambda happens: happens.__name__)
def test_a_driver_that_runs_is_told_by_name(path: Path, happens: Callable[[Path], None]) -> None:
    """Before anything is written to whatever stands there."""
    writer, reader = table_at(path), table_at(path)
    assert writer.known() == reader.known() == known_at(COMMITS, 3)
    happens(path)
    log = sorted(path.glob("_delta_log/*"))
    for call in (lambda: writer.append(batch(4)), reader.known, lambda: writer.append(batch(4))):
        with pytest.raises(KeyrangeError) as raised:
            call()
        assert condition(raised) == WHILE_IT_RUNS[happens]
    assert sorted(path.glob("_delta_log/*")) == log


@pytest.mark.parametrize("source_id", [SOURCE, "6b2d"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(
    path: Path, count: int, source_id: str
) -> None:
    table = table_at(path)
    assert table.known().seq == 3
    shutil.rmtree(path)
    commits = [fence(1, "run-2", source_id)]
    commits += [batch(seq, seq - 2, "run-2", source_id) for seq in range(2, count + 1)]
    append_all(table_at(path, source_id), commits)
    for call in (lambda: table.append(batch(4)), table.known):
        with pytest.raises(KeyrangeError, match="another one made in its place") as raised:
            call()
        assert condition(raised) == "COMMITS_GONE"
    assert list(table_at(path, source_id).history()) == commits
    assert deltalake.DeltaTable(path).version() == count


def test_a_table_that_was_brought_back_is_read_on(path: Path, tmp_path: Path) -> None:
    table = table_at(path)
    table.known()
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(KeyrangeError):
        table.append(batch(4))
    (tmp_path / "elsewhere").rename(path)
    table.append(batch(4))
    assert list(table_at(path).history()) == [*COMMITS, batch(4)]


def test_an_older_copy_of_the_table_is_not_written_on(path: Path, tmp_path: Path) -> None:
    table = table_at(path)
    shutil.copytree(path, tmp_path / "copy")
    append_all(table, [batch(4), batch(5)])
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    for call in (table.known, lambda: table.append(batch(6))):
        with pytest.raises(KeyrangeError) as raised:
            call()
        assert condition(raised) == "COMMITS_BEHIND"
    assert table_at(path).known().seq == 3


def test_rows_that_were_copied_into_a_new_table_are_written_on(path: Path, tmp_path: Path) -> None:
    """A copy has no transactions, and its commits count all the same."""
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    store = DeltaRsStore(str(tmp_path / "copy"), LAYOUT, {})
    store.write(rows, [], {})
    table = table_at(tmp_path / "copy")
    assert table.known() == known_at(COMMITS, 3)
    table.append(batch(4))
    assert table_at(tmp_path / "copy").known() == known_at([*COMMITS, batch(4)], 4)


@pytest.mark.parametrize("uri", ["foo://x/y", "s3:/"])
def test_a_place_that_cannot_be_reached_is_not_an_empty_one(uri: str) -> None:
    with pytest.raises(KeyrangeError) as raised:
        open_commit_table(CommitOptions(table=uri), SOURCE).known()
    assert condition(raised) == "COMMITS_UNREADABLE"


def test_settings_of_the_store_are_passed_through() -> None:
    storage = {"aws_endpoint": "http://127.0.0.1:9", "aws_access_key_id": "a-key"}
    storage |= {"aws_secret_access_key": "hush-hush", "aws_region": "x", "aws_allow_http": "true"}
    storage |= {"max_retries": "0", "retry_timeout": "1s"}
    table = open_commit_table(
        CommitOptions(
            table="s3://b/t", storage={each: Secret(text) for each, text in storage.items()}
        ),
        SOURCE,
    )
    with pytest.raises(KeyrangeError, match=r"127\.0\.0\.1:9") as raised:
        table.known()
    assert condition(raised) == "COMMITS_UNREADABLE"
    assert "hush-hush" not in str(raised.value)


def test_without_deltalake_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(KeyrangeError, match=r"keyrange\[commits\]") as raised:
        open_commit_table(CommitOptions(table="t"), SOURCE)
    assert condition(raised) == "PACKAGE_NOT_FOUND"


def test_every_condition_says_what_to_do() -> None:
    for name in {*HAPPENED.values(), *WHILE_IT_RUNS.values(), "COMMITS_UNWRITABLE"}:
        assert len(CATALOGUE[name].remedy) > 40


def test_a_full_disk_is_said_to_be_one_and_left_behind(small_disk: Path) -> None:
    table = table_at(small_disk / "commits")
    append_all(table, COMMITS)
    undo = fill(small_disk)
    for _ in range(3):
        with pytest.raises(KeyrangeError, match="No space left") as raised:
            table.append(batch(4))
        assert condition(raised) == "COMMITS_UNWRITABLE"
        table.maintain(0)
        assert table.known() == known_at(COMMITS, 3)
    assert table_at(small_disk / "commits").known() == known_at(COMMITS, 3)
    undo()
    table.append(batch(4))
    assert list(table_at(small_disk / "commits").history()) == [*COMMITS, batch(4)]


def test_a_place_that_cannot_be_written_is_said_to_be_one(small_disk: Path) -> None:
    table = table_at(small_disk / "commits")
    append_all(table, COMMITS)
    undo = make_read_only(small_disk)
    for writer in (table, table_at(small_disk / "commits")):
        with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
            writer.append(batch(4))
        assert condition(raised) == "COMMITS_UNWRITABLE"
        writer.maintain(0)
        assert writer.known().seq == 3
    with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
        table_at(small_disk / "elsewhere").append(fence(1))
    assert condition(raised) == "COMMITS_UNWRITABLE"
    undo()
    table.append(batch(4))
    assert table.known().seq == 4
