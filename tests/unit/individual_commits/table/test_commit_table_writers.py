"""Several writers of one commit table, writes of which nobody knows, and its maintenance."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from keyrange.errors import DeniedError, KeyrangeError
from keyrange.individual_commits.model.commit import known_at
from keyrange.individual_commits.table.commit_table import LAYOUT
from keyrange.model.offsets import TopicPartition
from keyrange.storage import delta_store
from keyrange.storage.delta_store import DeltaStore
from tables.commit_contract import FLIGHTS, batch, condition, fence, state
from tables.delta_commits import COMMITS, table_at
from tables.racing_writers import Writes, before_the_next_write, compacted, in_threads

pytestmark = pytest.mark.ordinary
LONE = TopicPartition("flights", 9)
# What a writer commits while nobody tidies up: delta-rs makes a checkpoint at version 100.
MANY = [*COMMITS, batch(4, states={LONE: state(500)}), *(batch(seq) for seq in range(5, 115))]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """One table after so many of MANY, in copies that nobody may change."""
    home = tmp_path_factory.mktemp("grown")
    table, found = table_at(home / "commits"), {}
    for commit in MANY:
        table.append(commit)
        if commit.seq in (3, 69, 114):
            found[commit.seq] = home / str(commit.seq)
            shutil.copytree(home / "commits", found[commit.seq])
    return found


def test_a_fence_that_failed_and_landed_is_recognised(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path)
    Writes(monkeypatch, True, OSError("timed out"))
    table.append(fence(4, "run-2"))
    assert list(table_at(path).history()) == [*COMMITS, fence(4, "run-2")]


def test_a_fence_that_comes_between_state_and_write_wins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = table_at(path), table_at(path)
    table.known()
    before_the_next_write(monkeypatch, lambda: other.append(fence(4, "run-2")))
    with pytest.raises(KeyrangeError) as raised:
        table.append(batch(4))
    assert condition(raised) == "COMMITS_FENCED"
    assert list(table_at(path).history()) == [*COMMITS, fence(4, "run-2")]


def test_a_driver_that_begins_between_look_and_write_wins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it writes another source, which the first one's commits know nothing of."""
    table, other = table_at(path, "6b2d"), table_at(path, "7c3e")
    begun = table.begun("orders")
    before_the_next_write(
        monkeypatch, lambda: other.append(fence(1, "run-3", "7c3e"), other.begun("orders"))
    )
    with pytest.raises(KeyrangeError) as raised:
        table.append(fence(1, "run-2", "6b2d"), begun)
    assert condition(raised) == "COMMITS_FENCED"
    assert (table_at(path, "6b2d").known().seq, other.known().seq) == (0, 1)
    table.append(fence(1, "run-2", "6b2d"), table.begun("orders"))


@pytest.mark.parametrize("writers", [2, 4, 8, pytest.param(16, marks=pytest.mark.slow)])
def test_commits_of_several_sources_all_land(tmp_path: Path, writers: int) -> None:
    """They make the table together, too."""

    def work(number: int) -> None:
        source = f"source-{number}"
        table = table_at(tmp_path / "commits", source)
        table.append(fence(1, source, source))
        for seq in range(2, 6):
            table.append(batch(seq, run_id=source, source_id=source))
            table.maintain()

    assert in_threads(writers, work) == []
    for number in range(writers):
        source = f"source-{number}"
        found = list(table_at(tmp_path / "commits", source).history())
        expected = [batch(seq, run_id=source, source_id=source) for seq in range(2, 6)]
        assert found == [fence(1, source, source), *expected]


def test_of_several_drivers_of_one_query_one_goes_on(tmp_path: Path) -> None:
    acknowledged: list[tuple[int, str]] = []
    # All but one have begun before any of them commits: where the machine runs threads one after
    # the other nobody would be in another's way.
    begun = threading.Barrier(5, timeout=60)

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
        if number:
            begun.wait()
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


def test_a_handle_that_slept_while_the_log_was_cleaned_reads_on(
    grown: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "commits"
    shutil.copytree(grown[3], path)
    sleeper, writer = table_at(path), table_at(path)
    assert sleeper.known().seq == 3
    # What the writer has committed since.
    shutil.copytree(grown[114], path, dirs_exist_ok=True)
    for each in (path / "_delta_log").iterdir():
        # The age that it is cleaned at.
        stat = each.stat()
        os.utime(each, (stat.st_atime - 3600, stat.st_mtime - 3600))
    monkeypatch.setattr(delta_store, "_COMPACT_EVERY", 1)
    writer.maintain()
    assert not (path / "_delta_log" / f"{3:020d}.json").exists()
    assert sleeper.known() == writer.known()
    assert sleeper.known().seq == 114
    sleeper.append(batch(115))
    assert table_at(path).known().seq == 115


def test_maintenance_keeps_files_few_and_takes_nothing_that_is_read(path: Path) -> None:
    writer, reader = table_at(path), table_at(path)
    slow = deltalake.DeltaTable(path)
    for seq in range(4, 230):
        writer.append(batch(seq, whole=seq % 50 == 0))
        writer.maintain()
    compacted()
    assert len(deltalake.DeltaTable(path).file_uris()) < 130
    # Who began before that goes on reading.
    assert slow.to_pyarrow_table().num_rows == 1 + 2 * 3
    assert reader.known().seq == 229
    assert reader.known(3) == known_at(COMMITS, 3)


@pytest.mark.parametrize("is_outdone", [False, True])
def test_commits_go_on_while_the_table_is_compacted(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_outdone: bool
) -> None:
    """Where somebody else compacts it meanwhile, each commit is there once all the same."""
    made, goes_on = threading.Event(), threading.Event()
    put = DeltaStore._put

    def slow(store: DeltaStore, rows: pa.Table, is_change: bool = True) -> Any:
        if not is_change:
            made.set()
            assert goes_on.wait(30)
        return put(store, rows, is_change)

    monkeypatch.setattr(DeltaStore, "_put", slow)
    table = table_at(path)
    seq = 3
    while not made.wait(0 if seq < 99 else 0.2):
        seq += 1
        table.append(batch(seq))
        table.maintain()
    if is_outdone:
        deltalake.DeltaTable(path).optimize.compact()
    for _ in range(5):
        seq += 1
        table.append(batch(seq))
    before = len(deltalake.DeltaTable(path).file_uris())
    goes_on.set()
    compacted()
    assert [each.seq for each in table_at(path).history()] == list(range(1, seq + 1))
    assert table_at(path).known() == table.known()
    assert (len(deltalake.DeltaTable(path).file_uris()) < before) == (not is_outdone)


def test_only_what_is_needed_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_at(path)
    parts = [FLIGHTS, FLIGHTS._replace(partition=1)]
    for seq in range(4, 71):
        both = {each: state(1_000 + 100 * seq + each.partition) for each in parts}
        whole = seq % 50 == 0
        table.append(
            batch(seq, states=both if whole else {parts[seq % 2]: state(900 + seq)}, whole=whole)
        )
    read: list[str] = []
    real = DeltaStore._read

    def counted(store: DeltaStore, paths: list[str], *more: Any) -> pa.Table:
        read.extend(paths)
        return real(store, paths, *more)

    monkeypatch.setattr(DeltaStore, "_read", counted)
    fresh = table_at(path)
    assert fresh.known() == table.known()
    # Back to commit 50, the last whole one; 50 at a time.
    assert len(read) == 50
    read.clear()
    table.append(batch(71))
    fresh.known()
    fresh.known()
    assert len(read) == 1


def test_compactions_at_the_same_time_double_nothing(
    grown: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of delta-rs's own compactions of the same files may both land."""
    path = tmp_path / "commits"
    shutil.copytree(grown[69], path)
    tables = [table_at(path) for _ in range(6)]
    assert {each.known().seq for each in tables} == {69}
    monkeypatch.setattr(delta_store, "_COMPACT_EVERY", 1)
    assert in_threads(6, lambda number: tables[number].maintain()) == []
    assert list(table_at(path).history()) == MANY[:69]
    assert len(deltalake.DeltaTable(path).file_uris()) == 1


def test_of_writers_that_make_the_table_together_one_does(tmp_path: Path) -> None:
    """delta-rs would try again, and give the table another identity."""
    for attempt in range(10):
        path = tmp_path / f"commits-{attempt}"
        stores = [DeltaStore(str(path), LAYOUT, {}) for _ in range(8)]
        assert in_threads(8, lambda number, made=stores: made[number]._create()) == []
        assert sorted(each.name for each in path.glob("_delta_log/*.json")) == [f"{0:020d}.json"]
        assert len({each._table_id for each in stores}) == 1


def test_the_state_is_found_however_far_back_it_stands(grown: dict[int, Path]) -> None:
    """A fence may stand where a whole commit was due."""
    path = grown[114]
    assert table_at(path).known() == known_at(MANY, 114)
    assert table_at(path).known(60) == known_at(MANY, 60)
    assert table_at(path).known().states[LONE] == state(500)
