"""Several writers of one numbered log."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest

from keyrange.errors import KeyrangeError
from keyrange.storage import delta_store
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.delta_store import DeltaStore
from tables.numbered_logs import Subject
from tables.racing_writers import check_late_append, in_threads

pytestmark = pytest.mark.ordinary


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


def test_a_table_that_another_driver_makes_between_two_looks_is_not_taken_for_foreign(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, looks = tmp_path / "table", DeltaLog.open, []

    def overtaken(log: DeltaLog) -> None:
        looks.append(log)
        try:
            real(log)
        except log.delta.exceptions.TableNotFoundError:
            if len(looks) == 1:
                subject.fill(path)
            raise

    monkeypatch.setattr(DeltaLog, "open", overtaken)
    assert subject.last(subject.open(path)) == 3


def test_rows_that_were_copied_into_a_new_table_are_written_on(
    subject: Subject, path: Path, tmp_path: Path
) -> None:
    """A copy has no transactions, and its entries count all the same."""
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    copy = tmp_path / "copy"
    DeltaStore(str(copy), subject.layout, {}).write(rows, [], {})
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
    monkeypatch.setattr(delta_store, "_COMPACT_EVERY", 1)
    subject.last(table)
    subject.maintain(table)
    assert "could not be tidied up: no space left" in caplog.text
    table.append(subject.entry(4))
    assert subject.last(subject.open(path)) == 4


@pytest.mark.parametrize("behind_s", [2_400, 90_000])
def test_whose_clock_is_ahead_of_the_store_vacuums_nothing_that_another_writes(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch, behind_s: int
) -> None:
    """The log names the file of a commit a moment after it is there."""
    ours, other = (DeltaStore(str(path), subject.layout, {}) for _ in range(2))
    assert ours.refresh()
    assert other.refresh()
    checkpoint, put = DeltaLog.checkpoint, other._put

    def checkpointed(log: DeltaLog) -> None:
        checkpoint(log)
        # By the clock of the store.
        for each in (*path.glob("*.parquet"), path / "_delta_log" / "_last_checkpoint"):
            os.utime(each, (time.time() - behind_s,) * 2)

    def put_beside(rows: Any) -> Any:
        action = put(rows)
        ours.tidy_up()
        return action

    monkeypatch.setattr(DeltaLog, "checkpoint", checkpointed)
    monkeypatch.setattr(other, "_put", put_beside)
    left = path / "part-left.parquet"
    left.write_bytes(b"what a writer that was killed has left")
    other.write(subject.rows_of(subject.entry(4)), [], {})
    assert ours.refresh()
    assert ours.greatest(subject.layout.order, {}) == 4
    assert left.exists()
    # In an hour it goes all the same.
    monkeypatch.undo()
    ours = DeltaStore(str(path), subject.layout, {})
    assert ours.refresh()
    os.utime(left, (time.time() - 3_601,) * 2)
    ours.tidy_up()
    assert not left.exists()


def test_what_was_vacuumed_while_its_writer_stood_still_is_written_once_more(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, now_s = DeltaStore(str(path), subject.layout, {}), time.time
    assert other.refresh()
    written = DeltaLog._written

    def late(log: DeltaLog, *given: Any) -> bytes:
        monkeypatch.setattr(DeltaLog, "_written", written)
        for each in path.glob("*.parquet"):
            os.utime(each, (now_s() - 2_000,) * 2)
        monkeypatch.setattr(time, "time", lambda: now_s() + 2_000)
        deltalake.DeltaTable(path).vacuum(dry_run=False, full=True)
        return written(log, *given)

    monkeypatch.setattr(DeltaLog, "_written", late)
    table = subject.open(path)
    subject.last(table)
    table.append(subject.entry(4))
    assert subject.last(subject.open(path)) == 4
    assert other.refresh()
    assert other.greatest(subject.layout.order, {}) == 4
