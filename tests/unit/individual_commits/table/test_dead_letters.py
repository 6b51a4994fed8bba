"""Dead letters: written once for each batch, found again, and marked when they are replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.dead_letters import (
    DeadLetter,
    DeadLetters,
    TimerLetter,
    open_dead_letters,
)
from keyrange.model.offsets import OFFSET_MAX, PARTITION_MAX
from keyrange.options.commits import CommitOptions
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.delta_store import DeltaStore
from keyrange.work.model.outcome import Cause
from tables.commit_contract import NOW_MS, condition


def letter(offset: int, batch_id: int = 3, **more: Any) -> DeadLetter:
    values: dict[str, Any] = {
        "group": "orders",
        "source_id": "5a1c",
        "query_id": "query",
        "topic": "flights",
        "topic_id": "t-1",
        "partition": 0,
        "key": b"N14228",
        "value": b"\x00\xff not text",
        "headers": (("trace", b"\x01"), ("empty", b""), ("none", None), ("trace", b"\x02")),
        "timestamp_ms": NOW_MS,
        "error": 'ValueError: it\'s "odd"\nline 2',
        "cause": Cause.TIMED_OUT,
        "attempts": 5,
        "first_at_ms": NOW_MS + 1,
        "last_at_ms": NOW_MS + 2,
        "written_at_ms": NOW_MS + 3,
    }
    return DeadLetter(offset=offset, batch_id=batch_id, **(values | more))


def timer(at_us: int, batch_id: int = 3, key: bytes = b"a") -> TimerLetter:
    return TimerLetter(
        group="orders",
        source_id="5a1c",
        query_id="query",
        batch_id=batch_id,
        topic="flights",
        topic_id="t-1",
        partition=0,
        key=key,
        timer_at_us=at_us,
        error="ValueError: no",
        frames=("flights.py, line 12, in gone",),
        cause=Cause.TIMED_OUT,
        attempts=5,
        last_at_ms=NOW_MS + 2,
        written_at_ms=NOW_MS,
    )


def open_at(path: Path) -> DeadLetters:
    return open_dead_letters(CommitOptions(dead_letter_table=str(path / "dead")))


def test_there_are_none_where_there_is_no_table(tmp_path: Path) -> None:
    letters = open_at(tmp_path)
    assert letters.read() == []
    letters.append("5a1c", 3, [], NOW_MS)
    letters.mark_replayed([], "ada", "flights", NOW_MS)
    letters.maintain()
    assert not (tmp_path / "dead").exists()


def test_a_dead_letter_comes_back_as_it_was(tmp_path: Path) -> None:
    written = [
        letter(OFFSET_MAX - 1, partition=PARTITION_MAX, topic="z"),
        letter(0, key=None, value=None, headers=(), cause=Cause.REJECTED, error=""),
        # Producers may write any time at all.
        letter(2**53 + 1, key=b"", value=b"", timestamp_ms=9_223_372_036_854_775),
        letter(7, timestamp_ms=-1),
    ]
    open_at(tmp_path).append("5a1c", 3, written, NOW_MS + 3)
    found = open_at(tmp_path).read()
    assert found == sorted(written, key=lambda each: (each.topic, each.partition, each.offset))
    assert {each.status for each in found} == {"dead"}


def test_a_batch_is_written_once(tmp_path: Path) -> None:
    for letters in (open_at(tmp_path), open_at(tmp_path)):
        letters.append("5a1c", 3, [letter(1), letter(2)], NOW_MS + 3)
        letters.append("5a1c", 3, [letter(1), letter(2)], NOW_MS + 9)
        letters.append("5a1c", 4, [letter(1, 4)], NOW_MS + 3)
        letters.append("5a1c", 3, [letter(1), letter(2)], NOW_MS + 9)
        # Another source counts batches of its own.
        letters.append("6b2d", 0, [letter(1, 0, source_id="6b2d")], NOW_MS + 3)
    found = open_at(tmp_path).read()
    assert sorted((each.source_id, each.batch_id, each.offset) for each in found) == [
        *(("5a1c", 3, 1), ("5a1c", 3, 2), ("5a1c", 4, 1), ("6b2d", 0, 1))
    ]


def test_a_letter_of_another_batch_is_refused(tmp_path: Path) -> None:
    for wrong in (letter(1, 4), letter(1, source_id="6b2d")):
        with pytest.raises(ValueError, match="batch 3 of source 5a1c"):
            open_at(tmp_path).append("5a1c", 3, [letter(0), wrong], NOW_MS)


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("batch", [0, 1])
def test_a_write_that_failed_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, lands: bool
) -> None:
    letters = open_at(tmp_path)
    for before in range(batch):
        letters.append("5a1c", before, [letter(1, before)], NOW_MS + 3)
    real = DeltaLog.append

    def fails(*arguments: Any, **named: Any) -> None:
        if lands:
            real(*arguments, **named)
        raise OSError("timed out")

    monkeypatch.setattr(DeltaLog, "append", fails)
    if lands:
        letters.append("5a1c", batch, [letter(2, batch)], NOW_MS + 3)
    else:
        with pytest.raises(KeyrangeError, match="timed out") as raised:
            letters.append("5a1c", batch, [letter(2, batch)], NOW_MS + 3)
        assert condition(raised) == "COMMITS_UNWRITABLE"
    monkeypatch.undo()
    letters.append("5a1c", batch, [letter(2, batch)], NOW_MS + 3)
    assert [each.offset for each in open_at(tmp_path).read()] == [1, 2][1 - batch :]


CHOICES: list[tuple[dict[str, Any], set[tuple[int, str, int, int]]]] = [
    ({}, {(0, "a", 0, 5), (0, "a", 1, 7), (0, "b", 0, 5), (1, "a", 0, 5), (1, "a", 0, 6)}),
    ({"topic": "b"}, {(0, "b", 0, 5)}),
    ({"topic": "a", "partition": 0}, {(0, "a", 0, 5), (1, "a", 0, 5), (1, "a", 0, 6)}),
    ({"offset": 6}, {(1, "a", 0, 6)}),
    ({"offset": 5, "topic": "a"}, {(0, "a", 0, 5), (1, "a", 0, 5)}),
    ({"source_id": "6b2d"}, set()),
    ({"replayed": True}, {(0, "a", 0, 5)}),
    ({"replayed": False, "offset": 5}, {(0, "b", 0, 5), (1, "a", 0, 5)}),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES, ids=[str(each) for each, _ in CHOICES])
def test_some_are_chosen(
    tmp_path: Path, choice: dict[str, Any], expected: set[tuple[int, str, int, int]]
) -> None:
    letters = open_at(tmp_path)
    first = [letter(5, 0, topic="a"), letter(7, 0, topic="a", partition=1), letter(5, 0, topic="b")]
    letters.append("5a1c", 0, first, NOW_MS)
    letters.append("5a1c", 1, [letter(5, 1, topic="a"), letter(6, 1, topic="a")], NOW_MS)
    letters.mark_replayed(first[:1], "ada", "", NOW_MS)
    found = open_at(tmp_path).read(**choice)
    assert {(e.batch_id, e.topic, e.partition, e.offset) for e in found} == expected


def test_who_replayed_a_letter_is_noted_beside_it(tmp_path: Path) -> None:
    letters = open_at(tmp_path)
    written = [letter(1), letter(2)]
    letters.append("5a1c", 3, written, NOW_MS + 3)
    for _ in range(2):
        open_at(tmp_path).mark_replayed(letters.read()[1:], "ada", "flights-again", NOW_MS + 9)
    replayed = replace(written[1], replayed_by="ada", replayed_to="flights-again")
    assert letters.read() == [written[0], replayed]
    assert [each.status for each in letters.read()] == ["dead", "replayed"]


def test_another_table_is_refused(tmp_path: Path) -> None:
    from keyrange.individual_commits.table.commit_table import open_commit_table
    from tables.commit_contract import fence

    commits = open_commit_table(CommitOptions(table=str(tmp_path / "dead")), "5a1c")
    commits.append(fence(1))
    for call in (
        lambda: open_at(tmp_path).read(),
        lambda: open_at(tmp_path).append("5a1c", 3, [letter(1)], NOW_MS),
        lambda: open_at(tmp_path).mark_replayed([letter(1)], "ada", "", NOW_MS),
    ):
        with pytest.raises(KeyrangeError, match="not one of keyrange's dead letters") as raised:
            call()
        assert condition(raised) == "FOREIGN_TABLE"


def test_timers_stand_beside_records_and_apart_from_them(tmp_path: Path) -> None:
    """Each once, also where the batch that gave them up runs again and gives up others."""
    letters = open_at(tmp_path)
    first, second, other = timer(7_000_001), timer(9_000_000), timer(7_000_001, key=b"b")
    letters.append("5a1c", 3, [letter(1), first], NOW_MS)
    letters.append("5a1c", 3, [first], NOW_MS)
    open_at(tmp_path).append("5a1c", 3, [first, second, other, letter(1)], NOW_MS)
    found = open_at(tmp_path)
    assert found.timers() == [first, other, second]
    assert found.timers(partition=1) == []
    assert [each.offset for each in found.read()] == [1]
    behind = found.behind(["5a1c"], lambda _: 2)
    assert {each.subject for each in behind} == {
        each.subject for each in (letter(1), first, second, other)
    }
    rows = DeltaTable(tmp_path / "dead").to_pyarrow_table().to_pylist()
    kinds = {(row["kind"], row["offset"] is None, row["timer_at"] is None) for row in rows}
    assert kinds == {("dead", False, True), ("timer", True, False)}


def test_a_batch_that_gave_up_timers_alone_is_known_when_its_transaction_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_at(tmp_path).append("5a1c", 3, [timer(7)], NOW_MS)
    monkeypatch.setattr(DeltaStore, "version_of", lambda *_: None)
    letters = open_at(tmp_path)
    assert letters._written("5a1c", "any") == 3
