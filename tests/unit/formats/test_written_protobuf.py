"""Columns as Protobuf: which of them a message takes, and what is said of values that it cannot
hold."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory

from keyrange.formats.format import written_format_of
from keyrange.formats.payloads import WrittenValues
from keyrange.formats.protobuf.descriptors import alone, indexes_of, message_at, message_of
from keyrange.model.value_forms import Schema, UnfitSchema

PROTOBUF: Any = written_format_of("protobuf")
US = pa.timestamp("us", "UTC")
PROTO3 = Schema("""
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  enum State { NEW = 0; PAID = 1; ALSO_PAID = 1; option allow_alias = true; }
  message Empty {}
  message Item { string name = 2; sint32 count = 1; Empty nothing = 3; }
  int32 a = 1; sint32 b = 2; sfixed32 c = 3; uint32 d = 4; fixed32 e = 5;
  int64 f = 6; uint64 g = 7; float h = 8; double i = 9; bool j = 10;
  string k = 11; bytes l = 12; State m = 13; optional int32 o = 14;
  google.protobuf.Timestamp n = 15; google.protobuf.Int64Value p = 16;
  repeated Item r = 18; map<string, Item> s = 19; repeated sint32 t = 20;
  oneof choice { string u = 21; Item v = 22; int32 w = 23; }
  Empty x = 24; repeated State z = 26; repeated string y = 27; map<int32, State> q = 28;
}
message Other { message Within { int32 x = 1; message Deep { int32 x = 1; } } int32 y = 1; }
""")
PROTO2 = Schema("""
syntax = "proto2";
message M {
  required int32 a = 1;
  optional string b = 2 [default = "x"];
  repeated group G = 3 { optional int32 c = 4; }
  repeated int32 d = 5;
}
""")
ANY_JSON = Schema("""
syntax = "proto3";
import "google/protobuf/struct.proto";
message J {
  google.protobuf.Struct s = 1;
  repeated google.protobuf.Value v = 2;
}
""")
ITEM = pa.struct([("name", pa.string()), ("count", pa.int32())])


def write(schema: Schema, kind: dict[str, pa.DataType], *rows: dict[str, Any]) -> WrittenValues:
    column = pa.array(rows, pa.struct([*kind.items()]))
    found: WrittenValues = PROTOBUF.encoder(column.type, schema, b"").write(column)
    return found


def parsed(schema: Schema, payload: bytes) -> Any:
    return message_factory.GetMessageClass(message_of(schema)).FromString(payload)


@pytest.mark.parametrize(
    ("name", "kind", "value", "text"),
    [
        ("a", pa.int64(), -5, "a: -5"),
        ("a", pa.int8(), -5, "a: -5"),
        ("a", pa.int32(), 0, ""),
        ("o", pa.int32(), 0, "o: 0"),
        ("o", pa.int32(), None, ""),
        ("b", pa.int32(), -(2**31), f"b: {-(2**31)}"),
        ("c", pa.int32(), -1, "c: -1"),
        # A number without a sign: its bits, or of a wider column itself.
        ("d", pa.int32(), -1, "d: 4294967295"),
        ("d", pa.int64(), 2**32 - 1, "d: 4294967295"),
        ("e", pa.int32(), -2, "e: 4294967294"),
        ("f", pa.int64(), -(2**63), f"f: {-(2**63)}"),
        ("g", pa.int64(), -1, f"g: {2**64 - 1}"),
        ("h", pa.float32(), 0.5, "h: 0.5"),
        ("i", pa.float32(), -0.0, "i: -0"),
        ("i", pa.float64(), 0.0, ""),
        ("j", pa.bool_(), True, "j: true"),
        ("k", pa.large_string(), "é", 'k: "é"'),
        ("l", pa.binary(), b"", ""),
        ("m", pa.string(), "ALSO_PAID", "m: PAID"),
        ("n", US, datetime(1969, 12, 31, 23, 59, 59, 1, UTC), "n { seconds: -1 nanos: 1000 }"),
        ("n", US, datetime(1970, 1, 1, tzinfo=UTC), "n { }"),
        ("p", pa.struct([("value", pa.int64())]), {"value": 0}, "p { }"),
        ("p", pa.null(), None, ""),
        ("r", pa.list_(ITEM), [{}, {"name": "a" * 200, "count": -1}], None),
        ("s", pa.map_(pa.string(), ITEM), [("b", {"count": 3})], None),
        ("t", pa.list_(pa.int32()), [0, -1, 2**31 - 1], "t: 0 t: -1 t: 2147483647"),
        ("t", pa.list_(pa.int32()), [], ""),
        ("t", pa.list_(pa.int32()), None, ""),
        ("w", pa.int32(), 0, "w: 0"),
        ("y", pa.large_list(pa.string()), ["", "a"], 'y: "" y: "a"'),
        ("z", pa.list_(pa.string()), ["NEW", "PAID"], "z: NEW z: PAID"),
        ("q", pa.map_(pa.int64(), pa.string()), [(0, "NEW")], "q { key: 0 value: NEW }"),
    ],
)
def test_what_fits_is_written_as_googles_serializer_does(
    name: str, kind: pa.DataType, value: Any, text: str | None
) -> None:
    written = write(PROTO3, {name: kind}, {name: value})
    assert written.bad == {}
    [payload] = written.payloads.to_pylist()
    read = parsed(PROTO3, payload)
    if text is not None:
        shown = str(read).replace("\n", " ").replace("\\303\\251", "é")
        assert " ".join(shown.split()) == text
    assert read.SerializeToString(deterministic=True) == payload


def test_fields_are_written_by_their_numbers_whatever_the_order_of_columns() -> None:
    kind = {"k": pa.string(), "a": pa.int32(), "r": pa.list_(ITEM)}
    written = write(PROTO3, kind, {"k": "x", "a": 1, "r": [{"name": "n", "count": 1}]})
    [payload] = written.payloads.to_pylist()
    assert payload == b"\x08\x01\x5a\x01x\x92\x01\x05\x08\x02\x12\x01n"
    assert parsed(PROTO3, payload).SerializeToString() == payload


def test_what_proto2_has_besides() -> None:
    kind = {
        "a": pa.int32(),
        "b": pa.string(),
        "g": pa.list_(pa.struct([("c", pa.int32())])),
        "d": pa.list_(pa.int32()),
    }
    row = {"a": 0, "b": "x", "g": [{"c": 1}, {}], "d": [1, 2]}
    written = write(PROTO2, kind, row, {"b": "y"})
    assert [*written.bad.values()] == ["column a is null, and the schema has no place for that"]
    read = parsed(PROTO2, written.payloads[0].as_py())
    assert (read.a, read.HasField("b"), [each.c for each in read.g]) == (0, True, [1, 0])
    assert [*read.d] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "row", "said"),
    [
        ({"a": pa.int64()}, {"a": 2**31}, "column a is out of the range of int32"),
        ({"d": pa.int64()}, {"d": 2**32}, "column d is out of the range of uint32"),
        ({"d": pa.int64()}, {"d": -1}, "column d is out of the range of uint32"),
        ({"m": pa.string()}, {"m": "LOST"}, "column m is no name of enum State"),
        ({"t": pa.list_(pa.int32())}, {"t": [None]}, "column t[] is null"),
        ({"r": pa.list_(ITEM)}, {"r": [None]}, "column r[] is null"),
        ({"s": pa.map_(pa.string(), ITEM)}, {"s": [("a", None)]}, "column s{} is null"),
        (
            {"n": US},
            {"n": -62_135_596_800_000_001},
            "column n is not within the years 1 to 9999",
        ),
        (
            {"u": pa.string(), "w": pa.int32()},
            {"u": "", "w": 0},
            "column choice is a oneof, and has several values",
        ),
    ],
)
def test_what_does_not_fit_is_said_of_its_row(
    kind: dict[str, pa.DataType], row: dict[str, Any], said: str
) -> None:
    written = write(PROTO3, kind, {}, row, {})
    assert [*written.bad] == [1]
    assert said in next(iter(written.bad.values()))
    assert written.payloads.to_pylist() == [b"", None, b""]


@pytest.mark.parametrize(
    ("schema", "kind", "said"),
    [
        (PROTO3, {"a": pa.string()}, "column a is string, and the message has int32 there"),
        (PROTO3, {"h": pa.float64()}, "column h is double, and the message has float there"),
        (PROTO3, {"m": pa.int32()}, "and the message has enum there"),
        (PROTO3, {"n": pa.timestamp("us")}, "and the message has google.protobuf.Timestamp there"),
        (
            ANY_JSON,
            {"s": pa.string()},
            "has google.protobuf.Struct there, which keyrange reads and",
        ),
        (ANY_JSON, {"v": pa.string()}, "has repeated google.protobuf.Value there, which"),
        (PROTO3, {"t": pa.int32()}, "and the message has repeated sint32 there"),
        (PROTO3, {"s": pa.list_(ITEM)}, "and the message has map of message there"),
        (PROTO3, {"v": pa.int32()}, "and the message has message there"),
        (PROTO3, {"no": pa.int32()}, "column no is no field of message shop.Order"),
        (PROTO3, {"x": pa.null()}, "column x has no fields in message shop.Order"),
        (
            PROTO3,
            {"v": pa.struct([("no", pa.int32())])},
            "column v.no is no field of message shop.Order.Item",
        ),
        (PROTO2, {"b": pa.string()}, "no column is a, a required field"),
    ],
)
def test_columns_that_a_message_does_not_take(
    schema: Schema, kind: dict[str, pa.DataType], said: str
) -> None:
    with pytest.raises(UnfitSchema, match=said):
        write(schema, kind)


def test_a_key_has_to_be_a_struct_and_a_schema_is_given() -> None:
    with pytest.raises(UnfitSchema, match=r"message shop\.Order, and the column is int64"):
        PROTOBUF.encoder(pa.int64(), PROTO3, b"")
    with pytest.raises(UnfitSchema, match="columns say no numbers of fields"):
        PROTOBUF.schema_of(pa.struct([]))


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("", (0,)),
        ("shop.Order", (0,)),
        ("Other", (1,)),
        ("Empty", (0, 0)),
        ("shop.Order.Item", (0, 1)),
        ("Other.Within.Deep", (1, 0, 0)),
    ],
)
def test_indexes_are_those_of_the_message(name: str, indexes: tuple[int, ...]) -> None:
    schema = Schema(PROTO3.text, name)
    assert indexes_of(schema) == indexes
    assert message_at(schema, indexes) == message_of(schema).full_name


def test_a_registry_is_told_one_file() -> None:
    assert alone(PROTO3) == PROTO3.text
    told = alone(PROTOBUF.told(PROTO3))
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(told))
    assert [each.name for each in file.message_type] == ["Order", "Other"]
    imported = Schema(
        'syntax = "proto3"; import "a.proto"; message B { A a = 1; }',
        "",
        (("a.proto", 'syntax = "proto3"; message A { int32 x = 1; }'),),
    )
    with pytest.raises(UnfitSchema, match=r"imports 'a\.proto'"):
        alone(imported)
    with pytest.raises(UnfitSchema, match="defines message A in a file that it imports"):
        indexes_of(Schema(imported.text, "A", imported.references))
