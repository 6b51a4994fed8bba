"""What becomes of an assignment table whose rows are not what a driver wrote: named, and nothing
made up. What happens to any numbered log is in tests/unit/storage/test_numbered_log_faults.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faults.damaged_tables import append_rows, note_transaction
from keyrange.errors import KeyrangeError
from keyrange.members.table.assignment_schema import SCHEMA, rows_of
from keyrange.storage.stored_checksum import crc32c
from samples.member_samples import append_all, command, stored, table_at
from tables.commit_contract import condition

ROWS = [stored(1), stored(2), stored(3, 2)]
APP = "keyrange/members/assignment"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    append_all(table_at(tmp_path / "members"), ROWS)
    return tmp_path / "members"


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


def test_commands_that_an_older_copy_of_the_table_lacks_are_missed(
    path: Path, tmp_path: Path
) -> None:
    table = table_at(path)
    shutil.copytree(path, tmp_path / "copy")
    append_all(table, [stored(4, 2), stored(5, 3)])
    assert table.append_command(command()).number == 1
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    # The look right behind a write takes the table for the same.
    table.commands(1)
    with pytest.raises(KeyrangeError, match="are gone") as raised:
        table.commands(1)
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
