"""Several writers of one numbered log, and writes of which nobody knows whether they landed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest

from commit_contract import condition
from keyrange.errors import KeyrangeError
from keyrange.storage.delta_rs import DeltaRsStore
from numbered_logs import SUBJECTS, Subject
from racing_writers import Writes, check_late_append, in_threads

pytestmark = pytest.mark.ordinary


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param


@pytest.fixture
def path(tmp_path: Path, subject: Subject) -> Path:
    """A table with three entries."""
    subject.fill(tmp_path / "table")
    return tmp_path / "table"


def test_a_write_that_failed_and_landed_is_recognised(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = subject.open(path)
    writes = Writes(monkeypatch, True, OSError("timed out"))
    table.append(subject.entry(4))
    table.append(subject.entry(5))
    assert writes.calls == 2
    assert list(subject.open(path).history()) == subject.entries(5)


def test_a_write_that_failed_is_said_to_have_failed(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write in subject.writes:
        table = subject.open(path, secret_access_key="hush-hush")
        failure = OSError("\x1b[31mno space left\x1b[0m\nkey hush-hush\n   0: <unknown>\n  1: main")
        with monkeypatch.context() as patched:
            Writes(patched, False, failure)
            with pytest.raises(KeyrangeError) as raised:
                write(table)
        assert condition(raised) == subject.layout.conditions.unwritable
        assert "no space left key *** (table=" in str(raised.value)
        assert subject.last(table) == subject.last(subject.open(path))
        write(table)
    assert list(subject.open(path).history()) == subject.entries(4)


def test_a_write_of_which_nothing_can_be_known_says_so(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = subject.open(path)
    subject.last(table)
    real = deltalake.write_deltalake

    def is_away(*arguments: Any, **named: Any) -> None:
        raise OSError("the store is away")

    def lands_and_breaks(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        monkeypatch.setattr(deltalake, "DeltaTable", is_away)
        is_away()

    monkeypatch.setattr(deltalake, "write_deltalake", lands_and_breaks)
    said = rf"the store is away .*; whether the {subject.noun} was written all the same cannot be"
    with pytest.raises(KeyrangeError, match=said) as raised:
        table.append(subject.entry(4))
    assert condition(raised) == subject.layout.conditions.unwritable
    monkeypatch.undo()
    table.append(subject.entry(4))
    assert list(subject.open(path).history()) == subject.entries(4)


def test_an_entry_of_a_driver_that_was_replaced_since_it_looked_is_refused(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_late_append(subject, path, monkeypatch)


def test_of_drivers_that_write_at_the_same_time_one_goes_on(subject: Subject, path: Path) -> None:
    tables = [subject.open(path) for _ in range(6)]
    assert {subject.last(each) for each in tables} == {3}
    raised = in_threads(6, lambda at: tables[at].append(subject.begin(4, f"run-{at + 2}")))
    names = [each.condition.name for each in raised if isinstance(each, KeyrangeError)]
    assert names == [subject.fenced] * 5
    assert [each.seq for each in subject.open(path).history()] == [1, 2, 3, 4]


def test_of_drivers_that_make_the_table_together_one_does(subject: Subject, tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / f"table-{attempt}"
        tables = [subject.open(path) for _ in range(4)]
        raised = in_threads(4, lambda at, of=tables: of[at].append(subject.begin(1, f"run-{at}")))
        names = [each.condition.name for each in raised if isinstance(each, KeyrangeError)]
        assert names == [subject.fenced] * 3
        assert len(list(subject.open(path).history())) == 1


def test_rows_that_were_copied_into_a_new_table_are_written_on(
    subject: Subject, path: Path, tmp_path: Path
) -> None:
    """A copy has no transactions, and its entries count all the same."""
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    copy = tmp_path / "copy"
    DeltaRsStore(str(copy), subject.layout, {}).write(rows, [], {})
    table = subject.open(copy)
    assert subject.last(table) == 3
    assert subject.looks[0](table) == subject.looks[0](subject.open(path))
    assert list(table.history()) == subject.entries(3)
    table.append(subject.entry(4))
    assert subject.looks[0](table) == subject.looks[0](subject.open(copy))
    assert list(subject.open(copy).history()) == subject.entries(4)


def test_maintenance_that_fails_fails_no_batch(
    subject: Subject,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = subject.open(path)

    def fails(_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(deltalake.DeltaTable, "create_checkpoint", fails)
    subject.maintain(table)
    assert "could not be compacted or vacuumed: no space left" in caplog.text
    table.append(subject.entry(4))
    assert subject.last(subject.open(path)) == 4
