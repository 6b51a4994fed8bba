"""A table with keys: it holds the last row of each key, once for each batch, whoever comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.storage.last_rows import CHANGE, last_rows
from keyrange.storage.merge_by_delta_rs import DeltaRsMerger
from keyrange.storage.merging import Staged
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.model.sink_driver import Driver, closed, is_closed, opened
from keyrange.work.outcome_rows import changed_rows
from tables.keyed_tables import FORM, SCHEMA, KeyedTable, changes

NOTHING = Merged()


@pytest.fixture
def home(tmp_path: Path) -> KeyedTable:
    return KeyedTable(tmp_path)


def test_it_holds_the_last_row_of_each_key(home: KeyedTable) -> None:
    assert home.merge(0, home.staged((1, "a"), (2, "b"), (1, "c"), (3, None))) == Merged(0, 2, 0)
    assert home.merge(1, home.staged((2, None), (1, "d"), (4, "e"), files=2)) == Merged(1, 1, 1)
    assert home.rows() == {1: "d", 4: "e"}
    # A batch that runs again is the same batch.
    assert home.merge(1, home.staged((9, "x"))) == NOTHING
    assert home.rows() == {1: "d", 4: "e"}
    assert DeltaTable(home.table).transaction_version("app") == 1


def test_a_batch_that_changes_nothing_is_in_the_log(home: KeyedTable) -> None:
    assert home.merge(0, home.staged((7, None))) == NOTHING
    assert home.merge(0, home.staged((7, "x"))) == NOTHING
    assert (home.rows(), DeltaTable(home.table).transaction_version("app")) == ({}, 0)
    assert home.merge(1, home.staged()) == NOTHING


def test_what_others_keep_in_the_table_stays(home: KeyedTable) -> None:
    more = pa.table({"id": [1, 5], "text": ["old", "kept"], "more": [10, 50]})
    write_deltalake(home.table, more)
    home.merge(0, home.staged((1, "new"), (2, "b")))
    rows = DeltaTable(home.table).to_pyarrow_table().to_pylist()
    found = {row["id"]: (row["text"], row["more"]) for row in rows}
    assert found == {1: ("new", 10), 2: ("b", None), 5: ("kept", 50)}


def test_a_row_moves_to_another_partition(tmp_path: Path) -> None:
    home = KeyedTable(tmp_path, by="text")
    home.merge(0, home.staged((1, "a'\\b"), (2, "b")))
    assert home.merge(1, home.staged((1, "c"), (2, None))) == Merged(1, 0, 1)
    assert home.rows() == {1: "c"}


def test_partitions_of_keys_are_a_predicate(tmp_path: Path) -> None:
    home = KeyedTable(tmp_path, keys=("id", "text"), by="text")
    home.merge(0, home.staged((1, "a'\\b"), (2, "b"), (3, "c")))
    home.merge(1, home.staged((1, "a'\\b"), (2, "b"), (4, "b")))
    [last] = DeltaTable(home.table).history(1)
    assert "'a''\\b'" in last["operationParameters"]["mergePredicate"]
    assert "BETWEEN" in last["operationParameters"]["mergePredicate"] or ">= 1" in str(last)
    assert home.rows() == {1: "a'\\b", 2: "b", 3: "c", 4: "b"}
    assert Staged("", [], ("id",), FORM, (PartitionColumn("day", "id"),)).pruning == ["day"]


def test_of_two_drivers_one_merges(home: KeyedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, other, whole = home.sink(), home.sink(), DeltaRsMerger.merge
    rivals = [home.staged((1, "rival"))]
    staged = home.staged((2, "own"))

    def late(self: DeltaRsMerger, *given: Any) -> Any:
        if rivals:
            home.merge(0, rivals.pop(), other)
        return whole(self, *given)

    monkeypatch.setattr(DeltaRsMerger, "merge", late)
    assert home.merge(0, staged, sink) == NOTHING
    assert home.rows() == {1: "rival"}


def test_a_merge_that_landed_although_it_failed_is_recognised(
    home: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, staged = DeltaRsMerger.merge, home.staged((1, "a"))

    def landing(self: DeltaRsMerger, *given: Any) -> Any:
        whole(self, *given)
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaRsMerger, "merge", landing)
        home.merge(0, staged)
    assert home.merge(0, staged) == NOTHING
    assert home.rows() == {1: "a"}


def test_a_driver_that_is_late_merges_nothing(home: KeyedTable) -> None:
    """Spark's Delta knows the batch's own transaction alone: so that one is closed."""
    old, new = (
        Driver("old", 1),
        Driver("new", 2, frozenset({"old"}), {"app": 0}, frozenset({"app"})),
    )
    home.merge(0, home.staged((1, "a")), driver=old)
    late, staged = home.sink(), home.staged((1, "late"))
    home.sink().stop_others(new)
    version = DeltaTable(home.table).transaction_version("app")
    assert (is_closed(version), opened(version)) == (True, 0)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        home.merge(1, staged, late, driver=old)
    # Whoever knows no drivers finds all batches written.
    assert home.merge(0, staged) == NOTHING
    # The new one has ended before it did anything, and the old one is the driver again.
    assert home.merge(0, staged, driver=Driver("old", 3)) == NOTHING
    assert home.merge(1, staged, driver=Driver("old", 3)) == Merged(1, 0, 0)
    assert DeltaTable(home.table).transaction_version("app") == 1
    assert home.rows() == {1: "late"}


def test_a_driver_does_not_stop_one_whose_batch_is_not_committed(home: KeyedTable) -> None:
    home.merge(1, home.staged((1, "a")), driver=Driver("old", 1))
    new = Driver("new", 2, frozenset({"old"}), {"app": 0}, frozenset({"app"}))
    for _ in range(2):
        with pytest.raises(KeyrangeError, match="UNCOMMITTED_OUTPUT"):
            home.sink().stop_others(new)


@given(st.none() | st.integers(0, 10**9))
def test_what_was_closed_is_opened_where_it_was(version: int | None) -> None:
    assert not is_closed(version)
    assert is_closed(closed(version))
    assert opened(closed(closed(version))) == opened(version) == version


def test_files_that_are_gone(home: KeyedTable) -> None:
    staged = home.staged((1, "a"))
    (home.staging / staged.files[0].name).unlink()
    with pytest.raises(KeyrangeError, match=r"VERDICT_DAMAGED.*is not merged into the table yet"):
        home.merge(0, staged)


def test_columns_come_with_the_rows_that_have_them(home: KeyedTable) -> None:
    write_deltalake(home.table, pa.table({"id": [1]}))
    with pytest.raises(KeyrangeError, match="no column text"):
        home.sink()
    home.merge(0, home.staged((1, "a"), (2, "b")), home.sink(evolves=True))
    assert home.rows() == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"delta.appendOnly": "true"}, "appendOnly forbids")],
)
def test_tables_that_rows_are_not_merged_into(
    home: KeyedTable, settings: dict[str, str], text: str
) -> None:
    DeltaTable.create(home.table, SCHEMA, configuration=settings)
    with pytest.raises(KeyrangeError, match=rf"SINK_UNSUITABLE.*{text}"):
        home.sink()


ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "topic": st.sampled_from(["t", "u"]),
        "partition": st.integers(0, 1),
        "row": st.integers(0, 2),
        "timestamp_ms": st.integers(0, 3),
        "deleted": st.booleans(),
    }
)


@settings(deadline=None)
@given(st.lists(ROW, max_size=20), st.integers(1, 3), st.randoms())
def test_the_last_row_is_that_of_kafkas_order_however_tasks_have_them(
    rows: list[dict[str, Any]], tasks: int, random: Any
) -> None:
    """An oracle of dictionaries beside it, with tasks that choose of their own rows before."""
    for offset, row in enumerate(rows):
        row["offset"] = offset // 2
        row["row"] = offset % 2
    by_partition: dict[Any, dict[str, Any]] = {}
    for row in rows:
        by_partition[row["id"], row["topic"], row["partition"]] = row
    last: dict[int, dict[str, Any]] = {}
    for row in sorted(
        by_partition.values(), key=lambda row: (row["timestamp_ms"], row["topic"], row["partition"])
    ):
        last[row["id"]] = row
    shuffled = [*rows]
    random.shuffle(shuffled)
    parts = [last_rows(table_of(shuffled[n::tasks]), ["id"]) for n in range(tasks)]
    found = last_rows(pa.concat_tables(parts), ["id"]).to_pylist()
    assert {each["id"]: each[CHANGE]["offset"] * 2 + each[CHANGE]["row"] for each in found} == {
        id: row["offset"] * 2 + row["row"] for id, row in last.items()
    }


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    change = pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("row", pa.int64()),
            ("timestamp_ms", pa.int64()),
            ("deleted", pa.bool_()),
        ]
    )
    told = [{name: each for name, each in row.items() if name != "id"} for row in rows]
    ids = pa.array([row["id"] for row in rows], pa.int64())
    return pa.table({"id": ids, CHANGE: pa.array(told, change)})


def test_rows_that_do_not_wait_in_memory_are_chosen_by_who_merges(tmp_path: Path) -> None:
    home = KeyedTable(tmp_path)
    writer = home.writer("plan-x", waiting_bytes=2_000)
    for n in range(100):
        texts: list[str | None] = [f"{n}"] * 3
        output = pa.record_batch({"id": [n % 7, 100 + n, 7], "text": texts}, schema=SCHEMA)
        writer.add(changed_rows(output, changes([3 * n, 3 * n + 1, 3 * n + 2], texts)))
    files = writer.finish()
    assert len(files) > 2
    assert 108 < sum(each.rows for each in files) < 300
    staged = Staged(str(home.staging), files, home.keys, FORM)
    home.merge(0, staged)
    own = {n % 7: f"{n}" for n in range(100)} | {100 + n: f"{n}" for n in range(100)}
    assert home.rows() == own | {7: "99"}
