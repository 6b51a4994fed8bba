"""Rows of the commit table: what SQL sees, and what contradicts itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.commit_schema import SAME, SCHEMA, commits_of, rows_of
from keyrange.individual_commits.table.row_checksum import sealed
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.query_ranges import EVERY
from keyrange.model.timers import NextTimer
from keyrange.model.watermarks import BatchStart, PartitionTime, Watermark
from project.forms import everyday
from tables.commit_contract import EXTREMES, FLIGHTS, SOURCE, batch, condition, fence, state

Rows = list[dict[str, Any]]


def test_plain_columns_say_what_sql_is_to_see() -> None:
    pending = (
        PendingRecord(45, 3, 2, 900_000, 400_000),
        PendingRecord(46, 4, 5, 0, 300_000),
        PendingRecord(50, 3),
    )
    pieces = (
        KeyRangeState(KeyRange(0, 10), 60, pending[:2]),
        KeyRangeState(KeyRange(10, HASH_MAX + 1), 60),
    )
    commit = batch(7, states={FLIGHTS: PartitionState("id", 61, pieces)})
    first, second = rows_of(commit).to_pylist()
    seen = ("topic", "topic_id", "partition", "position", "lo", "hi", "committed", "scanned")
    assert [first[name] for name in seen] == ["flights", "id", 0, 61, 0, 9, 45, 60]
    assert [second[name] for name in seen] == ["flights", "id", 0, 61, 10, HASH_MAX, 60, 60]
    seen = (
        "pending_count",
        "n_ranges",
        "oldest_pending",
        "deliveries_max",
        "commit_seq",
        "batch_id",
    )
    assert [first[name] for name in seen] == [2, 1, 46, 5, 7, 5]
    assert [second[name] for name in seen] == [0, 0, None, 0, 7, 5]
    assert first["oldest_pending_at"].timestamp() == 300
    # Of a whole partition, and so once.
    assert (first["done_records"], first["dead"]) == (7, 3)
    assert (second["done_records"], second["dead"]) == (None, None)


def test_a_commit_without_partitions_is_one_row() -> None:
    [row] = rows_of(fence(1)).to_pylist()
    assert row["kind"] == "fence"
    assert row["topic"] is row["partition"] is row["pending"] is None


@pytest.mark.parametrize("milliseconds", [2**62, -(2**62), 253_402_300_800_000])
def test_what_is_no_time_is_not_written(milliseconds: int) -> None:
    pending = (PendingRecord(1, 1, since_ms=milliseconds),)
    states = {FLIGHTS: PartitionState("", 9, (KeyRangeState(SPACE, 9, pending),))}
    with pytest.raises(ValueError, match="are no time"):
        rows_of(batch(2, states=states))


def test_rows_come_back_in_any_order() -> None:
    other = TopicPartition("a", 3)
    ranges = {TopicPartition("flights", EVERY): (KeyRange(0, 6), KeyRange(9, 11))}
    commits = [
        fence(1),
        batch(2, states={FLIGHTS: EXTREMES, other: state(77)}, ownership=ranges),
        batch(3),
    ]
    rows = [row for each in commits for row in rows_of(each).to_pylist()]
    random.Random(4).shuffle(rows)
    assert commits_of(pa.Table.from_pylist(rows, SCHEMA), SOURCE) == commits
    newest = commits_of(pa.Table.from_pylist(rows, SCHEMA), SOURCE, newest_only=True)
    assert newest[2] == commits[2]
    assert set(newest[1].states) == {other}
    assert newest[0] == commits[0]


def changed(name: str, value: Any, row: int = 0) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        rows[row][name] = value
        return rows

    return change


def list_of_other(rows: Rows) -> Rows:
    rows[0]["pending"], rows[1]["pending"] = rows[1]["pending"], rows[0]["pending"]
    return rows


def record(**values: Any) -> Callable[[Rows], Rows]:
    """With other values in a pending record."""

    def change(rows: Rows) -> Rows:
        row = next(row for row in rows if row["pending"])
        row["pending"] = [row["pending"][0] | values, *row["pending"][1:]]
        return rows

    return change


DAMAGES: dict[str, Callable[[Rows], Rows]] = {
    "a row is there twice": lambda rows: [*rows, rows[1]],
    "a row is gone": lambda rows: rows[1:],
    "two commits of one number": lambda rows: [*rows, rows[0] | {"run_id": "run-2"}],
    "a fence of the same number": lambda rows: [*rows, *rows_of(fence(2)).to_pylist()],
    "a row of another run": changed("run_id", "run-2", 1),
    "a null in the commit": changed("run_id", None),
    "a null number": changed("commit_seq", None),
    "a number that cannot be": lambda rows: [row | {"commit_seq": 0} for row in rows],
    "a batch that cannot be": lambda rows: [row | {"batch_id": -2} for row in rows],
    "a null topic": changed("topic", None, 1),
    "all topics null": lambda rows: [row | {"topic": None} for row in rows],
    "a null partition": changed("partition", None, 1),
    "a partition below zero": lambda rows: [row | {"partition": -1} for row in rows],
    "no list": changed("pending", None, 1),
    "a list of another row": list_of_other,
    "all is done": lambda rows: [row | {"pending": []} for row in rows],
    "a pending record of another place": record(key_hash=HASH_MAX),
    "a pending record below zero": record(offset=-1),
    "a pending record that was not scanned": record(offset=2**62),
    "a pending record with fewer deliveries than none": record(deliveries=-1),
    "a cause that nobody knows": record(cause=77),
    "a pending record since no time": record(since_ms=2**62),
    "a pending record that is due at another time": record(due_ms=7),
    "a null in a pending record": record(due_ms=None),
    "another checksum": lambda rows: [row | {"checksum": 5} for row in rows],
    "another checksum in one row": changed("checksum", 5),
    "no checksum": changed("checksum", None),
    "another topic": lambda rows: [row | {"topic": "others"} for row in rows],
    "another partition": lambda rows: [row | {"partition": 77} for row in rows],
    "another leader epoch": lambda rows: [row | {"leader_epoch": 77} for row in rows],
    "another position": changed("position", 7),
    "a position below what was scanned": lambda rows: [row | {"position": 7} for row in rows],
    "another topic id": changed("topic_id", "other"),
    "a null position": lambda rows: [row | {"position": None} for row in rows],
    **{
        f"another {name}": changed(name, 5)
        for name in (
            "lo",
            "hi",
            "committed",
            "scanned",
            "pending_count",
            "n_ranges",
            "oldest_pending",
        )
    },
    "another oldest_pending_at": changed("oldest_pending_at", 0),
    "another deliveries_max": changed("deliveries_max", 77),
    "no committed": changed("committed", None),
    "no lo": changed("lo", None),
    "other key ranges": changed("key_ranges", '{"flights": [[0, 5]]}', 1),
    "key ranges that cannot be": lambda rows: [row | {"key_ranges": "[" * 9_999} for row in rows],
}


# What the checksum alone tells.
BY_CHECKSUM = {
    "a row is there twice",
    "a pending record that is due at another time",
    "another checksum",
    "another checksum in one row",
    "no checksum",
    "another topic",
    "another partition",
    "another leader epoch",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_was_changed_is_damage(damage: Callable[[Rows], Rows]) -> None:
    rows = rows_of(batch(2)).to_pylist()
    assert len(rows) == 3
    with pytest.raises(KeyrangeError) as raised:
        commits_of(pa.Table.from_pylist(damage(rows), SCHEMA), SOURCE)
    assert condition(raised) == "COMMITS_DAMAGED"


@pytest.mark.parametrize("name", sorted(DAMAGES.keys() - BY_CHECKSUM))
def test_what_contradicts_itself_is_damage_also_with_a_checksum(name: str) -> None:
    rows = DAMAGES[name](rows_of(batch(2)).to_pylist())
    with pytest.raises(KeyrangeError) as raised:
        commits_of(sealed(pa.Table.from_pylist(rows, SCHEMA), SAME), SOURCE)
    assert condition(raised) == "COMMITS_DAMAGED"
    assert "checksum" not in str(raised.value)


PAST = PartitionTime(
    Watermark(5_000_000, 7_000), (NextTimer(SPACE, 6_000_000, 8_000),), (BatchStart(40, 9),)
)
FULL = replace(
    batch(2),
    runs={FLIGHTS: (StateRun("s/a.parquet", (0, 1), SPACE, 1, 2, 1, 1, 0),)},
    times={FLIGHTS: PAST},
    ownership={TopicPartition("flights", EVERY): (KeyRange(0, 6),)},
)


def test_the_checksum_is_that_of_tables_that_are_there() -> None:
    [checksum] = rows_of(FULL).column("checksum").unique().to_pylist()
    assert checksum == 1_542_188_196


def others(value: Any, kind: pa.DataType) -> Iterator[Any]:
    """What a value of a column can become: each with one thing in it changed."""
    if value is None:
        yield from ([], [None]) if pa.types.is_list(kind) else pa.array([0]).cast(kind).to_pylist()
    elif pa.types.is_list(kind):
        yield value[:-1]
        yield [*value, *value[:1]]
        for at, each in enumerate(value):
            for other in others(each, kind.value_type):
                yield [*value[:at], other, *value[at + 1 :]]
    elif pa.types.is_struct(kind):
        yield None
        for field in kind:
            for other in others(value[field.name], field.type):
                yield value | {field.name: other}
    elif pa.types.is_string(kind):
        yield from (f"{value} ", None)
    elif pa.types.is_boolean(kind):
        yield from (not value, None)
    elif pa.types.is_timestamp(kind):
        yield from (value + timedelta(seconds=1), None)
    else:
        yield from (value ^ 1, None)


LATE = replace(FULL, times={FLIGHTS: replace(PAST, late=3)})


@pytest.mark.parametrize(
    "commit", everyday(LATE, FULL, fence(2, group_seq=7, driver="a", claim="{}"))
)
def test_nothing_of_a_commit_changes_without_being_noticed(commit: Commit) -> None:
    """Each value of each row, in that row alone and in all of them."""
    rows = rows_of(commit).to_pylist()
    assert commits_of(pa.Table.from_pylist(rows, SCHEMA), SOURCE) == [commit]
    for field in SCHEMA:
        for at, row in enumerate(rows):
            for value in others(row[field.name], field.type):
                one = [*rows[:at], row | {field.name: value}, *rows[at + 1 :]]
                for told in (one, [each | {field.name: value} for each in rows]):
                    with pytest.raises(KeyrangeError) as raised:
                        commits_of(pa.Table.from_pylist(told, SCHEMA), SOURCE)
                    assert condition(raised) == "COMMITS_DAMAGED", (field.name, value)


def test_a_wrong_checksum_names_table_source_and_commit() -> None:
    rows = [row | {"done_records": 8} for row in rows_of(batch(2)).to_pylist()]
    with pytest.raises(KeyrangeError, match="checksum") as raised:
        commits_of(pa.Table.from_pylist(rows, SCHEMA), SOURCE, uri="s3://a/commits")
    assert condition(raised) == "COMMITS_DAMAGED"
    assert f"(table=s3://a/commits, source_id={SOURCE}, commit_seq=2)" in str(raised.value)


def test_a_kind_of_a_newer_version_is_said_to_be_one() -> None:
    rows = [row | {"kind": "split"} for row in rows_of(batch(2)).to_pylist()]
    with pytest.raises(KeyrangeError, match="split") as raised:
        commits_of(sealed(pa.Table.from_pylist(rows, SCHEMA), SAME), SOURCE)
    assert condition(raised) == "UNSUPPORTED_COMMITS"
