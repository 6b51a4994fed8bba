"""A merge in the driver: what it leaves alone, and which rows of a table it takes for which."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.storage import merge_by_file
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.directory import Directory
from keyrange.storage.key_rows import KeyRows
from keyrange.storage.merge_by_file import FileMerger
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.staged import Staged
from tables.keyed_tables import SCHEMA, KeyedTable
from tables.spark_files import table_of_spark

EARLY, LATE = datetime(1, 1, 1, 2, 3, 4, 5, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)


@pytest.fixture
def home(tmp_path: Path) -> KeyedTable:
    return KeyedTable(tmp_path)


def test_times_of_sparks_files_stay_as_they_are(home: KeyedTable) -> None:
    """Before 1677 and after 2262 they are beyond 64 bits of nanoseconds."""
    kinds = {
        "id": pa.int64(),
        "text": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "more": pa.list_(pa.struct([("until", pa.timestamp("us", "UTC"))])),
    }
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "text": ["a", "b", "c"],
            "at": [EARLY, LATE, None],
            "more": [[{"until": LATE}, None], None, []],
        },
        schema=pa.schema(list(kinds.items())),
    )
    table_of_spark(home.table, rows)
    assert home.merge(0, home.staged((2, "new"), (3, None))) == Merged(1, 0, 1)
    [path] = DeltaTable(home.table).file_uris()
    found = {row["id"]: row for row in pq.read_table(path).to_pylist()}
    first, second, _ = rows.to_pylist()
    assert found == {1: first, 2: {**second, "text": "new"}}


@pytest.mark.parametrize(
    "footer",
    [{"org.apache.spark.legacyINT96": ""}, {"org.apache.spark.version": "2.4.8"}],
)
def test_days_of_another_calendar_are_not_written_anew(
    home: KeyedTable, footer: dict[str, str]
) -> None:
    kinds = pa.schema([*SCHEMA, ("at", pa.timestamp("us", "UTC"))])
    table_of_spark(
        home.table, pa.table({"id": [1], "text": ["a"], "at": [EARLY]}, schema=kinds), footer
    )
    text = r"SINK_UNSUITABLE.* days of the calendar before 1582: a query .* in a session with Delta"
    with pytest.raises(KeyrangeError, match=text):
        home.merge(0, home.staged((1, "new")))
    assert DeltaTable(home.table).version() == 0


class Last(FileMerger):
    """Who has to write what others do not; columns come with the rows."""

    evolves = True

    def __init__(self) -> None:
        super().__init__()
        self.evolved: list[bool] = []

    def write(self, log: DeltaLog, staged: Staged) -> Merged:
        self.evolved.append(staged.evolves)
        return Merged() if staged.evolves else super().write(log, staged)


def test_a_store_is_asked_for_several_files_at_a_time(
    home: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        home.merge(number, home.staged((number, "a")))
    together, read = threading.Barrier(4, timeout=5), pq.ParquetFile.read

    def met(file: pq.ParquetFile, names: list[str]) -> pa.Table:
        # One has a key of the batch, and is read once more.
        if len(here) < 4:
            here.append(names)
            together.wait()
        return read(file, names)

    here: list[list[str]] = []
    monkeypatch.setattr(pq.ParquetFile, "read", met)
    monkeypatch.setattr(Directory, "is_local", False)
    assert home.merge(4, home.staged((0, "b"), (7, "c"))) == Merged(1, 1, 0)
    monkeypatch.undo()
    assert home.rows() == {0: "b", 1: "a", 2: "a", 3: "a", 7: "c"}


def test_what_is_too_much_for_it_is_for_the_next_writer(home: KeyedTable) -> None:
    home.merge(0, home.staged((1, "a")))
    last = Last()
    for batch_id, (bytes_max, evolved) in enumerate([(10**6, []), (100, [False])], 1):
        staged = home.staged((1, f"{batch_id}"))
        home.sink().write(staged, [FileMerger(bytes_max), last], "app", batch_id, True)
        assert (last.evolved, home.rows()) == (evolved, {1: f"{batch_id}"})
    # So is a table that is to get columns.
    write_deltalake(home.table, pa.table({"id": [5]}), mode="overwrite", schema_mode="overwrite")
    writers = [FileMerger(10**6), last]
    home.sink(evolves=True).write(home.staged((1, "x")), writers, "app", 3, True)
    assert last.evolved == [False, True]


@contextmanager
def files_read() -> Iterator[list[str]]:
    read: list[str] = []
    whole = pq.ParquetFile.__init__

    def opening(self: Any, source: Any, **given: Any) -> None:
        read.append(str(source))
        whole(self, source, **given)

    with patch.object(merge_by_file.pq.ParquetFile, "__init__", opening):
        yield read


def test_a_column_with_a_point_stands_beside_a_struct_of_that_name(tmp_path: Path) -> None:
    """Statistics by flattened names are of either."""
    status = pa.struct([("status", pa.int64())])
    schema = pa.schema([("http.status", pa.int64()), ("http", status)])
    home = KeyedTable(tmp_path, ("http.status",))
    field = {"name": "status", "type": "long", "nullable": True, "metadata": {}}
    kinds: list[Any] = ["long", {"type": "struct", "fields": [field]}]
    for batch, (updated, inserted) in enumerate([(0, 1), (1, 0)]):
        rows = pa.record_batch({"http.status": [5], "http": [{"status": batch}]}, schema=schema)
        made = home.merge(batch, home.staged_as(rows, kinds), home.sink(schema))
        assert made == Merged(updated, inserted, 0)
    [row] = DeltaTable(home.table).to_pyarrow_table().to_pylist()
    assert row == {"http.status": 5, "http": {"status": 1}}


def test_only_files_that_have_a_key_are_written_anew(tmp_path: Path) -> None:
    home = KeyedTable(tmp_path, keys=("id", "text"), by="text")
    for batch_id, rows in enumerate([((1, "a é%/x"), (2, "b")), ((3, "b"),), ((9, "b"),)]):
        home.merge(batch_id, home.staged(*rows))
    before = {*DeltaTable(home.table).file_uris()}
    with files_read() as read:
        assert home.merge(3, home.staged((1, "a é%/x"), (4, "a é%/x"))) == Merged(1, 1, 0)
    # Not of another partition.
    assert len(read) == 1
    after = {*DeltaTable(home.table).file_uris()}
    assert len(before - after) == 1
    with files_read() as read:
        home.merge(4, home.staged((3, "b")))
    # Not with greater ids alone, or lesser ones.
    assert len(read) == 1
    assert len({*DeltaTable(home.table).file_uris()} & after) == 3
    assert home.rows() == {1: "a é%/x", 2: "b", 3: "b", 4: "a é%/x", 9: "b"}


def test_what_another_writer_appends_meanwhile_is_merged_too(home: KeyedTable) -> None:
    whole, rivals = merge_by_file._Merge.actions, [pa.table({"id": [1], "text": ["old"]})]

    def actions(self: Any, files: Any) -> Any:
        if rivals:
            write_deltalake(home.table, rivals.pop(), mode="append")
        return whole(self, files)

    home.merge(0, home.staged((2, "b")))
    with patch.object(merge_by_file._Merge, "actions", actions):
        assert home.merge(1, home.staged((1, "new"))) == Merged(1, 0, 0)
    assert home.rows() == {1: "new", 2: "b"}


def row_of(id: int) -> pa.Table:
    return pa.table({"id": [id], "text": ["theirs"]}, schema=SCHEMA)


@pytest.mark.parametrize(
    ("rival", "rows", "merges"),
    [
        # Who appends all the time lets a merge come between.
        (lambda table, n: write_deltalake(table, row_of(100 + n), mode="append"), 15, 1),
        # The batch inserts it, or changes it.
        (lambda table, n: write_deltalake(table, row_of(2 - n), mode="append"), 2, 3),
        (lambda table, n: DeltaTable(table).delete("id = 1"), 1, 2),
        (lambda table, n: DeltaTable(table).optimize.compact(), 1, 2),
        (lambda table, n: write_deltalake(table, row_of(7), mode="overwrite"), 1, 2),
    ],
)
def test_a_merge_is_behind_all_that_others_write_meanwhile(
    home: KeyedTable, rival: Callable[[Path, int], object], rows: int, merges: int
) -> None:
    home.merge(0, home.staged((0, "a")))
    home.merge(1, home.staged((1, "a")))
    staged, whole, made = home.staged((1, "new"), (2, "new")), merge_by_file._Merge.actions, []
    once, rivals = Directory.write_once, iter(range(rows))

    def actions(self: Any, files: Any) -> Any:
        made.append(files)
        return whole(self, files)

    def write_once(self: Directory, path: str, data: bytes) -> str | None:
        for n in rivals:
            rival(home.table, n)
            break
        return once(self, path, data)

    with (
        patch.object(merge_by_file._Merge, "actions", actions),
        patch.object(Directory, "write_once", write_once),
    ):
        home.merge(2, staged)
    assert len(made) == merges
    found = DeltaTable(home.table).to_pyarrow_table().to_pylist()
    texts = {(each["id"], each["text"]) for each in found if each["id"] in (1, 2)}
    assert texts == {(1, "new"), (2, "new")}


def test_a_table_that_is_made_again_meanwhile_stays_whole(home: KeyedTable) -> None:
    """An entry of the old one's next version would leave a gap in its log."""
    whole = merge_by_file._Merge._insert

    def insert(self: Any) -> None:
        shutil.rmtree(home.table)
        write_deltalake(home.table, pa.table({"id": [5], "text": ["other"]}))
        whole(self)

    for batch_id in range(3):
        home.merge(batch_id, home.staged((batch_id, "a")))
    with (
        patch.object(merge_by_file._Merge, "_insert", insert),
        pytest.raises(KeyrangeError, match="OTHER_TABLE"),
    ):
        home.merge(3, home.staged((3, "a")))
    assert home.rows() == {5: "other"}


def test_a_row_group_at_a_time_and_columns_that_files_lack(home: KeyedTable) -> None:
    ids = list(range(100))
    groups = WriterProperties(max_row_group_size=7)
    write_deltalake(home.table, pa.table({"id": ids}), writer_properties=groups)
    more = pa.table({"id": [200], "text": ["t"], "n": [7]})
    write_deltalake(home.table, more, mode="append", schema_mode="merge")
    some = [(id, f"{id}") for id in range(0, 100, 3)]
    assert home.merge(0, home.staged(*some, (99, None), (200, "u"))) == Merged(34, 0, 1)
    found = DeltaTable(home.table).to_pyarrow_table().to_pylist()
    by_id = {each["id"]: (each["text"], each["n"]) for each in found}
    own = {id: (f"{id}" if id % 3 == 0 else None, None) for id in range(99)}
    assert by_id == own | {200: ("u", 7)}


def test_a_change_feed_tells_what_became_of_rows(home: KeyedTable) -> None:
    DeltaTable.create(home.table, SCHEMA, configuration={"delta.enableChangeDataFeed": "true"})
    home.merge(0, home.staged((1, "a"), (2, "b"), (3, "c")))
    home.merge(1, home.staged((1, "x"), (2, None), (4, "d")))
    feed = pa.table(DeltaTable(home.table).load_cdf(starting_version=2).read_all())
    rows = feed.select(["id", "text", "_change_type"]).to_pylist()
    assert sorted(tuple(each.values()) for each in rows) == [
        (1, "a", "update_preimage"),
        (1, "x", "update_postimage"),
        (2, "b", "delete"),
        (4, "d", "insert"),
    ]
    assert home.rows() == {1: "x", 3: "c", 4: "d"}


@pytest.mark.parametrize(
    "row",
    [
        {"ID": 1, "text": "a", "more": {"n": 7}},
        {"id": 1, "text": "a", "More": {"n": 7}},
        {"id": 1, "text": "a", "more": {"N": 7}},
    ],
)
def test_files_with_names_in_another_case(home: KeyedTable, row: dict[str, Any]) -> None:
    """Of files that it converts Spark takes the columns in any case."""
    write_deltalake(home.table, pa.table({"id": [1], "text": ["a"], "more": [{"n": 7}]}))
    [path] = DeltaTable(home.table).file_uris()
    pq.write_table(pa.Table.from_pylist([row]), path)
    with pytest.raises(KeyrangeError, match=r"SINK_UNSUITABLE.* differ from its own in their case"):
        home.merge(0, home.staged((1, "new")))
    assert DeltaTable(home.table).version() == 0


def test_files_that_lie_elsewhere(home: KeyedTable) -> None:
    """A shallow clone names those of another table."""
    home.merge(0, home.staged((1, "a")))
    path = home.table / "_delta_log" / f"{1:020d}.json"
    [name] = [Path(each).name for each in DeltaTable(home.table).file_uris()]
    path.write_text(path.read_text().replace(name, f"file:///elsewhere/{name}"))
    with pytest.raises(KeyrangeError, match=r"SINK_UNSUITABLE.*file:///elsewhere.*not lie below"):
        home.merge(1, home.staged((1, "b")))


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(0, 3),
    pa.string(): st.sampled_from(["", "a", "b", "é"]),
    pa.binary(): st.sampled_from([b"", b"a", b"\x00"]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.sampled_from([date(1, 1, 1), date(2020, 2, 2)]),
    pa.decimal128(20, 2): st.sampled_from([Decimal("1.50"), Decimal("-1.50")]),
    pa.timestamp("us", "UTC"): st.sampled_from([EARLY, LATE]),
}


@given(st.data())
def test_rows_by_their_keys(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3))
    key = st.tuples(*(VALUES[each] for each in kinds))
    own = data.draw(st.lists(key, unique=True, max_size=8))
    others = data.draw(st.lists(st.tuples(*(st.none() | VALUES[each] for each in kinds))))
    columns, asked = (
        [
            pa.chunked_array([pa.array([row[at] for row in rows], kind)])
            for at, kind in enumerate(kinds)
        ]
        for rows in (own, others)
    )
    by_key = {row: at for at, row in enumerate(own)}
    assert KeyRows(columns).rows_of(asked).tolist() == [by_key.get(row, -1) for row in others]


def test_rows_of_a_narrower_type(home: KeyedTable) -> None:
    """Files from before a column was widened."""
    write_deltalake(home.table, pa.table({"id": [1, 2], "text": ["a", "b"]}, schema=SCHEMA))
    [path] = [Path(each) for each in DeltaTable(home.table).file_uris()]
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "text": ["a", "b"]}), path)
    assert home.merge(0, home.staged((2, "c"))) == Merged(1, 0, 0)
    assert home.rows() == {1: "a", 2: "c"}


def test_texts_that_are_no_utf_8(home: KeyedTable) -> None:
    """Of bytes Spark casts any to a text."""
    ends = pa.py_buffer(np.array([0, 2, 3], np.int32))
    texts = pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"\xff\xfeb"))
    write_deltalake(home.table, pa.table({"id": [1, 2], "text": ["a", "b"]}, schema=SCHEMA))
    [path] = [Path(each) for each in DeltaTable(home.table).file_uris()]
    pq.write_table(pa.Table.from_arrays([pa.array([1, 2]), texts], schema=SCHEMA), path)
    assert home.merge(0, home.staged((2, "new"))) == Merged(1, 0, 0)
    [path] = [Path(each) for each in DeltaTable(home.table).file_uris()]
    kept = pq.read_table(path).column("text").cast(pa.binary())
    assert set(kept.to_pylist()) == {b"\xff\xfe", b"new"}


def test_days_of_partitions_that_python_does_not_have(tmp_path: Path) -> None:
    home = KeyedTable(tmp_path, keys=("id", "day"), by="day")
    days = pa.array([0, 2**22, -(2**21)], pa.int32()).cast(pa.date32())
    rows = pa.record_batch({"id": [1, 1, 1], "day": days})
    told = [
        home.merge(batch_id, home.staged_as(rows, ["long", "date"]), home.sink(rows.schema))
        for batch_id in range(2)
    ]
    assert told == [Merged(0, 3, 0), Merged(3, 0, 0)]
