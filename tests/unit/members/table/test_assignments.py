"""The assignment table: what drivers write and read, alone and against one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.table.assignments import LAYOUT
from keyrange.storage.delta_store import DeltaStore
from samples.member_samples import append_all, assignment, command, member, owned, stored, table_at
from tables.commit_contract import condition
from tables.racing_writers import Writes, compacted, in_threads

GOLDEN = Path(__file__).parents[3] / "golden"
ROWS = [stored(1), stored(2, members=[member("orders-0", "ABSENT")]), stored(3, 2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    append_all(table_at(tmp_path / "members"), ROWS)
    return tmp_path / "members"


def test_a_table_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    table = table_at(tmp_path / "members")
    assert table.last() is None
    assert list(table.history()) == table.commands() == []
    table.maintain()
    assert not (tmp_path / "members").exists()


def test_rows_come_back_as_they_were_written(path: Path) -> None:
    for table in (table_at(path), table_at(path, group="")):
        assert table.last() == ROWS[2]
        assert list(table.history()) == ROWS
        assert list(table.history(2, 3)) == ROWS[1:2]
        assert list(table.history(-5, 99)) == ROWS


def test_there_may_be_members_before_an_assignment(tmp_path: Path) -> None:
    table = table_at(tmp_path / "members")
    append_all(table, [stored(1, 0, members=[member("orders-0", "JOINING")]), stored(2, 1)])
    first, second = table_at(tmp_path / "members").history()
    assert (first.epoch, first.assignment) == (0, None)
    assert second.epoch == 1


def test_what_another_handle_wrote_is_seen(tmp_path: Path) -> None:
    writer, reader = table_at(tmp_path / "members"), table_at(tmp_path / "members")
    assert reader.last() is None
    for row in ROWS:
        writer.append(row)
        assert reader.last() == writer.last() == row


def test_a_row_that_is_written_again_changes_nothing(path: Path) -> None:
    for table in (table_at(path), table_at(path)):
        table.append(ROWS[2])
        assert list(table.history()) == ROWS


def test_a_driver_that_begins_goes_on_and_the_one_before_stops(path: Path) -> None:
    first = table_at(path)
    first.append(stored(4, 2))
    second = table_at(path)
    second.append(stored(5, 2, "run-2"))
    for late in (stored(5, 3), stored(5, 2), stored(4, 3)):
        with pytest.raises(KeyrangeError, match=r"run run-2 has written row 5 .* run run-1") as no:
            first.append(late)
        assert condition(no) == "ASSIGNMENT_CHANGED"
    second.append(stored(6, 3, "run-2"))
    assert [each.run_id for each in second.history()] == ["run-1"] * 4 + ["run-2"] * 2


def test_a_driver_that_reads_before_it_writes_stops_too(path: Path) -> None:
    """Or two drivers would take turns for ever."""
    first = table_at(path)
    first.append(stored(4, 2))
    table_at(path).append(stored(5, 2, "run-2"))
    assert first.last() == stored(5, 2, "run-2")
    with pytest.raises(KeyrangeError) as raised:
        first.append(stored(6, 3))
    assert condition(raised) == "ASSIGNMENT_CHANGED"


def test_a_driver_that_only_looks_for_commands_learns_that_it_was_replaced(path: Path) -> None:
    first = table_at(path)
    assert first.commands() == []
    first.append(stored(4, 2))
    assert first.commands() == []
    table_at(path).append(stored(5, 2, "run-2"))
    with pytest.raises(KeyrangeError) as raised:
        first.commands()
    assert condition(raised) == "ASSIGNMENT_CHANGED"


@pytest.mark.parametrize("row", [stored(4, 1), stored(4, 0), stored(6, 3)])
def test_what_cannot_follow_is_not_written(path: Path, row: Any) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        table_at(path).append(row)
    assert table_at(path).last() == ROWS[2]


def test_an_epoch_is_one_assignment(path: Path) -> None:
    other = assignment(2, {place: owned("x") for place in assignment(2).owners})
    with pytest.raises(ValueError, match="epoch 2 cannot follow epoch 2"):
        table_at(path).append(stored(4, assignment=other))


def test_a_row_of_another_group_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="group other"):
        table_at(path).append(stored(4, 3, group="other"))
    with pytest.raises(ValueError, match="group other"):
        table_at(path).append_command(command(group="other"))


def test_a_table_of_another_group_is_refused(path: Path) -> None:
    table = table_at(path, group="other")
    for call in (
        table.last,
        lambda: table.append(stored(1, group="other")),
        lambda: list(table.history()),
    ):
        with pytest.raises(KeyrangeError, match="members of group orders, not other") as raised:
            call()
        assert condition(raised) == "FOREIGN_TABLE"
    assert list(table_at(path).history()) == ROWS


def test_a_command_that_failed_and_landed_is_recognised(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path)
    writes = Writes(monkeypatch, lands=True)
    assert table.append_command(command()).number == 1
    assert writes.calls == 1
    assert len(table_at(path).commands()) == 1


def test_a_command_that_failed_is_said_to_have_failed_and_lands_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(path)
    with monkeypatch.context() as patched:
        Writes(patched, lands=False)
        with pytest.raises(KeyrangeError, match="timed out") as raised:
            table.append_command(command())
    assert condition(raised) == "ASSIGNMENT_UNWRITABLE"
    assert table.last() == table_at(path).last()
    table.append_command(command())
    assert len(table_at(path).commands()) == 1


def test_commands_are_numbered_and_do_not_stand_in_a_drivers_way(path: Path) -> None:
    driver, person = table_at(path), table_at(path, group="")
    assert driver.last() == ROWS[2]
    person.last()
    asked = [command(), command("remove", "orders-1"), command()]
    written = [person.append_command(each) for each in asked]
    assert [each.number for each in written] == [1, 2, 3]
    assert driver.commands() == written
    assert driver.commands(1) == written[1:]
    assert driver.commands(3) == []
    driver.append(stored(4, 3, commands_until=3))
    assert driver.commands(3) == []
    assert list(table_at(path).history()) == [*ROWS, stored(4, 3, commands_until=3)]


def test_commands_of_several_people_all_land(path: Path) -> None:
    work = lambda at: table_at(path).append_command(command(run_id=f"cli-{at}"))  # noqa: E731
    assert in_threads(6, lambda at: [work(at), None][1]) == []
    found = table_at(path).commands()
    assert [each.number for each in found] == [1, 2, 3, 4, 5, 6]
    assert {each.run_id for each in found} == {f"cli-{at}" for at in range(6)}


@pytest.mark.parametrize(("action", "name"), [("rebalance", "a"), ("remove", ""), ("stop", "")])
def test_what_is_no_command_is_not_made(action: str, name: str) -> None:
    with pytest.raises(ValueError, match="is no command"):
        command(action, name)


def test_commands_that_were_copied_into_a_new_table_count(path: Path, tmp_path: Path) -> None:
    """A copy has no transactions, and its rows count all the same."""
    table_at(path).append_command(command())
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    DeltaStore(str(tmp_path / "copy"), LAYOUT, {}).write(rows, [], {})
    table = table_at(tmp_path / "copy")
    assert table.last() == ROWS[2]
    table.append(stored(4, 3))
    assert table.append_command(command()).number == 2
    again = table_at(tmp_path / "copy")
    assert list(again.history()) == [*ROWS, stored(4, 3)]
    assert [each.number for each in again.commands()] == [1, 2]


@pytest.mark.ordinary
def test_many_rows_and_maintenance_change_nothing(path: Path) -> None:
    table, reader = table_at(path), table_at(path)
    rows = [stored(seq, 2 + seq // 5) for seq in range(4, 170)]
    for row in rows:
        table.append(row)
        table.maintain()
        if row.seq % 40 == 0:
            table.append_command(command())
            compacted()
    assert list(table_at(path).history()) == [*ROWS, *rows]
    assert reader.last() == table.last() == rows[-1]
    assert [each.number for each in reader.commands()] == [1, 2, 3, 4]
    assert len(deltalake.DeltaTable(path).file_uris()) < 150


def test_nothing_is_read_where_nothing_was_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = DeltaStore._read

    def counted(store: DeltaStore, paths: list[str], *more: Any) -> pa.Table:
        read.extend(paths)
        return real(store, paths, *more)

    monkeypatch.setattr(DeltaStore, "_read", counted)
    table = table_at(path)
    table.last()
    assert len(read) == 1
    table.commands()
    read.clear()
    for _ in range(3):
        assert table.last() == ROWS[2]
        assert table.commands() == []
    table.append(stored(4, 3))
    assert table.last() == stored(4, 3)
    assert read == []
    table_at(path).append_command(command())
    read.clear()
    assert len(table.commands()) == 1
    assert len(read) == 1
