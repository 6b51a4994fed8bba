"""What becomes of an assignment table on which something happens: named, and nothing made up."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commit_contract import condition
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
    leave_a_gap_in_the_log,
    make_read_only,
    newer_protocol,
    newer_version,
    note_transaction,
    other_files,
)
from keyrange.errors import CATALOGUE, KeyrangeError
from keyrange.members.table.assignment_rows import SCHEMA, rows_of
from keyrange.storage.checksum import crc32c
from member_samples import append_all, command, stored, table_at

ROWS = [stored(1), stored(2), stored(3, 2)]
APP = "keyrange/members/assignment"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    append_all(table_at(tmp_path / "members"), ROWS)
    return tmp_path / "members"


def lost_row(path: Path) -> None:
    append_rows(path, rows_of(command(number=1)))
    note_transaction(path, 4, APP, 4)


def doubled_row(path: Path) -> None:
    append_rows(path, rows_of(ROWS[2]))


def altered(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A table whose third row is another, under the same transaction."""

    def happens(path: Path) -> None:
        [row] = rows_of(ROWS[2]).to_pylist()
        change(row)
        shutil.rmtree(path)
        append_all(table_at(path), ROWS[:2])
        append_rows(path, pa.Table.from_pylist([row], SCHEMA))
        note_transaction(path, 3, APP, 3)

    happens.__name__ = change.__name__
    return happens


def resealed(row: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(row["document"])
    change(document)
    row["document"] = json.dumps(document)
    row["crc"] = crc32c(row["document"].encode())


def altered_document(row: dict[str, Any]) -> None:
    row["document"] = row["document"].replace("orders-1", "orders-2")


def no_document(row: dict[str, Any]) -> None:
    row["document"] = None


def altered_epoch(row: dict[str, Any]) -> None:
    row["epoch"] = 7


def altered_time(row: dict[str, Any]) -> None:
    row["at"] = None


def group_of_the_column_alone(row: dict[str, Any]) -> None:
    row["group"] = "other"


def newer_row(row: dict[str, Any]) -> None:
    resealed(row, lambda document: document.update(v=3))


def no_version(row: dict[str, Any]) -> None:
    resealed(row, lambda document: document.update(v=True))


def impossible_assignment(row: dict[str, Any]) -> None:
    resealed(row, lambda document: document.update(assignment={"epoch": "x"}))


def more_names(row: dict[str, Any]) -> None:
    resealed(row, lambda document: document.update(more=1))


def no_object(row: dict[str, Any]) -> None:
    row["document"] = "[" * 100_000
    row["crc"] = crc32c(row["document"].encode())


def not_a_number(row: dict[str, Any]) -> None:
    resealed(row, lambda document: document["members"][0].update(cores=float("nan")))


HAPPENED: dict[Callable[[Path], None], str] = {
    delete_a_file: "ASSIGNMENT_GONE",
    cut_a_file: "ASSIGNMENT_DAMAGED",
    empty_a_file: "ASSIGNMENT_DAMAGED",
    cut_the_log: "ASSIGNMENT_DAMAGED",
    leave_a_gap_in_the_log: "ASSIGNMENT_DAMAGED",
    add_a_column: "FOREIGN_TABLE",
    newer_version: "UNSUPPORTED_ASSIGNMENT",
    newer_protocol: "UNSUPPORTED_ASSIGNMENT",
    another_table: "FOREIGN_TABLE",
    delete_the_log: "FOREIGN_TABLE",
    other_files: "FOREIGN_TABLE",
    lost_row: "ASSIGNMENT_DAMAGED",
    doubled_row: "ASSIGNMENT_DAMAGED",
    altered(altered_document): "ASSIGNMENT_DAMAGED",
    altered(no_document): "ASSIGNMENT_DAMAGED",
    altered(altered_epoch): "ASSIGNMENT_DAMAGED",
    altered(altered_time): "ASSIGNMENT_DAMAGED",
    altered(group_of_the_column_alone): "ASSIGNMENT_DAMAGED",
    altered(newer_row): "UNSUPPORTED_ASSIGNMENT",
    altered(no_version): "ASSIGNMENT_DAMAGED",
    altered(impossible_assignment): "ASSIGNMENT_DAMAGED",
    altered(more_names): "ASSIGNMENT_DAMAGED",
    altered(no_object): "ASSIGNMENT_DAMAGED",
    altered(not_a_number): "ASSIGNMENT_DAMAGED",
}


@pytest.mark.parametrize("happens", HAPPENED, ids=lambda happens: happens.__name__)
def test_a_driver_that_begins_is_told_by_name(path: Path, happens: Callable[[Path], None]) -> None:
    happens(path)
    for call in (lambda t: t.last(), lambda t: t.append(stored(4, 3)), lambda t: [*t.history()]):
        with pytest.raises(KeyrangeError) as raised:
            call(table_at(path))
        assert condition(raised) == HAPPENED[happens]
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 900


WHILE_IT_RUNS: dict[Callable[[Path], None], str] = {
    delete: "ASSIGNMENT_GONE",
    delete_the_log: "ASSIGNMENT_GONE",
    another_table: "FOREIGN_TABLE",
    add_a_column: "FOREIGN_TABLE",
    newer_version: "UNSUPPORTED_ASSIGNMENT",
}


@pytest.mark.parametrize("happens", WHILE_IT_RUNS, ids=lambda happens: happens.__name__)
def test_a_driver_that_runs_is_told_by_name(path: Path, happens: Callable[[Path], None]) -> None:
    """Before anything is written to whatever stands there."""
    writer, reader = table_at(path), table_at(path)
    assert writer.last() == reader.last() == ROWS[2]
    happens(path)
    log = sorted(path.glob("_delta_log/*"))
    for call in (
        lambda: writer.append(stored(4, 3)),
        reader.last,
        reader.commands,
        lambda: writer.append_command(command()),
    ):
        with pytest.raises(KeyrangeError) as raised:
            call()
        assert condition(raised) == WHILE_IT_RUNS[happens]
    assert sorted(path.glob("_delta_log/*")) == log


def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(path: Path) -> None:
    table = table_at(path)
    assert table.last() == ROWS[2]
    shutil.rmtree(path)
    rows = [stored(seq, run_id="run-2") for seq in (1, 2, 3)]
    append_all(table_at(path), rows)
    for call in (lambda: table.append(stored(4, 3)), table.last, table.commands):
        with pytest.raises(KeyrangeError, match="another one made in its place") as raised:
            call()
        assert condition(raised) == "ASSIGNMENT_GONE"
    assert list(table_at(path).history()) == rows


def test_an_older_copy_of_the_table_is_not_written_on(path: Path, tmp_path: Path) -> None:
    table = table_at(path)
    shutil.copytree(path, tmp_path / "copy")
    append_all(table, [stored(4, 2), stored(5, 3)])
    assert table.append_command(command()).number == 1
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    for call in (table.last, lambda: table.append(stored(6, 3)), lambda: table.commands(1)):
        with pytest.raises(KeyrangeError, match="are gone") as raised:
            call()
        assert condition(raised) == "ASSIGNMENT_GONE"
    # A driver that begins has its row's word for what was asked for.
    with pytest.raises(KeyrangeError, match="its last command is 0, and command 1 was") as raised:
        table_at(path).commands(1)
    assert condition(raised) == "ASSIGNMENT_GONE"
    assert table_at(path).last() == ROWS[2]


def test_two_assignments_of_one_epoch_are_damage(path: Path) -> None:
    append_rows(path, rows_of(stored(4, 1)))
    note_transaction(path, 4, APP, 4)
    with pytest.raises(KeyrangeError, match="epoch 1 cannot follow epoch 2") as raised:
        list(table_at(path).history())
    assert condition(raised) == "ASSIGNMENT_DAMAGED"


@pytest.mark.parametrize("uri", ["foo://x/y", "s3:/"])
def test_a_place_that_cannot_be_reached_is_not_an_empty_one(uri: str) -> None:
    with pytest.raises(KeyrangeError) as raised:
        table_at(uri).last()  # type: ignore[arg-type]
    assert condition(raised) == "ASSIGNMENT_UNREADABLE"


def test_settings_of_the_store_are_passed_through_and_not_shown() -> None:
    storage = {"aws_endpoint": "http://127.0.0.1:9", "aws_access_key_id": "a-key"}
    storage |= {"aws_secret_access_key": "hush-hush", "aws_region": "x", "aws_allow_http": "true"}
    storage |= {"max_retries": "0", "retry_timeout": "1s"}
    table = table_at("s3://b/t", **storage)  # type: ignore[arg-type]
    with pytest.raises(KeyrangeError, match=r"127\.0\.0\.1:9") as raised:
        table.last()
    assert condition(raised) == "ASSIGNMENT_UNREADABLE"
    assert "hush-hush" not in str(raised.value)


def test_without_deltalake_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(KeyrangeError, match=r"keyrange\[commits\]") as raised:
        table_at("t")  # type: ignore[arg-type]
    assert condition(raised) == "PACKAGE_NOT_FOUND"


def test_every_condition_says_what_to_do_and_none_is_of_the_commit_table() -> None:
    for name in {*HAPPENED.values(), *WHILE_IT_RUNS.values(), "ASSIGNMENT_UNWRITABLE"}:
        assert len(CATALOGUE[name].remedy) > 40
        assert not name.startswith("COMMITS")


def test_a_place_that_cannot_be_written_is_said_to_be_one(small_disk: Path) -> None:
    path = small_disk / "members"
    table = table_at(path)
    append_all(table, ROWS)
    undo = make_read_only(small_disk)
    for writer in (table, table_at(path)):
        for call in (lambda w: w.append(stored(4, 3)), lambda w: w.append_command(command())):
            with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
                call(writer)
            assert condition(raised) == "ASSIGNMENT_UNWRITABLE"
        writer.maintain()
        assert writer.last() == ROWS[2]
    undo()
    table.append(stored(4, 3))
    assert table_at(path).last() == stored(4, 3)
