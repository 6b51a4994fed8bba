"""A table that stays open: what a look sees, and what it does not have to ask for."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_table import LAYOUT
from keyrange.storage import delta_log, upkeep
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.directory import Directory
from keyrange.storage.sink_table import SinkTable
from keyrange.storage.table_store import Conflict
from tables.racing_writers import compacted

ROWS = pa.table({"at": pa.array([1], pa.int64())})


def write(path: Path, **transactions: int) -> None:
    marks = [deltalake.Transaction(*each) for each in transactions.items()]
    properties = deltalake.CommitProperties(app_transactions=marks)
    deltalake.write_deltalake(path, ROWS, mode="append", commit_properties=properties)


@pytest.fixture
def cached(tmp_path: Path) -> DeltaLog:
    """Open, with one version, in which application a is known."""
    write(tmp_path, a=1)
    table = DeltaLog(str(tmp_path), {})
    assert table.refresh()
    assert (table.version_of("a"), table.version_of("b")) == (1, None)
    return table


@pytest.fixture
def not_asked(monkeypatch: pytest.MonkeyPatch, cached: DeltaLog) -> None:
    """Behind the first look delta-rs neither opens the table nor looks through its log."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked for")

    monkeypatch.setattr(cached.delta.DeltaTable, "transaction_version", refuse)
    monkeypatch.setattr(cached, "open", refuse)


@pytest.mark.usefixtures("not_asked")
def test_a_look_at_what_nobody_wrote_to(cached: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cached.delta.DeltaTable, "update_incremental")
    assert not cached.refresh()
    assert cached.version_of("a") == 1


@pytest.mark.usefixtures("not_asked")
def test_transactions_of_others_are_read_from_the_entries_that_came(
    cached: DeltaLog, tmp_path: Path
) -> None:
    write(tmp_path, b=7)
    write(tmp_path, a=2, c=5)
    assert cached.refresh()
    assert cached.version == 2
    assert [cached.version_of(each) for each in "abc"] == [2, 7, 5]
    assert not cached.refresh()


@pytest.mark.usefixtures("not_asked")
@pytest.mark.parametrize("others", [0, 1])
def test_a_write_of_its_own_is_known(cached: DeltaLog, tmp_path: Path, others: int) -> None:
    for _ in range(others):
        write(tmp_path, b=3)
        cached.refresh()
    cached.append(list, {"a": 9}, {"keyrange.note": "x"})
    assert cached.is_same()
    assert not cached.refresh()
    assert cached.version_of("a") == 9
    [last] = deltalake.DeltaTable(tmp_path).history(1)
    assert (last["operation"], last["keyrange.note"]) == ("WRITE", "x")


@pytest.mark.usefixtures("not_asked")
def test_a_write_that_others_came_before_comes_behind_them(
    cached: DeltaLog, tmp_path: Path
) -> None:
    write(tmp_path, b=3)
    write(tmp_path, c=4)
    cached.append(list, {"a": 9})
    assert [cached.version_of(each) for each in "abc"] == [9, 3, 4]
    assert cached.version == 3


@pytest.mark.parametrize("change", ["transaction", "columns", "place", "beyond its tries"])
def test_a_write_to_what_was_changed_meanwhile_is_a_conflict(
    cached: DeltaLog, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match change:
        case "transaction":
            write(tmp_path, a=2)
        case "columns":
            more = ROWS.append_column("more", pa.array([1]))
            deltalake.write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
        case "place":
            another_of_the_same_length(tmp_path)
        case _:
            write(tmp_path, b=1)
            monkeypatch.setattr(delta_log, "_TRIES", 1)
    there = sorted(tmp_path.glob("_delta_log/*"))
    with pytest.raises(Conflict):
        cached.append(list, {"a": 2})
    assert sorted(tmp_path.glob("_delta_log/*")) == there


def test_a_write_that_the_store_did_and_answered_with_an_error_is_found(
    cached: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the store tries again, and is told that the file is there."""
    once = Directory.write_once

    def twice(directory: Directory, path: str, data: bytes) -> str | None:
        assert once(directory, path, data) is not None
        return once(directory, path, data)

    monkeypatch.setattr(Directory, "write_once", twice)
    cached.append(list, {"a": 2})
    assert (cached.version, cached.version_of("a")) == (1, 2)


def another_of_the_same_length(path: Path) -> None:
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    write(path, a=1)


@pytest.mark.parametrize("change", [another_of_the_same_length])
def test_another_table_in_its_place_is_opened(
    cached: DeltaLog, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    was = cached.table.metadata().id
    change(tmp_path)
    assert not cached.is_same()
    assert cached.refresh()
    assert cached.table.metadata().id != was


def test_it_is_opened_anew_where_much_came(cached: DeltaLog, tmp_path: Path) -> None:
    opened = cached.table
    for at in range(2, 60):
        write(tmp_path, a=at)
    assert cached.refresh()
    assert cached.table is not opened
    assert cached.version_of("a") == 59


@pytest.mark.parametrize("is_kept", [True, False])
def test_old_files_of_a_log_stay_where_the_table_says_so(tmp_path: Path, is_kept: bool) -> None:
    """They are the way back to earlier versions of a user's table."""
    settings = {
        "delta.enableExpiredLogCleanup": str(not is_kept).lower(),
        "delta.logRetentionDuration": "interval 0 seconds",
    }
    deltalake.DeltaTable.create(tmp_path, ROWS.schema, configuration=settings)
    for _ in range(3):
        write(tmp_path)
    entries = tmp_path / "_delta_log"
    for each in entries.iterdir():
        os.utime(each, (0, 0))
    table = DeltaLog(str(tmp_path), {})
    table.refresh()
    table.checkpoint()
    assert list(entries.glob("*3.checkpoint.parquet"))
    assert (len(list(entries.glob("*.json"))) == 4) == is_kept


def test_what_is_written_behind_a_pause_into_a_log_that_was_summed_up_is_refused(
    cached: DeltaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next version came and went in a minute: nobody would read what is written there."""
    own, now_s = Directory.write_once, time.time

    def late(directory: Directory, path: str, data: bytes) -> str | None:
        monkeypatch.setattr(Directory, "write_once", own)
        for _ in range(2):
            write(tmp_path, a=7)
        table = deltalake.DeltaTable(tmp_path)
        table.create_checkpoint()
        for version in (0, 1):
            (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
        monkeypatch.setattr(time, "time", lambda: now_s() + 61)
        return directory.write_once(path, data)

    monkeypatch.setattr(Directory, "write_once", late)
    with pytest.raises(Conflict):
        cached.append(list, {"a": 9})
    # As all do who are refused.
    cached.close()
    assert cached.refresh()
    assert cached.version_of("a") == 7


YEARS = ["interval 52 weeks", "365 days", "INTERVAL 365 DAYS", "interval 1 hour 365 days"]
OLD_S = time.time() - 40 * 86_400


def table_that_keeps(path: Path, name: str, given: str) -> DeltaLog:
    """Spark takes intervals in more forms than delta-rs, which reads those as 30 days or a week."""
    settings = {name: "interval 400 days", "delta.checkpointInterval": "1000"}
    deltalake.DeltaTable.create(path, ROWS.schema, configuration=settings)
    for _ in range(2):
        deltalake.write_deltalake(path, ROWS, mode="overwrite")
    for each in (path / "_delta_log").iterdir():
        lines = [json.loads(line) for line in each.read_text().splitlines()]
        for removed in (line["remove"] for line in lines if "remove" in line):
            removed["deletionTimestamp"] = int(OLD_S * 1000)
        text = "\n".join(map(json.dumps, lines))
        each.write_text(text.replace("interval 400 days", given).replace('"1000"', '"1"'))
        os.utime(each, (OLD_S, OLD_S))
    log = DeltaLog(str(path), {})
    log.refresh()
    return log


@pytest.mark.parametrize("given", YEARS)
def test_a_log_that_is_kept_for_a_year(tmp_path: Path, given: str) -> None:
    table_that_keeps(tmp_path, "delta.logRetentionDuration", given).checkpoint_in_turn()
    assert len(list(tmp_path.glob("_delta_log/*.json"))) == 3
    assert len(list(tmp_path.glob("_delta_log/*.checkpoint.parquet"))) == 1


@pytest.mark.parametrize("given", YEARS)
def test_removed_files_that_are_kept_for_a_year(
    tmp_path: Path, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    """VACUUM removes those that a checkpoint does not name."""
    name = "delta.deletedFileRetentionDuration"
    table_that_keeps(tmp_path, name, given).checkpoint_in_turn()
    made = list(tmp_path.glob("_delta_log/*.checkpoint.parquet"))
    told = [pq.read_table(each).column("remove").drop_null() for each in made]
    assert [len(each) for each in told] == [1] * (given == YEARS[0])
    assert (f"does not know {name} = {given!r}" in caplog.text) == (given != YEARS[0])


def test_who_writes_for_long_goes_on_while_the_log_is_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one at a time. A run that has just begun may be over with this version: it does it
    before that."""
    settings = {"delta.checkpointInterval": "5"}
    deltalake.DeltaTable.create(tmp_path, ROWS.schema, configuration=settings)
    log, real = DeltaLog(str(tmp_path), {}), DeltaLog.checkpoint
    log.refresh()
    summed_up, may_go_on = [], threading.Event()
    monkeypatch.setattr(upkeep, "_GOES_ON_FROM", 10)

    def slow(self: DeltaLog) -> None:
        assert threading.current_thread() is threading.main_thread() or may_go_on.wait(60)
        real(self)
        summed_up.append(log.version)

    monkeypatch.setattr(DeltaLog, "checkpoint", slow)
    for version in range(1, 19):
        log.append(list, {"a": version})
        log.checkpoint_in_turn()
    assert summed_up == [5]
    may_go_on.set()
    compacted()
    assert summed_up == [5, 18]
    assert len(list(tmp_path.glob("_delta_log/*.checkpoint.parquet"))) == 2


def test_a_path_that_delta_rs_takes_for_that_of_another_table(tmp_path: Path) -> None:
    """It lists the one, and reads the other."""
    own, other = tmp_path / "a%20b", tmp_path / "a b"
    write(tmp_path / "made", a=1)
    shutil.move(tmp_path / "made", own)
    for at in range(3):
        write(other, b=at)
    with pytest.raises(ValueError, match=r"delta-rs takes .*a%20b for .*a b$"):
        DeltaLog(str(own), {}).refresh()


def test_who_finds_news_in_each_look_asks_for_two_versions_at_a_time(
    cached: DeltaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store; who finds none asks for one."""
    asked: list[str] = []
    together = threading.Barrier(1)
    entry = cached.directory.entry

    def ask(path: str) -> Any:
        asked.append(path)
        together.wait(timeout=20)
        return entry(path)

    monkeypatch.setattr(Directory, "is_local", False)
    monkeypatch.setattr(cached.directory, "entry", ask)
    assert not cached.refresh()
    assert len(asked) == 1
    write(tmp_path, a=2)
    assert cached.refresh()
    together = threading.Barrier(2)
    for version in (3, 4):
        write(tmp_path, a=version)
        asked.clear()
        assert cached.refresh()
        assert (len(asked), cached.version_of("a")) == (2, version)
    assert not cached.refresh()
    together = threading.Barrier(1)
    asked.clear()
    assert not cached.refresh()
    assert len(asked) == 1


@pytest.mark.parametrize("setting", ["max_retries", "retry_timeout", "backoff_config.base"])
def test_a_value_that_no_setting_of_a_store_takes_is_a_wrong_option(
    cached: DeltaLog, setting: str
) -> None:
    """Also for a table on this machine, which delta-rs opens with them."""
    given = {setting: "x"}
    store, sink = DeltaStore(cached.uri, LAYOUT, given), SinkTable(cached.uri, ROWS.schema, given)
    for opened in (store.refresh, sink.prepare):
        with pytest.raises(KeyrangeError, match=rf"\[INVALID_OPTIONS\].*{setting}"):
            opened()
