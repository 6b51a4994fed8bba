"""Writes to a table that failed, of which nobody knows whether they landed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.storage.conflict_retry import Entry, RetryingWriter
from keyrange.storage.delta_log import DeltaLog
from tables.commit_contract import condition
from tables.numbered_logs import Subject
from tables.racing_writers import Writes

pytestmark = pytest.mark.ordinary


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


def test_who_is_told_of_another_driver_behind_a_write_that_failed_says_that(
    subject: Subject,
) -> None:
    """The store is no reason to try again."""

    class Away:
        uri = "t"

        def write(self, *_: object) -> None:
            raise error(subject.layout.conditions.unwritable, "the store is away")

    entries = iter([Entry(pa.table({}), (), {})])

    def next_entry() -> Entry:
        for each in entries:
            return each
        raise error("COMMITS_FENCED", "another driver has begun")

    store: Any = Away()
    with pytest.raises(KeyrangeError) as raised:
        RetryingWriter(store, subject.layout.conditions, subject.noun).append(next_entry)
    assert condition(raised) == "COMMITS_FENCED"


def test_a_write_of_which_nothing_can_be_known_says_so(
    subject: Subject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = subject.open(path)
    subject.last(table)
    real = DeltaLog.append

    def is_away(*arguments: Any, **named: Any) -> None:
        raise OSError("the store is away")

    def lands_and_breaks(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        monkeypatch.setattr(deltalake, "DeltaTable", is_away)
        is_away()

    monkeypatch.setattr(DeltaLog, "append", lands_and_breaks)
    said = rf"the store is away .*; whether the {subject.noun} was written all the same cannot be"
    with pytest.raises(KeyrangeError, match=said) as raised:
        table.append(subject.entry(4))
    assert condition(raised) == subject.layout.conditions.unwritable
    monkeypatch.undo()
    table.append(subject.entry(4))
    assert list(subject.open(path).history()) == subject.entries(4)
