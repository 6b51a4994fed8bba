"""Rows of the commit table: what SQL sees, and what contradicts itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from commit_contract import EXTREMES, FLIGHTS, SOURCE, batch, condition, fence, state
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.blobs_for_sql import unnest_done, unnest_pending
from keyrange.individual_commits.table.commit_schema import SCHEMA, commits_of, rows_of
from keyrange.individual_commits.table.done_column import write_piece
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.ranges.model.query_ranges import EVERY
from keyrange.work.model.outcome import Cause

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
    seen = ("n_holes", "n_ranges", "oldest_hole", "deliveries_max", "commit_seq", "batch_id")
    assert [first[name] for name in seen] == [2, 1, 46, 5, 7, 5]
    assert [second[name] for name in seen] == [0, 0, None, 0, 7, 5]
    assert first["oldest_hole_at"].timestamp() == 300
    # Of a whole partition, and so once.
    assert (first["done_records"], first["dead"]) == (7, 3)
    assert (second["done_records"], second["dead"]) == (None, None)


def test_a_commit_without_partitions_is_one_row() -> None:
    [row] = rows_of(fence(1)).to_pylist()
    assert row["kind"] == "fence"
    assert row["topic"] is row["partition"] is row["done"] is None


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


def blob_of_other(rows: Rows) -> Rows:
    rows[0]["done"], rows[1]["done"] = rows[1]["done"], rows[0]["done"]
    return rows


def flipped(rows: Rows) -> Rows:
    rows[1]["done"] = rows[1]["done"][:-1] + b"?"
    return rows


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
    "no blob": changed("done", None, 1),
    "a blob of another row": blob_of_other,
    "a flipped bit": flipped,
    "all is done": changed("done", write_piece(KeyRangeState(SPACE, 1_200))),
    "another position": changed("position", 7),
    "a position below what was scanned": lambda rows: [row | {"position": 7} for row in rows],
    "another topic id": changed("topic_id", "other"),
    "a null position": lambda rows: [row | {"position": None} for row in rows],
    **{
        f"another {name}": changed(name, 5)
        for name in ("lo", "hi", "committed", "scanned", "n_holes", "n_ranges", "oldest_hole")
    },
    "another oldest_hole_at": changed("oldest_hole_at", 0),
    "another deliveries_max": changed("deliveries_max", 77),
    "no committed": changed("committed", None),
    "no lo": changed("lo", None),
    "other key ranges": changed("key_ranges", '{"flights": [[0, 5]]}', 1),
    "key ranges that cannot be": lambda rows: [row | {"key_ranges": "[" * 9_999} for row in rows],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_contradicts_itself_is_damage(damage: Callable[[Rows], Rows]) -> None:
    rows = rows_of(batch(2)).to_pylist()
    assert len(rows) == 3
    with pytest.raises(KeyrangeError) as raised:
        commits_of(pa.Table.from_pylist(damage(rows), SCHEMA), SOURCE)
    assert condition(raised) == "COMMITS_DAMAGED"


def test_a_kind_of_a_newer_version_is_said_to_be_one() -> None:
    rows = [row | {"kind": "split"} for row in rows_of(batch(2)).to_pylist()]
    with pytest.raises(KeyrangeError, match="split") as raised:
        commits_of(pa.Table.from_pylist(rows, SCHEMA), SOURCE)
    assert condition(raised) == "UNSUPPORTED_COMMITS"


def test_done_ranges_and_pending_records_are_rows_for_sql() -> None:
    causes = (Cause.REJECTED, Cause.HELD_BACK)
    pending = tuple(
        PendingRecord(offset, 3, at, 900_000, 400_000, causes[at])
        for at, offset in enumerate((45, 48))
    )
    pieces = (
        KeyRangeState(KeyRange(0, 10), 60, pending),
        KeyRangeState(KeyRange(10, HASH_MAX + 1), 60),
    )
    commits = (fence(1), batch(2, states={FLIGHTS: PartitionState("id", 61, pieces)}))
    table = pa.concat_tables([rows_of(each) for each in commits])
    kept = {"source_id": SOURCE, "group": "orders", "commit_seq": 2, "topic": "flights"}
    kept |= {"partition": 0, "lo": 0, "hi": 9}
    assert unnest_done(table).to_pylist() == [
        kept | {"from_offset": 46, "until_offset": 48},
        kept | {"from_offset": 49, "until_offset": 60},
    ]
    [first, second] = unnest_pending(table).to_pylist()
    assert first.pop("since").timestamp() == second.pop("since").timestamp() == 400
    assert first.pop("due").timestamp() == second.pop("due").timestamp() == 900
    assert first == kept | {"offset": 45, "key_hash": 3, "deliveries": 0, "cause": "rejected"}
    assert second == kept | {"offset": 48, "key_hash": 3, "deliveries": 1, "cause": "held_back"}


def test_nothing_explodes_to_no_rows() -> None:
    table = rows_of(fence(1))
    assert unnest_done(table).num_rows == unnest_pending(table).num_rows == 0
    assert unnest_pending(table).schema.names[-2:] == ["since", "due"]
