"""What becomes of a numbered log on whose table something happens: named, nothing lost or doubled.

Each kind of table names it by its own conditions.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

from faults.damaged_tables import (
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
from keyrange.errors import CATALOGUE, KeyrangeError
from keyrange.storage.delta_store import DeltaStore
from project.forms import everyday
from tables.commit_contract import condition
from tables.numbered_logs import ASSIGNMENTS, COMMITS, Subject, commits

Happens = Callable[[Subject, Path], None]


def of_table(happens: Callable[[Path], None]) -> Happens:
    def happens_to(_: Subject, path: Path) -> None:
        happens(path)

    happens_to.__name__ = happens.__name__
    return happens_to


def forgets_transactions(_: Subject, path: Path) -> None:
    set_property(path, "delta.setTransactionRetentionDuration", "interval 1 days")


def lost_entry(subject: Subject, path: Path) -> None:
    append_rows(path, subject.rows_of(subject.of_another_log))
    note_transaction(path, 4, subject.app_id, 4)


def doubled_entry(subject: Subject, path: Path) -> None:
    append_rows(path, subject.rows_of(subject.entry(3)))


def entry_of_another_run(subject: Subject, path: Path) -> None:
    append_rows(path, subject.rows_of(subject.begin(3, "run-2")))


# To the field of `TableConditions`; "" for FOREIGN_TABLE, which is one for all tables.
HAPPENED: dict[Happens, str] = {
    of_table(delete_a_file): "gone",
    of_table(cut_a_file): "damaged",
    of_table(empty_a_file): "damaged",
    of_table(cut_the_log): "damaged",
    of_table(leave_a_gap_in_the_log): "damaged",
    of_table(add_a_column): "",
    of_table(newer_version): "unsupported",
    of_table(newer_protocol): "unsupported",
    forgets_transactions: "",
    of_table(another_table): "",
    of_table(delete_the_log): "",
    of_table(other_files): "",
    lost_entry: "damaged",
    doubled_entry: "damaged",
    entry_of_another_run: "damaged",
}
WHILE_IT_RUNS: dict[Happens, str] = {
    of_table(delete): "gone",
    of_table(delete_the_log): "gone",
    of_table(another_table): "",
    of_table(add_a_column): "",
    of_table(newer_version): "unsupported",
}


def named(subject: Subject, field: str) -> str:
    return getattr(subject.layout.conditions, field) if field else "FOREIGN_TABLE"


@pytest.mark.parametrize("happens", HAPPENED, ids=lambda happens: happens.__name__)
def test_a_driver_that_begins_is_told_by_name(
    subject: Subject, path: Path, happens: Happens
) -> None:
    happens(subject, path)
    for call in (subject.last, subject.writes[0], lambda table: list(table.history())):
        with pytest.raises(KeyrangeError) as raised:
            call(subject.open(path))
        assert condition(raised) == named(subject, HAPPENED[happens])
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 900


def test_an_entry_that_is_lost_between_others_is_damage(subject: Subject, path: Path) -> None:
    append_rows(path, subject.rows_of(subject.entry(5)))
    note_transaction(path, 4, subject.app_id, 5)
    calls = [lambda table: list(table.history())]
    if subject is COMMITS:
        # Its state rests on all of them; an assignment stands whole in the last row.
        calls += [subject.last, subject.writes[0]]
    for call in calls:
        with pytest.raises(KeyrangeError, match=r"does not hold each .*=4") as raised:
            call(subject.open(path))
        assert condition(raised) == subject.layout.conditions.damaged


def test_files_that_were_compacted_and_vacuumed_under_a_reader_are_read_anew(
    subject: Subject, path: Path
) -> None:
    """The reader's version names files that are gone; the same rows are in the next one's."""
    number = subject.layout.order
    store = DeltaStore(str(path), subject.layout, {})
    assert store.refresh()
    rows = store.read({}).sort_by(number)
    table = deltalake.DeltaTable(str(path))
    table.optimize.compact()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    assert store.greatest(number, {}) == 3
    assert store.read({}).sort_by(number) == rows


@pytest.mark.parametrize("happens", WHILE_IT_RUNS, ids=lambda happens: happens.__name__)
def test_a_driver_that_runs_is_told_by_name(subject: Subject, path: Path, happens: Happens) -> None:
    """Before anything is written to whatever stands there."""
    writer, reader = subject.open(path), subject.open(path)
    assert subject.last(writer) == 3
    assert subject.looks[0](writer) == subject.looks[0](reader)
    happens(subject, path)
    log = sorted(path.glob("_delta_log/*"))
    calls = [(writer, call) for call in subject.writes]
    for table, call in (*calls, *((reader, call) for call in subject.looks), *calls):
        with pytest.raises(KeyrangeError) as raised:
            call(table)
        assert condition(raised) == named(subject, WHILE_IT_RUNS[happens])
    assert sorted(path.glob("_delta_log/*")) == log


@pytest.mark.parametrize(
    ("subject", "other"),
    [(COMMITS, COMMITS), (COMMITS, commits("6b2d")), (ASSIGNMENTS, ASSIGNMENTS)],
    ids=["commits", "commits of another source", "assignments"],
)
@pytest.mark.parametrize("count", everyday(3, 1, 5))
def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(
    subject: Subject, other: Subject, path: Path, count: int
) -> None:
    table = subject.open(path)
    assert subject.last(table) == 3
    shutil.rmtree(path)
    entries = other.fill(path, count)
    for call in (*subject.writes, *subject.looks):
        with pytest.raises(KeyrangeError, match="another one made in its place") as raised:
            call(table)
        assert condition(raised) == subject.layout.conditions.gone
    assert list(other.open(path).history()) == entries
    assert deltalake.DeltaTable(path).version() == count


def test_a_table_that_was_brought_back_is_read_on(
    subject: Subject, path: Path, tmp_path: Path
) -> None:
    table = subject.open(path)
    subject.last(table)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(KeyrangeError):
        table.append(subject.entry(4))
    (tmp_path / "elsewhere").rename(path)
    table.append(subject.entry(4))
    assert list(subject.open(path).history()) == subject.entries(4)


def test_an_older_copy_of_the_table_is_not_written_on(
    subject: Subject, path: Path, tmp_path: Path
) -> None:
    table = subject.open(path)
    shutil.copytree(path, tmp_path / "copy")
    for seq in (4, 5):
        table.append(subject.entry(seq))
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    # The look right behind a write takes the table for the same.
    subject.last(table)
    for call in (subject.last, lambda table: table.append(subject.entry(6))):
        with pytest.raises(KeyrangeError, match=f"are gone: its last {subject.noun} is 3") as no:
            call(table)
        assert condition(no) == subject.layout.conditions.behind
    assert subject.last(subject.open(path)) == 3


@pytest.mark.parametrize("uri", ["foo://x/y", "s3:/"])
def test_a_place_that_cannot_be_reached_is_not_an_empty_one(subject: Subject, uri: str) -> None:
    with pytest.raises(KeyrangeError) as raised:
        subject.last(subject.open(uri))
    assert condition(raised) == subject.layout.conditions.unreadable


def test_settings_of_the_store_are_passed_through_and_not_shown(subject: Subject) -> None:
    storage = {"aws_endpoint": "http://127.0.0.1:9", "aws_access_key_id": "a-key"}
    storage |= {"aws_secret_access_key": "hush-hush", "aws_region": "x", "aws_allow_http": "true"}
    storage |= {"max_retries": "0"}
    table = subject.open("s3://b/t", **storage)
    with pytest.raises(KeyrangeError, match=r"127\.0\.0\.1:9") as raised:
        subject.last(table)
    assert condition(raised) == subject.layout.conditions.unreadable
    assert "hush-hush" not in str(raised.value)


def test_without_deltalake_the_extra_is_named(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(KeyrangeError, match=r"'\.\[commits\]'") as raised:
        subject.open("t")
    assert condition(raised) == "PACKAGE_NOT_FOUND"


def test_every_condition_says_what_to_do_and_is_of_one_kind_of_table() -> None:
    for name in {*COMMITS.conditions, *ASSIGNMENTS.conditions, "FOREIGN_TABLE"}:
        assert len(CATALOGUE[name].remedy) > 40
    assert not COMMITS.conditions & ASSIGNMENTS.conditions
    assert not any(name.startswith("COMMITS") for name in ASSIGNMENTS.conditions)


def test_a_full_disk_is_said_to_be_one_and_left_behind(subject: Subject, small_disk: Path) -> None:
    path = small_disk / "table"
    subject.fill(path)
    table = subject.open(path)
    before = subject.looks[0](table)
    undo = fill(small_disk)
    for _ in range(3):
        with pytest.raises(KeyrangeError, match="No space left") as raised:
            table.append(subject.entry(4))
        assert condition(raised) == subject.layout.conditions.unwritable
        subject.maintain(table)
        assert subject.looks[0](table) == before
    assert subject.looks[0](subject.open(path)) == before
    assert list(subject.open(path).history()) == subject.entries(3)
    undo()
    table.append(subject.entry(4))
    assert list(subject.open(path).history()) == subject.entries(4)


def test_a_place_that_cannot_be_written_is_said_to_be_one(
    subject: Subject, small_disk: Path
) -> None:
    path = small_disk / "table"
    subject.fill(path)
    table = subject.open(path)
    undo = make_read_only(small_disk)
    for writer in (table, subject.open(path)):
        for call in subject.writes:
            with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
                call(writer)
            assert condition(raised) == subject.layout.conditions.unwritable
        subject.maintain(writer)
        assert subject.last(writer) == 3
    with pytest.raises(KeyrangeError, match=r"[Rr]ead-only") as raised:
        subject.open(small_disk / "elsewhere").append(subject.entry(1))
    assert condition(raised) == subject.layout.conditions.unwritable
    undo()
    table.append(subject.entry(4))
    assert list(subject.open(path).history()) == subject.entries(4)
