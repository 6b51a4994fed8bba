"""Columns as Avro: which of them a schema takes, and what is said of values that it cannot hold."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from keyrange.formats.format import written_format_of
from keyrange.formats.payloads import WrittenValues
from keyrange.model.value_forms import Schema, UnfitSchema

AVRO = written_format_of("avro")
US = pa.timestamp("us", "UTC")
AT = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
KIND = {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}
F16 = {"type": "fixed", "name": "F", "size": 2}
DEC = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


def of_field(kind: Any, **more: Any) -> Schema:
    return Schema(json.dumps(record({"name": "f", "type": kind, **more})))


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [*fields]}


def write(schema: Schema, kind: pa.DataType, *values: Any) -> WrittenValues:
    column = pa.array([{"f": each} for each in values], pa.struct([("f", kind)]))
    return AVRO.encoder(column.type, schema, b"").write(column)


def read(schema: Schema, written: WrittenValues) -> list[Any]:
    parsed = fastavro.parse_schema(json.loads(schema.text))
    return [
        None if each is None else fastavro.schemaless_reader(io.BytesIO(each), parsed, None)["f"]
        for each in written.payloads.to_pylist()
    ]


def logical(base: str, name: str) -> dict[str, str]:
    return {"type": base, "logicalType": name}


@pytest.mark.parametrize(
    ("kind", "column", "value", "found"),
    [
        ("long", pa.int32(), -5, -5),
        ("int", pa.int8(), -5, -5),
        ("int", pa.int64(), 2**31 - 1, 2**31 - 1),
        ("double", pa.float32(), 0.5, 0.5),
        ("bytes", pa.large_binary(), b"a", b"a"),
        ("bytes", pa.binary(2), b"ab", b"ab"),
        (F16, pa.binary(), b"ab", b"ab"),
        ("string", pa.large_string(), "é", "é"),
        (logical("int", "date"), pa.date32(), date(1969, 1, 1), date(1969, 1, 1)),
        # A time between two milliseconds is the earlier one, as of Spark's to_avro.
        (
            logical("long", "timestamp-millis"),
            US,
            AT,
            datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        ),
        (logical("long", "timestamp-micros"), US, AT, AT),
        (
            logical("long", "local-timestamp-micros"),
            pa.timestamp("us"),
            AT.replace(tzinfo=None),
            AT.replace(tzinfo=None),
        ),
        (DEC, pa.decimal128(3, 1), Decimal("-99.9"), Decimal("-99.90")),
        (DEC, pa.decimal128(38, 0), Decimal(99), Decimal("99.00")),
        (KIND, pa.string(), "PAID", "PAID"),
        (["null", "int", "long"], pa.int64(), 5, 5),
        (["string", "null"], pa.null(), None, None),
        ("null", pa.null(), None, None),
        (["null"], pa.null(), None, None),
        ({"type": "array", "items": "int"}, pa.large_list(pa.int32()), [1, 2], [1, 2]),
        (
            ["null", "int", record({"name": "x", "type": "string"}) | {"name": "Q"}],
            pa.struct([("member0", pa.int32()), ("member1", pa.struct([("x", pa.string())]))]),
            {"member1": {"x": "a"}},
            {"x": "a"},
        ),
    ],
)
def test_what_fits(kind: Any, column: pa.DataType, value: Any, found: Any) -> None:
    schema = of_field(kind)
    written = write(schema, column, value)
    assert written.bad == {}
    assert read(schema, written) == [found]


@pytest.mark.parametrize(
    ("kind", "column", "value", "said"),
    [
        ("int", pa.int32(), None, "is null, and the schema has no place for that"),
        ("int", pa.int64(), 2**31, "is out of the range of int"),
        ("int", pa.int64(), -(2**31) - 1, "is out of the range of int"),
        (["null", "int"], pa.int64(), 2**31, "is out of the range of int"),
        (KIND, pa.string(), "LOST", "is no symbol of enum Kind"),
        (DEC, pa.decimal128(5, 2), Decimal("100.00"), "has more than 4 digits, 2 of them behind"),
        (DEC, pa.decimal128(38, 2), Decimal("-100.00"), "has more than 4 digits"),
        (DEC, pa.decimal128(38, 0), Decimal(10**37), "has more than 4 digits"),
        (DEC, pa.decimal128(38, 0), Decimal(100), "has more than 4 digits"),
        (DEC, pa.decimal128(38, 0), Decimal(-100), "has more than 4 digits"),
        (F16, pa.binary(), b"abc", "has not the 2 bytes of fixed F"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [None], "f[] is null"),
        (
            {"type": "map", "values": "int"},
            pa.map_(pa.string(), pa.int32()),
            [("a", None)],
            "f{} is null",
        ),
        (
            record({"name": "x", "type": "int"}) | {"name": "Q"},
            pa.struct([("x", pa.int32())]),
            {"x": None},
            "f.x is null",
        ),
        (
            ["int", "string"],
            pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
            {"member0": 1, "member1": "a"},
            "f has several values, and a union takes one",
        ),
        (
            ["int", "string"],
            pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
            {},
            "f is null",
        ),
    ],
)
def test_what_does_not_fit_is_said_of_its_row(
    kind: Any, column: pa.DataType, value: Any, said: str
) -> None:
    written = write(of_field(kind), column, value, value)
    assert [*written.bad] == [0, 1]
    assert written.payloads.null_count == 2
    for text in written.bad.values():
        assert text.startswith("column f")
        assert said in text


def test_rows_around_a_bad_one_are_written() -> None:
    schema = of_field({"type": "array", "items": KIND})
    written = write(schema, pa.list_(pa.string()), ["NEW"], ["NEW", "LOST"], [], None, ["PAID"])
    assert read(schema, written) == [["NEW"], None, [], None, ["PAID"]]
    assert [*written.bad] == [1, 3]
    # Nothing of a bad row is kept.
    assert written.payloads.buffers()[2].to_pybytes() == b"\x02\x00\x00\x00\x02\x02\x00"


@pytest.mark.parametrize("bits", [7, 8, 15, 16, 63, 64, 119, 120])
def test_decimals_take_as_few_bytes_as_hold_them(bits: int) -> None:
    schema = of_field(DEC | {"precision": 38, "scale": 0})
    near = [sign * (2**bits + more) for sign in (1, -1) for more in (-1, 0, 1)]
    written = write(schema, pa.decimal128(38, 0), *map(Decimal, near))
    assert read(schema, written) == near
    sizes = [len(each) - 1 for each in written.payloads.to_pylist()]
    assert sizes == [(each if each >= 0 else ~each).bit_length() // 8 + 1 for each in near]


@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        ("int", pa.string(), "column f is string, and the schema has int there"),
        ("float", pa.float64(), "column f is double, and the schema has float there"),
        ("double", pa.int64(), "column f is int64, and the schema has double there"),
        ("string", pa.binary(), "column f is binary, and the schema has string there"),
        ("long", US, "and the schema has long there"),
        (logical("long", "timestamp-micros"), pa.timestamp("us"), "has timestamp-micros there"),
        (logical("int", "date"), pa.int32(), "column f is int32, and the schema has date there"),
        (DEC, pa.decimal128(9, 3), "has decimal there"),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32()), "keys of type int32"),
        ({"type": "array", "items": "int"}, pa.int32(), "the schema has array there"),
        (["int", "string"], pa.string(), "has to be a struct of member0, member1.*int, string"),
        (record({"name": "x", "type": "int"}) | {"name": "Q"}, pa.int32(), "has record Q there"),
        (
            record({"name": "x", "type": "int"}) | {"name": "Q"},
            pa.struct([("y", pa.int32())]),
            "column f.y is no field of record Q",
        ),
        (
            record({"name": "x", "type": "int"}) | {"name": "Q"},
            pa.struct([]),
            "no column is f.x, a field without a default",
        ),
    ],
)
def test_columns_that_a_schema_does_not_take(kind: Any, column: pa.DataType, said: str) -> None:
    with pytest.raises(UnfitSchema, match=said):
        write(of_field(kind), column)


def test_fields_without_a_column_have_their_defaults() -> None:
    fields = [
        {"name": "a", "type": ["null", "long"]},
        {"name": "b", "type": "string", "default": "é"},
        {"name": "c", "type": {"type": "array", "items": DEC}, "default": ["\x01"]},
        {"name": "d", "type": ["int", "null"], "default": 7},
        {"name": "e", "type": {**record({"name": "x", "type": "int"}), "name": "Q"}},
    ]
    schema = record(*fields[:4], fields[4] | {"default": {"x": -1}}, {"name": "f", "type": "int"})
    column = pa.array([{"f": 1}], pa.struct([("f", pa.int32())]))
    written = AVRO.encoder(column.type, Schema(json.dumps(schema)), b"").write(column)
    [payload] = written.payloads.to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(schema), None) == {
        "a": None,
        "b": "é",
        "c": [Decimal("0.01")],
        "d": 7,
        "e": {"x": -1},
        "f": 1,
    }


def test_keys_without_fields_and_what_stands_before_them() -> None:
    column = pa.array([1, None, -1])
    schema = AVRO.schema_of(column.type)
    assert schema.text == '"long"'
    written = AVRO.encoder(column.type, schema, b"\xc3\x01").write(column)
    assert written.payloads.to_pylist() == [b"\xc3\x01\x02", None, b"\xc3\x01\x01"]
    assert written.bad == {}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.struct([("a-b", pa.int32())]), "column a-b has no name of Avro's"),
        (pa.struct([("a", pa.duration("us"))]), "column a is duration"),
        (pa.struct([("a", pa.map_(pa.int32(), pa.int32()))]), "column a is map"),
        (pa.time64("us"), "column key is time64"),
    ],
)
def test_columns_of_which_no_schema_is_made(kind: pa.DataType, said: str) -> None:
    with pytest.raises(UnfitSchema, match=said):
        AVRO.schema_of(kind)


def test_the_schema_of_columns_is_that_of_sparks_to_avro_with_null_as_default() -> None:
    inner = pa.struct([pa.field("x", pa.float32(), nullable=False)])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("small", pa.int16()),
            ("price", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("at", US),
            ("local", pa.timestamp("us")),
            ("place", inner),
            ("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            ("none", pa.null()),
        ]
    )
    place = {
        "type": "record",
        "name": "place",
        "namespace": "topLevelRecord",
        "fields": [{"name": "x", "type": "float"}],
    }
    dec = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    nullable = {
        "small": "int",
        "price": dec,
        "day": logical("int", "date"),
        "at": logical("long", "timestamp-micros"),
        "local": logical("long", "local-timestamp-micros"),
        "place": place,
        "tags": {"type": "array", "items": "string"},
    }
    assert json.loads(AVRO.schema_of(kind).text) == {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": "id", "type": "long"},
            *({"name": n, "type": ["null", t], "default": None} for n, t in nullable.items()),
            {"name": "none", "type": "null"},
        ],
    }
