"""Avro's schemas: their columns, and which resolve to which."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import Schema, UnfitSchema
from unit.formats.avro_cases import (
    AVRO,
    DATE,
    MICROS,
    MILLIS,
    SETTINGS,
    decimal,
    decoder,
    error,
    long,
    read,
    record,
    schema,
    text,
    values,
    written,
)

STAMP = pa.timestamp("us", "UTC")
COLUMNS = {
    '"int"': pa.int32(),
    '"long"': pa.int64(),
    '"bytes"': pa.binary(),
    '"null"': pa.null(),
    '["null", "string"]': pa.string(),
    '["string"]': pa.string(),
    '["int", "null", "long"]': pa.int64(),
    '["double", "float"]': pa.float64(),
    '["int", "string"]': pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
    '["int", "null", "double"]': pa.struct([("member0", pa.int32()), ("member1", pa.float64())]),
    '{"type": "int", "logicalType": "date"}': pa.date32(),
    '{"type": "long", "logicalType": "timestamp-millis"}': STAMP,
    '{"type": "long", "logicalType": "timestamp-micros"}': STAMP,
    '{"type": "long", "logicalType": "local-timestamp-millis"}': pa.timestamp("us"),
    '{"type": "long", "logicalType": "local-timestamp-micros"}': pa.timestamp("us"),
    '{"type": "long", "logicalType": "timestamp-nanos"}': pa.int64(),
    '{"type": "int", "logicalType": "time-millis"}': pa.int32(),
    '{"type": "long", "logicalType": "time-micros"}': pa.int64(),
    '{"type": "string", "logicalType": "uuid"}': pa.string(),
    '{"type": "string", "logicalType": "date"}': pa.string(),
    '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}': pa.decimal128(9, 2),
    '{"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}': pa.binary(),
    '{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}': (
        pa.decimal128(4, 0)
    ),
    '{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}': (
        pa.binary()
    ),
    '{"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}': pa.binary(),
    '{"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}': pa.binary(),
    '{"type": "enum", "name": "E", "symbols": ["A"]}': pa.string(),
    '{"type": "array", "items": ["null", "int"]}': pa.list_(pa.field("element", pa.int32())),
    '{"type": "map", "values": "boolean"}': pa.map_(pa.string(), pa.bool_()),
    '{"type": "record", "name": "R", "fields": []}': pa.struct([]),
}


@pytest.mark.parametrize("said", COLUMNS)
def test_a_schema_has_the_column_that_spark_gives_it(said: str) -> None:
    assert AVRO.type_of(Schema(said), SETTINGS) == COLUMNS[said]


def test_names_are_those_of_their_namespaces_and_of_references() -> None:
    place = record(("zip", "int"), name="Place", namespace="shop.geo")
    order = record(("at", "geo.Place"), ("by", "Person"), name="shop.Order")
    person = record(("name", "string"), ("home", "shop.geo.Place"), name="Person", namespace="shop")
    order["fields"][0]["type"] = "shop.geo.Place"
    found = AVRO.type_of(schema(order, place, person), SETTINGS)
    at = pa.struct([("zip", pa.int32())])
    assert found == pa.struct(
        [("at", at), ("by", pa.struct([("name", pa.string()), ("home", at)]))]
    )
    picked = Schema(json.dumps([place, person]), message="shop.Person")
    assert AVRO.type_of(picked, SETTINGS) == found.field("by").type


UNFIT = [
    ("{", "not JSON"),
    ('"nothing"', "uses nothing, which it does not define"),
    ('["int", "int"]', "two branches of one type"),
    ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "one of them twice"),
    ('{"type": "fixed", "name": "F", "size": -1}', "its size"),
    ('{"type": "record", "fields": []}', "no name"),
    ("[" * 5000 + "]" * 5000, "nested too deeply"),
    (json.dumps(record(("a", "int"), ("a", "int"))), "one that another has"),
    (
        json.dumps(record(("a", record(("b", ["null", "R"]), name="S")))),
        "field a.b: record R is in",
    ),
    (
        json.dumps(record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39}))),
        "field a: a decimal of 39 digits",
    ),
]


@pytest.mark.parametrize(("said", "wanted"), UNFIT)
def test_a_schema_that_is_none_or_has_no_column_is_refused(said: str, wanted: str) -> None:
    with pytest.raises(UnfitSchema, match=wanted):
        AVRO.type_of(Schema(said), SETTINGS)


def test_a_schema_of_columns_without_end_is_refused() -> None:
    inner: Any = record(("x", "int"), name="T0")
    names = [inner]
    for at in range(1, 40):
        names.append(record(("l", f"T{at - 1}"), ("r", f"T{at - 1}"), name=f"T{at}"))
    with pytest.raises(UnfitSchema, match="more than 10000 columns"):
        AVRO.type_of(schema("T39", *names), SETTINGS)
    # As a part that the reader leaves it costs nothing.
    made = AVRO.decoder(
        schema(record(("k", "int"))),
        schema(record(("k", "int"), ("t", "T12")), *names[:13]),
        SETTINGS,
    )
    found = made.read(Payloads.of(pa.array([long(7) + b"\x02" * 4096])))
    assert found.column.to_pylist() == [{"k": 7}]


@pytest.mark.ordinary
def test_unions_of_records_of_unions_without_end_are_refused() -> None:
    """Each branch of the writer's reads into the same record of the reader's."""
    writer: Any = ["null", "int"]
    reader: Any = "int"
    for at in range(40):
        again = [each if isinstance(each, str) else each["name"] for each in writer]
        writer = [record(("x", writer), name=f"a{at}"), record(("x", again), name=f"b{at}")]
        reader = record(("x", reader), name=f"r{at}")
    with pytest.raises(UnfitSchema, match="make more than 100000 pairs of types"):
        AVRO.decoder(schema(reader), schema(writer), SETTINGS)


MISFITS = [
    ("string", "int", "the writer's string is no int"),
    (record(("a", "long")), record(("a", "int")), "field a: the writer's long is no int"),
    (record(("a", "int")), record(("b", "int")), "field b: the writer has none"),
    (
        record(("a", {"type": "array", "items": record(("x", "int"), name="S")})),
        record(("a", {"type": "array", "items": record(("y", "int"), name="S")})),
        r"field a\[\].y: the writer has none",
    ),
    (["null", "string"], ["null", "int"], "the writer's string is no int"),
    (DATE, MICROS, "the writer's date is no timestamp-micros"),
    (decimal(9, 2), decimal(9, 3), "the scale 2, the reader's 3"),
    (decimal(9, 2), "string", "the writer's decimal is no string"),
    (record(), record(("a", "int", "x")), "field a: the default of the reader's int is none"),
    (
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "fixed", "name": "F", "size": 3},
        "fixed F has 2 bytes, the reader's 3",
    ),
    (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "D", "symbols": ["A"]},
        "enum E is no enum D",
    ),
]


@pytest.mark.parametrize(("writer", "reader", "wanted"), MISFITS)
def test_schemas_that_do_not_resolve_are_refused(writer: Any, reader: Any, wanted: str) -> None:
    with pytest.raises(UnfitSchema, match=wanted):
        decoder(reader, writer)


def test_a_writers_branch_without_a_place_is_bad_where_it_occurs() -> None:
    made = decoder(["null", "int"], ["null", "int", "string"])
    found = read(made, b"\x00", b"\x02\x06", b"\x04\x02a", None)
    assert found.column.to_pylist() == [None, 3, None, None]
    assert [*found.bad] == [2]
    assert [*found.bad.values()] == ["the writer's string is no int"]
    assert error(record(("a", "int")), b"\x00", record(("a", ["null", "int"]))) == (
        "field a: the writer's null is no int"
    )


def test_the_branch_of_the_writers_own_type_comes_before_a_promotion() -> None:
    assert values(["double", "int", "string"], long(5), writer="int") == [
        {"member0": None, "member1": 5, "member2": None}
    ]
    assert values(["string", "double"], long(5), writer="int") == [
        {"member0": None, "member1": 5.0}
    ]
    one, two = record(("x", "int"), name="a.One"), record(("x", "int"), name="b.Two")
    renamed = {**two, "name": "c.Three", "aliases": ["b.Two"]}
    assert values([one, two], long(5), writer={**two, "name": "Two"})[0]["member1"] == {"x": 5}
    assert values([one, renamed], long(5), writer=two)[0]["member1"] == {"x": 5}
    other = record(("y", "int"), name="Other")
    assert values([other, one], long(5), writer=two)[0]["member1"] == {"x": 5}


def test_numbers_texts_and_bytes_are_promoted() -> None:
    assert values("double", long(2**53), writer="long") == [2.0**53]
    assert values("float", long(3), writer="int") == [3.0]
    assert values("double", written("float", 0.1), writer="float") == [float(np.float32(0.1))]
    assert values("bytes", text("é"), writer="string") == ["é".encode()]
    assert values("string", text("é"), writer="bytes") == ["é"]
    assert error("string", b"\x02\xff", "bytes") == "not UTF-8"
    assert values(MICROS, long(-1), writer=MILLIS) == values(MILLIS, long(-1))
    assert values("long", long(-1), writer=MILLIS) == [-1]


def test_fields_that_the_writer_has_not_have_their_defaults() -> None:
    inner = record(
        ("x", "int"), ("y", ["null", "string"], None), ("z", "bytes", "\u00ff"), name="I"
    )
    reader = record(
        ("a", "int"),
        ("n", inner, {"x": 4}),
        ("u", ["int", "string"], "text"),
        ("l", {"type": "array", "items": ["null", MILLIS]}, [None, 5]),
        ("m", {"type": "map", "values": decimal(5, 1)}, {"k": "\u0001\u0000"}),
        ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ("f", "double", "NaN"),
    )
    first, second, absent = values(reader, long(1), long(2), None, writer=record(("a", "int")))
    assert first["n"] == {"x": 4, "y": None, "z": b"\xff"}
    assert first["u"] == {"member0": None, "member1": "text"}
    assert [each and each.microsecond for each in first["l"]] == [None, 5000]
    assert first["m"] == [("k", Decimal("25.6"))]
    assert first["e"] == "B"
    assert first["f"] != first["f"]
    assert (first["a"], second["a"], absent) == (1, 2, None)


def test_a_default_is_no_constant_where_another_branch_of_the_writers_has_the_field() -> None:
    old = record(("x", "int"), name="Old")
    new = record(("x", "int"), ("y", "string"), name="New")
    reader = record(("x", "int"), ("y", "string", "none"), name="New", aliases=["Old"])
    rows = [b"\x00" + long(1), b"\x02" + long(2) + text("b"), b"\x00" + long(3)]
    found = values(reader, *rows, writer=[old, new])
    assert [each["y"] for each in found] == ["none", "b", "none"]


def test_an_alias_of_a_field_and_the_default_of_an_enum() -> None:
    writer = record(("old", {"type": "enum", "name": "a.E", "symbols": ["X", "Y", "Z"]}))
    enum = {"type": "enum", "name": "b.E", "symbols": ["Z", "X", "?"], "default": "?"}
    reader = record(("new", enum))
    reader["fields"][0]["aliases"] = ["old"]
    found = values(reader, long(0), long(1), long(2), writer=writer)
    assert [each["new"] for each in found] == ["X", "?", "Z"]
    del enum["default"]
    assert error(reader, long(1), writer) == (
        "field new: a symbol that the reader's schema does not have"
    )
