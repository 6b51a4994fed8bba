"""Columns that a table lacks: they come with the files that have them, or nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.storage.data_files import DataFile, DataFileWriter
from keyrange.storage.model.table_columns import Comparison, TableRules
from keyrange.storage.sink_table import SinkTable

NARROW = pa.schema([("at", pa.int64())])
WIDE = pa.schema([("at", pa.int64()), ("price", pa.float64())])
WIDENS = {"delta.enableTypeWidening": "true"}


def written(table: Path, schema: pa.Schema, *rows: dict[str, Any]) -> list[DataFile]:
    writer = DataFileWriter(str(table), schema)
    writer.add(pa.RecordBatch.from_pylist(list(rows), schema))
    return writer.finish()


def evolving(table: Path, schema: pa.Schema, evolves: bool = True) -> SinkTable:
    sink = SinkTable(str(table), schema, {}, evolves=evolves)
    sink.prepare()
    return sink


def rows_of(table: Path) -> list[dict[str, Any]]:
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def selected(table: Path, query: str) -> list[dict[str, Any]]:
    found = QueryBuilder().register("t", DeltaTable(table)).execute(query)
    return pa.table(found).to_pylist()


def refused(text: str) -> Any:
    return pytest.raises(KeyrangeError, match=rf"\[SINK_(UNSUITABLE|TYPES_DIFFER)\].*{text}")


def log_of(table: Path, version: int) -> list[dict[str, Any]]:
    text = (table / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def widening_table(table: Path, schema: pa.Schema) -> None:
    """As Spark makes one: delta-rs does not set the feature of the property."""
    DeltaTable.create(table, schema)
    about = next(each for each in log_of(table, 0) if "metaData" in each)
    about["metaData"]["configuration"] = WIDENS
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    lines = [{"commitInfo": {"timestamp": 1, "operation": "SET"}}, protocol, about]
    path = table / "_delta_log" / f"{1:020d}.json"
    path.write_text("\n".join(map(json.dumps, lines)))


def test_a_column_comes_in_the_transaction_of_its_first_files(tmp_path: Path) -> None:
    table = tmp_path / "t"
    evolving(table, NARROW).append(written(table, NARROW, {"at": 1}), "app", 0, False)
    sink = evolving(table, WIDE)
    before = DeltaTable(table)
    sink.append([], "app", 1, check_files=False)
    assert before.version() == DeltaTable(table).version() == 1
    sink.append(written(table, WIDE, {"at": 2, "price": 0.5}), "app", 2, check_files=False)
    kinds = [next(iter(each)) for each in log_of(table, 2)]
    assert kinds == ["commitInfo", "txn", "metaData", "add"]
    assert DeltaTable(table).metadata().id == before.metadata().id
    # Who reads the version before finds the rows and columns of it.
    assert before.to_pyarrow_table().to_pylist() == [{"at": 1}]
    assert rows_of(table) == [{"at": 1, "price": None}, {"at": 2, "price": 0.5}]
    # It stays open over the change, and a field that is gone is null.
    sink.append(written(table, WIDE, {"at": 3, "price": 1.5}), "app", 3, check_files=False)
    evolving(table, NARROW).append(written(table, NARROW, {"at": 4}), "app", 4, False)
    assert [each["price"] for each in rows_of(table)] == [None, 0.5, 1.5, None]


def test_without_it_the_statement_is_named_that_adds_them(tmp_path: Path) -> None:
    table = tmp_path / "t"
    nested = pa.struct([("x", pa.int32())])
    evolving(table, pa.schema([("at", pa.int64()), ("s", nested)]))
    more = pa.struct([("x", pa.int32()), ("a b", pa.list_(pa.decimal128(9, 2)))])
    schema = pa.schema([("at", pa.int64()), ("s", pa.struct([("x", pa.int32()), ("y", more)]))])
    with refused("column s.y cannot be added: .* no name 'a b'"):
        evolving(table, schema)
    schema = pa.schema(
        [*NARROW, ("s", pa.struct([("x", pa.int32()), ("y", pa.int8())])), ("n", pa.string())]
    )
    with refused(
        rf"no column s.y, n: ALTER TABLE delta.`{table}` ADD COLUMNS \(s.y TINYINT, n STR"
    ):
        evolving(table, schema, evolves=False)


def test_nested_fields_are_added_where_they_are(tmp_path: Path) -> None:
    table = tmp_path / "t"

    def schema(*more: tuple[str, pa.DataType]) -> pa.Schema:
        struct = pa.struct([("x", pa.int32()), *more])
        return pa.schema(
            [("s", struct), ("l", pa.list_(struct)), ("m", pa.map_(pa.string(), struct))]
        )

    def row(value: dict[str, Any]) -> dict[str, Any]:
        return {"s": value, "l": [value], "m": [("k", value)]}

    old, new = schema(), schema(("y", pa.string()))
    evolving(table, old).append(written(table, old, row({"x": 1})), "app", 0, check_files=False)
    evolving(table, new).append(
        written(table, new, row({"x": 2, "y": "b"})), "app", 1, check_files=False
    )
    # A field that the output lacks by now is null in a struct too.
    evolving(table, old).append(written(table, old, row({"x": 3})), "app", 2, check_files=False)
    found = selected(table, "SELECT s, l FROM t ORDER BY s['x']")
    expected = [{"x": 1, "y": None}, {"x": 2, "y": "b"}, {"x": 3, "y": None}]
    assert found == [{"s": each, "l": [each]} for each in expected]


@pytest.mark.parametrize(
    ("there", "rows", "text"),
    [
        (pa.int64(), pa.int32(), "column c is BIGINT and would be INT"),
        (pa.int32(), pa.int64(), "c is INT and would be BIGINT; ALTER .*enableTypeWidening"),
        (pa.int32(), pa.float64(), "column c is INT and would be DOUBLE"),
        (pa.string(), pa.list_(pa.string()), "column c is STRING and would be ARRAY<STRING>"),
        (
            pa.map_(pa.struct([("a", pa.int32())]), pa.int32()),
            pa.map_(pa.struct([("a", pa.int32()), ("b", pa.int32())]), pa.int32()),
            "column c is MAP",
        ),
        (pa.struct([("X", pa.int32())]), pa.struct([("x", pa.int32())]), "c.X would be c.x: D"),
    ],
    ids=str,
)
def test_what_no_table_can_become_is_refused_before_anything_is_written(
    tmp_path: Path, there: pa.DataType, rows: pa.DataType, text: str
) -> None:
    table = tmp_path / "t"
    evolving(table, pa.schema([("c", there)]))
    with refused(text):
        evolving(table, pa.schema([("c", rows)]))
    assert DeltaTable(table).version() == 0


@pytest.mark.parametrize(
    ("column", "settings", "text"),
    [
        (("AT", pa.int64()), {}, "its column at would be AT"),
        (("a=b", pa.int64()), {}, "no name 'a=b'"),
        (("t", pa.timestamp("us")), {}, "need feature timestampNtz"),
        (("s", pa.struct([("l", pa.list_(pa.timestamp("us")))])), {}, "need feature timestampNtz"),
        (
            ("_change_type", pa.string()),
            {"delta.enableChangeDataFeed": "true"},
            "the name is one of Delta's change data feed",
        ),
    ],
    ids=str,
)
def test_columns_that_a_table_cannot_get(
    tmp_path: Path, column: tuple[str, pa.DataType], settings: dict[str, str], text: str
) -> None:
    table = tmp_path / "t"
    DeltaTable.create(table, NARROW, configuration=settings)
    with refused(text):
        evolving(table, pa.schema([*([] if column[0] == "AT" else NARROW), column]))


def test_types_are_widened_where_the_table_says_so(tmp_path: Path) -> None:
    table = tmp_path / "t"
    old = pa.schema([("n", pa.int32()), ("l", pa.list_(pa.struct([("f", pa.float32())])))])
    new = pa.schema([("n", pa.int64()), ("l", pa.list_(pa.struct([("f", pa.float64())])))])
    widening_table(table, old)
    first = written(table, old, {"n": 1, "l": [{"f": 0.5}]})
    evolving(table, old).append(first, "app", 0, check_files=False)
    late = written(table, old, {"n": 2, "l": [{"f": 1.5}]})
    with refused("its columns are of other types: ALTER TABLE .* ALTER COLUMN n TYPE BIGINT; ALT"):
        evolving(table, new, evolves=False)
    sink = evolving(table, new)
    sink.append(written(table, new, {"n": 2**40, "l": [{"f": 0.1}]}), "app", 1, check_files=False)
    n, items = json.loads(DeltaTable(table).schema().to_json())["fields"]
    assert (n["type"], n["metadata"]) == (
        "long",
        {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]},
    )
    [f] = items["type"]["elementType"]["fields"]
    assert f["metadata"] == {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    # Files that were written before, by a driver with the older schema, are known to readers too.
    evolving(table, old).append(late, "other", 0, check_files=True)
    assert DeltaTable(table).version() == 4


def test_a_change_in_a_list_is_noted_at_the_field_around_it() -> None:
    def columns(kind: Any) -> dict[str, Any]:
        kind = {"type": "array", "elementType": kind, "containsNull": True}
        kind = {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}
        field = {"name": "m", "type": kind, "nullable": True, "metadata": {}}
        return {"type": "struct", "fields": [field]}

    found = Comparison(columns("short"), columns("long"), TableRules(widens=True))
    [field] = found.fields
    [change] = field["metadata"]["delta.typeChanges"]
    assert change == {"fromType": "short", "toType": "long", "fieldPath": "value.element"}
    assert found.widened == [("m.value.element", "BIGINT")]
    again = Comparison({"fields": found.fields}, columns("short"), TableRules(widens=True))
    assert (again.is_changed, again.wrong) == (False, [])


@pytest.mark.parametrize("other", ["the same", "another type", "another column"])
def test_of_two_drivers_that_add_columns_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    table, whole, rivals = tmp_path / "t", SinkTable._commit, [1]
    evolving(table, NARROW)
    kinds = {"the same": ("price", pa.float64()), "another type": ("price", pa.string())}
    rival = pa.schema([*NARROW, kinds.get(other, ("more", pa.int8()))])
    sink, first = evolving(table, WIDE), evolving(table, rival)

    def late(self: SinkTable, *given: Any) -> Any:
        if rivals.pop() if rivals else 0:
            first.append(written(table, rival, {"at": 7}), "rival", 0, check_files=False)
        return whole(self, *given)

    monkeypatch.setattr(SinkTable, "_commit", late)
    files = written(table, WIDE, {"at": 1, "price": 0.5})
    if other == "another type":
        with refused("column price is STRING and would be DOUBLE"):
            sink.append(files, "app", 0, check_files=False)
        assert [row["at"] for row in rows_of(table)] == [7]
        return
    sink.append(files, "app", 0, check_files=False)
    more = {"more": None} if other == "another column" else {}
    assert rows_of(table) == [{"at": 1, "price": 0.5, **more}, {"at": 7, "price": None, **more}]


NAMES = st.sampled_from(["a", "b", "c"])
PLAIN = st.sampled_from(["byte", "short", "integer", "long", "float", "double", "string"])


def struct_of(fields: dict[str, Any]) -> dict[str, Any]:
    named = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in fields.items()
    ]
    return {"type": "struct", "fields": named}


STRUCTS = st.recursive(
    PLAIN,
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1).map(struct_of)
        | inner.map(lambda kind: {"type": "array", "elementType": kind, "containsNull": True})
    ),
    max_leaves=6,
)
COLUMNS = st.dictionaries(NAMES, STRUCTS, min_size=1).map(struct_of)


def values(kind: Any) -> set[tuple[str, Any]]:
    """The plain types in a type, by where they are."""
    if isinstance(kind, str):
        return {("", kind)}
    if kind["type"] == "array":
        return {(f"[]{path}", each) for path, each in values(kind["elementType"])}
    return {
        (f".{field['name']}{path}", each)
        for field in kind["fields"]
        for path, each in values(field["type"])
    }


@given(COLUMNS, COLUMNS)
def test_a_table_with_what_was_added_takes_both(
    there: dict[str, Any], rows: dict[str, Any]
) -> None:
    rules = TableRules(widens=True)
    found = Comparison(there, rows, rules)
    if found.wrong:
        return
    now = {"type": "struct", "fields": found.fields}
    for old in (there, rows):
        again = Comparison(now, old, rules)
        assert (again.is_changed, [each for each in again.wrong if old is there]) == (False, [])
    paths = {path for path, _ in values(now)}
    assert paths == {path for each in (there, rows) for path, _ in values(each)}
    # Nothing that was there is elsewhere, and no type is narrower.
    assert [each["name"] for each in found.fields][: len(there["fields"])] == [
        each["name"] for each in there["fields"]
    ]
