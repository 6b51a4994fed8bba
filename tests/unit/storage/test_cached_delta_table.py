"""A table that stays open: what a look sees, and what it does not have to ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from keyrange.storage import cached_delta_table
from keyrange.storage.cached_delta_table import CachedDeltaTable

ROWS = pa.table({"at": pa.array([1], pa.int64())})


def write(path: Path, **transactions: int) -> None:
    marks = [deltalake.Transaction(*each) for each in transactions.items()]
    properties = deltalake.CommitProperties(app_transactions=marks)
    deltalake.write_deltalake(path, ROWS, mode="append", commit_properties=properties)


@pytest.fixture
def cached(tmp_path: Path) -> CachedDeltaTable:
    """Open, with one version, in which application a is known."""
    write(tmp_path, a=1)
    table = CachedDeltaTable(str(tmp_path), {})
    assert table.refresh()
    assert (table.version_of("a"), table.version_of("b")) == (1, None)
    return table


@pytest.fixture
def not_asked(monkeypatch: pytest.MonkeyPatch, cached: CachedDeltaTable) -> None:
    """Behind the first look delta-rs neither opens the table nor looks through its log."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked for")

    monkeypatch.setattr(cached.delta.DeltaTable, "transaction_version", refuse)
    monkeypatch.setattr(cached, "open", refuse)


@pytest.mark.usefixtures("not_asked")
def test_a_look_at_what_nobody_wrote_to(
    cached: CachedDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(cached.delta.DeltaTable, "update_incremental")
    assert not cached.refresh()
    assert cached.version_of("a") == 1


@pytest.mark.usefixtures("not_asked")
def test_transactions_of_others_are_read_from_the_entries_that_came(
    cached: CachedDeltaTable, tmp_path: Path
) -> None:
    write(tmp_path, b=7)
    write(tmp_path, a=2, c=5)
    assert cached.refresh()
    assert cached.version == 2
    assert [cached.version_of(each) for each in "abc"] == [2, 7, 5]
    assert not cached.refresh()


@pytest.mark.usefixtures("not_asked")
@pytest.mark.parametrize("others", [0, 1])
def test_a_write_of_its_own_is_known(cached: CachedDeltaTable, tmp_path: Path, others: int) -> None:
    for _ in range(others):
        write(tmp_path, b=3)
        cached.refresh()
    mark, before = cached.new_mark(), cached.version
    properties = deltalake.CommitProperties(
        custom_metadata=mark, app_transactions=[deltalake.Transaction("a", 9)]
    )
    deltalake.write_deltalake(cached.table, ROWS, mode="append", commit_properties=properties)
    cached.written(mark, before, {"a": 9})
    assert cached.is_same()
    assert not cached.refresh()
    assert cached.version_of("a") == 9


def test_a_write_that_others_came_before_is_looked_at(
    cached: CachedDeltaTable, tmp_path: Path
) -> None:
    mark, before = cached.new_mark(), cached.version
    write(tmp_path, b=3)
    properties = deltalake.CommitProperties(
        custom_metadata=mark,
        app_transactions=[deltalake.Transaction("a", 9)],
        max_commit_retries=5,
    )
    deltalake.write_deltalake(cached.table, ROWS, mode="append", commit_properties=properties)
    cached.written(mark, before, {"a": 9})
    assert cached.is_same()
    cached.refresh()
    assert (cached.version_of("a"), cached.version_of("b")) == (9, 3)


def another_of_the_same_length(path: Path) -> None:
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    write(path, a=1)


@pytest.mark.parametrize("change", [another_of_the_same_length])
def test_another_table_in_its_place_is_opened(
    cached: CachedDeltaTable, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    was = cached.table.metadata().id
    change(tmp_path)
    assert not cached.is_same()
    assert cached.refresh()
    assert cached.table.metadata().id != was


class Refusing:
    """A filesystem that asks for the size of a file."""

    def open_input_file(self, path: str) -> Any:
        raise AssertionError(path)


def test_a_look_does_not_ask_for_the_size_of_a_file(
    cached: CachedDeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "_files", Refusing())
    assert cached.is_same()
    write(tmp_path, b=7)
    assert cached.refresh()
    assert cached.version_of("b") == 7


def test_a_file_of_the_log_that_is_longer_than_was_guessed_is_read_whole(
    cached: CachedDeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_delta_table, "_ENTRY_BYTES", 10)
    assert cached.is_same()
    write(tmp_path, b=7)
    assert cached.refresh()
    assert cached.version_of("b") == 7
    another_of_the_same_length(tmp_path)
    assert not cached.is_same()


def test_it_is_opened_anew_where_much_came(cached: CachedDeltaTable, tmp_path: Path) -> None:
    opened = cached.table
    for at in range(2, 60):
        write(tmp_path, a=at)
    assert cached.refresh()
    assert cached.table is not opened
    assert cached.version_of("a") == 59
