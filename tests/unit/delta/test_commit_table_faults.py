"""What becomes of a commit table on which something happens: named, and nothing lost or doubled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from commit_contract import FLIGHTS, SOURCE, append_all, batch, condition, fence, state
from keyrange.core.commits.log import known_at
from keyrange.delta.commit_table import LAYOUT, DeltaCommitTable, open_commit_table
from keyrange.delta.delta_rs import DeltaRsStore
from keyrange.delta.rows import rows_of
from keyrange.errors import CATALOGUE, DeniedError, KeyrangeError
from keyrange.options.commits import CommitOptions

COMMITS = [fence(1), batch(2), batch(3)]


def table_at(path: Path, source_id: str = SOURCE, **storage: str) -> DeltaCommitTable:
    return open_commit_table(CommitOptions(table=str(path), storage=storage), source_id)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    append_all(table_at(tmp_path / "commits"), COMMITS)
    return tmp_path / "commits"


def log_entry(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def data_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)


def delete(path: Path) -> None:
    shutil.rmtree(path)


def delete_the_log(path: Path) -> None:
    shutil.rmtree(path / "_delta_log")


def delete_a_file(path: Path) -> None:
    data_files(path)[-1].unlink()


def cut_a_file(path: Path) -> None:
    file = data_files(path)[-1]
    file.write_bytes(file.read_bytes()[:-20])


def empty_a_file(path: Path) -> None:
    data_files(path)[-1].write_bytes(b"")


def cut_the_log(path: Path) -> None:
    entry = log_entry(path, 2)
    entry.write_bytes(entry.read_bytes()[:200])


def leave_a_gap_in_the_log(path: Path) -> None:
    log_entry(path, 2).unlink()


def add_a_column(path: Path) -> None:
    deltalake.DeltaTable(path).alter.add_columns([deltalake.Field("more", "string")])


def set_property(path: Path, name: str, value: str) -> None:
    deltalake.DeltaTable(path).alter.set_table_properties({name: value}, False)


def newer_version(path: Path) -> None:
    set_property(path, "keyrange.version", "2")


def newer_protocol(path: Path) -> None:
    text = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["new"],'
    log_entry(path, 4).write_text(text + '"writerFeatures":["new"]}}\n')


def forgets_transactions(path: Path) -> None:
    set_property(path, "delta.setTransactionRetentionDuration", "interval 1 days")


def append_rows(path: Path, rows: pa.Table) -> None:
    deltalake.write_deltalake(path, rows, mode="append")


def another_table(path: Path) -> None:
    shutil.rmtree(path)
    append_rows(path, pa.table({"id": [1]}))


def other_files(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def lost_commit(path: Path) -> None:
    append_rows(path, rows_of(batch(5)))
    log = log_entry(path, 4)
    log.write_text(log.read_text() + f'\n{{"txn":{{"appId":"{APP}","version":5}}}}')


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


def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(path: Path) -> None:
    table = table_at(path)
    assert table.known().seq == 3
    shutil.rmtree(path)
    commits = [fence(1, "run-2"), *(batch(seq, run_id="run-2") for seq in range(2, 6))]
    append_all(table_at(path), commits)
    for call in (table.known, lambda: table.append(batch(4))):
        with pytest.raises(KeyrangeError, match="another one made in its place") as raised:
            call()
        assert condition(raised) == "COMMITS_GONE"
    assert list(table_at(path).history()) == commits


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
    store.write(rows, None, {})
    table = table_at(tmp_path / "copy")
    assert table.known() == known_at(COMMITS, 3)
    table.append(batch(4))
    assert table_at(tmp_path / "copy").known() == known_at([*COMMITS, batch(4)], 4)


class Writes:
    """What stands in the place of delta-rs's write, and fails once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lands: bool, failure: Exception) -> None:
        self._real, self._lands, self._failure = deltalake.write_deltalake, lands, failure
        self.calls = 0
        monkeypatch.setattr(deltalake, "write_deltalake", self)

    def __call__(self, *arguments: Any, **named: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            if self._lands:
                self._real(*arguments, **named)
            raise self._failure
        self._real(*arguments, **named)


def test_a_write_that_failed_and_landed_is_recognised(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path)
    writes = Writes(monkeypatch, True, OSError("timed out"))
    table.append(batch(4))
    table.append(batch(5))
    assert writes.calls == 2
    assert list(table_at(path).history()) == [*COMMITS, batch(4), batch(5)]


def test_a_fence_that_failed_and_landed_is_recognised(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path)
    Writes(monkeypatch, True, OSError("timed out"))
    table.append(fence(4, "run-2"))
    assert list(table_at(path).history()) == [*COMMITS, fence(4, "run-2")]


def test_a_write_that_failed_is_said_to_have_failed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path, secret_access_key="hush-hush")
    failure = OSError("\x1b[31mno space left\x1b[0m\nkey hush-hush\n   0: <unknown>\n  1: main")
    Writes(monkeypatch, False, failure)
    with pytest.raises(KeyrangeError) as raised:
        table.append(batch(4))
    assert condition(raised) == "COMMITS_UNWRITABLE"
    assert "no space left key *** (table=" in str(raised.value)
    assert table.known().seq == 3
    table.append(batch(4))
    assert list(table_at(path).history()) == [*COMMITS, batch(4)]


def test_a_write_of_which_nothing_can_be_known_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path)
    table.known()
    real = deltalake.write_deltalake

    def is_away(*arguments: Any, **named: Any) -> None:
        raise OSError("the store is away")

    def lands_and_breaks(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        monkeypatch.setattr(deltalake, "DeltaTable", is_away)
        is_away()

    monkeypatch.setattr(deltalake, "write_deltalake", lands_and_breaks)
    with pytest.raises(KeyrangeError, match=r"the store is away .*; whether the commit") as raised:
        table.append(batch(4))
    assert condition(raised) == "COMMITS_UNWRITABLE"
    monkeypatch.undo()
    table.append(batch(4))
    assert list(table_at(path).history()) == [*COMMITS, batch(4)]


def test_a_fence_that_comes_between_state_and_write_wins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = table_at(path), table_at(path)
    table.known()
    real = deltalake.write_deltalake

    def after_the_other(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(deltalake, "write_deltalake", real)
        other.append(fence(4, "run-2"))
        real(*arguments, **named)

    monkeypatch.setattr(deltalake, "write_deltalake", after_the_other)
    with pytest.raises(KeyrangeError) as raised:
        table.append(batch(4))
    assert condition(raised) == "COMMITS_FENCED"
    assert list(table_at(path).history()) == [*COMMITS, fence(4, "run-2")]


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """All at once; what was raised."""
    barrier, raised = Barrier(count), []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as failure:
            raised.append(failure)

    threads = [Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("writers", [2, 4, 8, 16])
def test_commits_of_several_sources_all_land(tmp_path: Path, writers: int) -> None:
    """They make the table together, too."""

    def work(number: int) -> None:
        source = f"source-{number}"
        table = table_at(tmp_path / "commits", source)
        table.append(fence(1, source, source))
        for seq in range(2, 6):
            table.append(batch(seq, run_id=source, source_id=source))
            table.maintain(0)

    assert in_threads(writers, work) == []
    for number in range(writers):
        source = f"source-{number}"
        found = list(table_at(tmp_path / "commits", source).history())
        expected = [batch(seq, run_id=source, source_id=source) for seq in range(2, 6)]
        assert found == [fence(1, source, source), *expected]


def test_of_several_drivers_of_one_query_one_goes_on(tmp_path: Path) -> None:
    acknowledged: list[tuple[int, str]] = []

    def work(number: int) -> None:
        run = f"run-{number}"
        table = table_at(tmp_path / "commits")
        while True:
            known = table.known()
            if known.run_id == run or any(each == run for _, each in acknowledged):
                break
            try:
                table.append(fence(known.seq + 1, run))
            except DeniedError:
                continue
            acknowledged.append((known.seq + 1, run))
        for _ in range(10):
            known = table.known()
            commit = batch(known.seq + 1, known.batch_id + 1, run)
            table.append(commit)
            acknowledged.append((commit.seq, run))

    raised = in_threads(6, work)
    assert {each.condition.name for each in raised if isinstance(each, KeyrangeError)} == {
        "COMMITS_FENCED"
    }
    assert len(raised) < 6
    history = list(table_at(tmp_path / "commits").history())
    assert [each.seq for each in history] == list(range(1, len(history) + 1))
    assert sorted(acknowledged) == [(each.seq, each.run_id) for each in history]
    batches = [each.batch_id for each in history if each.batch_id >= 0]
    assert batches == list(range(len(batches)))


def test_a_handle_that_slept_while_the_log_was_cleaned_reads_on(path: Path) -> None:
    sleeper, writer = table_at(path), table_at(path)
    assert sleeper.known().seq == 3
    for seq in range(4, 230):
        writer.append(batch(seq))
    for each in (path / "_delta_log").iterdir():
        # The age that it is cleaned at.
        stat = each.stat()
        os.utime(each, (stat.st_atime - 3600, stat.st_mtime - 3600))
    writer.maintain(0)
    assert not log_entry(path, 3).exists()
    assert sleeper.known() == writer.known()
    sleeper.append(batch(230))
    assert table_at(path).known().seq == 230


def test_maintenance_keeps_files_few_and_takes_nothing_that_is_read(path: Path) -> None:
    writer, reader = table_at(path), table_at(path)
    slow = deltalake.DeltaTable(path)
    for seq in range(4, 330):
        writer.append(batch(seq, whole=seq % 50 == 0))
        writer.maintain(0)
    assert len(deltalake.DeltaTable(path).file_uris()) < 130
    # Who began before that goes on reading.
    assert slow.to_pyarrow_table().num_rows == 1 + 2 * 3
    assert reader.known().seq == 329
    assert reader.known(3) == known_at(COMMITS, 3)


def test_maintenance_that_fails_fails_no_batch(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_at(path)

    def fails(_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(deltalake.DeltaTable, "create_checkpoint", fails)
    table.maintain(0)
    assert "could not be compacted or vacuumed: no space left" in caplog.text
    table.append(batch(4))
    assert table_at(path).known().seq == 4


@pytest.mark.parametrize("uri", ["foo://x/y", "s3:/"])
def test_a_place_that_cannot_be_reached_is_not_an_empty_one(uri: str) -> None:
    with pytest.raises(KeyrangeError) as raised:
        open_commit_table(CommitOptions(table=uri), SOURCE).known()
    assert condition(raised) == "COMMITS_UNREADABLE"


def test_settings_of_the_store_are_passed_through() -> None:
    storage = {"aws_endpoint": "http://127.0.0.1:9", "aws_access_key_id": "a-key"}
    storage |= {"aws_secret_access_key": "hush-hush", "aws_region": "x", "aws_allow_http": "true"}
    storage |= {"max_retries": "0", "retry_timeout": "1s"}
    table = open_commit_table(CommitOptions(table="s3://b/t", storage=storage), SOURCE)
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


def test_only_what_is_needed_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_at(path)
    parts = [FLIGHTS, FLIGHTS._replace(partition=1)]
    for seq in range(4, 121):
        both = {each: state(1_000 + 100 * seq + each.partition) for each in parts}
        whole = seq % 50 == 0
        table.append(
            batch(seq, states=both if whole else {parts[seq % 2]: state(900 + seq)}, whole=whole)
        )
    read: list[str] = []
    real = DeltaRsStore._read

    def counted(store: DeltaRsStore, paths: list[str], *more: Any) -> pa.Table:
        read.extend(paths)
        return real(store, paths, *more)

    monkeypatch.setattr(DeltaRsStore, "_read", counted)
    fresh = table_at(path)
    assert fresh.known() == table.known()
    # Back to commit 100, the last whole one; 50 at a time.
    assert len(read) == 50
    read.clear()
    table.append(batch(121))
    fresh.known()
    fresh.known()
    assert len(read) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one megabyte, where this may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("this user may not mount a filesystem")
    yield place
    subprocess.run(["umount", str(place)], check=False)


def test_a_full_disk_is_said_to_be_one_and_left_behind(small_disk: Path) -> None:
    table = table_at(small_disk / "commits")
    append_all(table, COMMITS)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, os.statvfs(small_disk).f_bavail * 4096)
    for _ in range(3):
        with pytest.raises(KeyrangeError, match="No space left") as raised:
            table.append(batch(4))
        assert condition(raised) == "COMMITS_UNWRITABLE"
        table.maintain(0)
        assert table.known() == known_at(COMMITS, 3)
    assert table_at(small_disk / "commits").known() == known_at(COMMITS, 3)
    filler.unlink()
    table.append(batch(4))
    assert list(table_at(small_disk / "commits").history()) == [*COMMITS, batch(4)]


def test_a_place_that_cannot_be_written_is_said_to_be_one(small_disk: Path) -> None:
    table = table_at(small_disk / "commits")
    append_all(table, COMMITS)
    remount = ["mount", "-o", "remount,{}", str(small_disk)]
    subprocess.run([each.format("ro") for each in remount], check=True)
    for writer in (table, table_at(small_disk / "commits")):
        with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
            writer.append(batch(4))
        assert condition(raised) == "COMMITS_UNWRITABLE"
        writer.maintain(0)
        assert writer.known().seq == 3
    with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
        table_at(small_disk / "elsewhere").append(fence(1))
    assert condition(raised) == "COMMITS_UNWRITABLE"
    subprocess.run([each.format("rw") for each in remount], check=True)
    table.append(batch(4))
    assert table.known().seq == 4


def test_compactions_at_the_same_time_double_nothing(path: Path) -> None:
    """Two of delta-rs's own compactions of the same files may both land."""
    writer = table_at(path)
    append_all(writer, [batch(seq) for seq in range(4, 70)])
    tables = [table_at(path) for _ in range(6)]
    assert {each.known().seq for each in tables} == {69}
    assert in_threads(6, lambda number: tables[number].maintain(0)) == []
    assert list(table_at(path).history()) == [*COMMITS, *(batch(seq) for seq in range(4, 70))]
    assert len(deltalake.DeltaTable(path).file_uris()) == 1
