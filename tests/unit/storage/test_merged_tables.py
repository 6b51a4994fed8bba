"""A table with keys: it holds the last row of each key, once for each batch, whoever comes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.storage.last_rows import CHANGE, last_of_partitions, last_rows
from keyrange.storage.merge_by_file import FileMerger
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.model.sink_driver import Driver, closed, is_closed, opened
from keyrange.storage.model.writer_rules import SPARK
from keyrange.storage.sink_table import SinkTable
from keyrange.storage.staged import Staged
from keyrange.work.outcome_rows import changed_rows, member_type
from tables.keyed_tables import FORM, KEPT, SCHEMA, KeyedTable, changes

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


@pytest.mark.parametrize("waiting_bytes", [1, 1 << 20])
def test_of_topics_that_share_state_the_row_stays_that_was_made_last(
    home: KeyedTable, waiting_bytes: int
) -> None:
    """Also where a task writes several files, and although its record is older."""
    writer = home.writer("plan", in_order=True, waiting_bytes=waiting_bytes)
    for made, (topic, minute, id, text) in enumerate(
        [("z", 50, 1, "first"), ("z", 40, 2, "stays"), ("b", 30, 1, "second"), ("a", 10, 1, "last")]
    ):
        output = pa.record_batch({"id": [id], "text": [text]}, schema=SCHEMA)
        told = changes([made], [text])
        told["topic"], told["row"] = pa.array([topic]), pa.array([made])
        told["timestamp_ms"] = pa.array([minute])
        writer.add(changed_rows(output, told))
    files = writer.finish()
    assert (len(files) > 1) == (waiting_bytes == 1)
    home.merge(1, Staged(str(home.staging), files, home.keys, FORM, home.partition_by))
    assert home.rows() == {1: "last", 2: "stays"}


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


def test_partitions_that_keys_say() -> None:
    assert Staged("", [], ("id",), FORM, (PartitionColumn("day", "id"),)).pruning == ["day"]


def test_an_empty_text_is_one_key_however_the_log_has_it(tmp_path: Path) -> None:
    """Of a partition column the log has no other value for it than null, as Spark writes it."""
    home = KeyedTable(tmp_path, keys=("id", "text"), by="text")
    there = pa.table({"id": [1, 2, 3], "text": [None, None, "c"]}, schema=SCHEMA)
    write_deltalake(home.table, there, partition_by=["text"])
    assert home.merge(0, home.staged((1, ""), (3, "c"), (4, ""))) == Merged(2, 1, 0)
    assert home.merge(1, home.staged((1, ""), (4, ""))) == Merged(2, 0, 0)
    assert {id: text or "" for id, text in home.rows().items()} == {1: "", 2: "", 3: "c", 4: ""}


@pytest.mark.parametrize(("kind", "fits"), [("char(5)", False), ("varchar(5)", True)])
def test_delta_does_not_merge_by_what_it_pads(home: KeyedTable, kind: str, fits: bool) -> None:
    own = {"__CHAR_VARCHAR_TYPE_STRING": kind}
    kinds = [pa.field("id", pa.int64()), pa.field("text", pa.string(), metadata=own)]
    DeltaTable.create(home.table, pa.schema(kinds))
    # A value may be padded.
    SinkTable(str(home.table), SCHEMA, {}, keys=("id",)).prepare(by=SPARK)
    with nullcontext() if fits else pytest.raises(KeyrangeError, match=r"text is char\(5\), and"):
        SinkTable(str(home.table), SCHEMA, {}, keys=("text",)).prepare(by=SPARK)


def test_of_two_drivers_one_merges(home: KeyedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, other, whole = home.sink(), home.sink(), FileMerger.write
    rivals = [home.staged((1, "rival"))]
    staged = home.staged((2, "own"))

    def late(self: FileMerger, *given: Any) -> Any:
        if rivals:
            home.merge(0, rivals.pop(), other)
        return whole(self, *given)

    monkeypatch.setattr(FileMerger, "write", late)
    assert home.merge(0, staged, sink) == NOTHING
    assert home.rows() == {1: "rival"}


def test_a_merge_that_landed_although_it_failed_is_recognised(
    home: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, staged = FileMerger.write, home.staged((1, "a"))

    def landing(self: FileMerger, *given: Any) -> Any:
        whole(self, *given)
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(FileMerger, "write", landing)
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
    with pytest.raises(KeyrangeError, match=r"VERDICT_DAMAGED.*is not written into the table yet"):
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
        "id": st.integers(0, 2),
        "topic": st.sampled_from(["t", "u"]),
        "partition": st.integers(0, 1),
        "timestamp_ms": st.integers(0, 3),
        "deleted": st.booleans(),
        "kept": st.none() | st.lists(st.sampled_from(["a", "b"]), unique=True),
    }
)
IN_THE_TABLE = "what the table has"


@settings(deadline=None)
@given(st.lists(ROW, max_size=20), st.integers(1, 3), st.integers(1, 4), st.randoms())
def test_the_last_row_is_that_of_kafkas_order_however_tasks_have_them(
    rows: list[dict[str, Any]], tasks: int, run: int, random: Any
) -> None:
    """An oracle of dictionaries beside it, with tasks that choose of their own rows before."""
    for number, row in enumerate(rows):
        row |= {"offset": number // 2, "row": number % 2, "a": f"a{number}", "b": f"b{number}"}
        row["kept"] = None if row["deleted"] else row["kept"]
    # The rows of a key and partition are in one task, and chosen of run by run.
    owners: dict[Any, int] = {}
    parts: list[pa.Table] = [table_of([]) for _ in range(tasks)]
    for first in range(0, len(rows), run):
        for task in range(tasks):
            own = [
                row
                for row in rows[first : first + run]
                if owners.setdefault(
                    (row["id"], row["topic"], row["partition"]), random.randrange(tasks)
                )
                == task
            ]
            both = pa.concat_tables([parts[task], table_of(own)])
            parts[task] = last_of_partitions(both, ["id"])
    random.shuffle(parts)
    found = last_rows(pa.concat_tables(parts), ["id"])
    assert {row["id"]: said(row) for row in found.to_pylist()} == last_by_dictionaries(rows)


def said(row: dict[str, Any]) -> tuple[Any, ...]:
    change = row[CHANGE]
    if change["deleted"]:
        return (change["offset"], change["row"], None, None)
    kept = change["kept"] or ()
    values = [IN_THE_TABLE if name in kept else row[name] for name in ("a", "b")]
    return (change["offset"], change["row"], *values)


def last_by_dictionaries(rows: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """Each key's rows one after the other, partition by partition."""
    by_partition: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        by_partition.setdefault((row["id"], row["topic"], row["partition"]), []).append(row)
    last: dict[int, tuple[Any, ...]] = {}
    for own in sorted(
        by_partition.values(),
        key=lambda own: (own[-1]["timestamp_ms"], own[-1]["topic"], own[-1]["partition"]),
    ):
        for row in own:
            before = last.get(row["id"])
            values = [row["a"], row["b"]]
            for at, name in enumerate(("a", "b")):
                if name in (row["kept"] or ()) and (before is None or before[2:] != (None, None)):
                    values[at] = IN_THE_TABLE if before is None else before[2 + at]
            values = [None, None] if row["deleted"] else values
            last[row["id"]] = (row["offset"], row["row"], *values)
    return last


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    change = member_type("change")
    told = [{name: row.get(name) for name in change.names} for row in rows]
    columns = {name: [row[name] for row in rows] for name in ("id", "a", "b")}
    kinds = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    return pa.table(columns, schema=kinds).append_column(CHANGE, pa.array(told, change))


def test_a_task_keeps_what_another_partition_may_need(home: KeyedTable) -> None:
    """A row that is not the last one of its key yet may be it behind a later one of the other."""
    writer, files = home.writer("plan-x"), []
    for at, (partition, time) in enumerate([(0, 3), (1, 2), (0, 1)]):
        output = pa.record_batch({"id": [7], "text": [f"{partition} at {time}"]}, schema=SCHEMA)
        place = {"partition": [partition], "timestamp_ms": [time]}
        writer.add(changed_rows(output, changes([at], ["said"]) | _arrays(place)))
        # The first two are in one file.
        files += writer.finish() if at else []
    home.merge(0, Staged(str(home.staging), files, home.keys, FORM))
    assert home.rows() == {7: "1 at 2"}


def _arrays(columns: dict[str, list[int]]) -> dict[str, pa.Array]:
    return {name: pa.array(values) for name, values in columns.items()}


def test_columns_that_a_row_leaves_as_they_are(home: KeyedTable) -> None:
    home.merge(0, home.staged((1, "a"), (2, "b"), (3, "c"), (4, "d")))
    rows = [(1, KEPT), (2, "new"), (2, KEPT), (3, None), (3, KEPT), (5, KEPT), (4, "e"), (4, "f")]
    assert home.merge(1, home.staged(*rows, files=2)) == Merged(4, 1, 0)
    assert home.rows() == {1: "a", 2: "new", 3: KEPT, 4: "f", 5: KEPT}
    home.merge(2, home.staged((1, KEPT), (5, "said")))
    assert home.rows() == {1: "a", 2: "new", 3: KEPT, 4: "f", 5: "said"}


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
