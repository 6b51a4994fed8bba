"""Protobuf's schemas, what their columns are, and payloads that are not as writers usually make
them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory

from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.formats.protobuf.descriptors import message_at, message_of, serialized
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
message Order {
  enum State { NEW = 0; PAID = 1; ALSO_PAID = 1; option allow_alias = true; }
  message Empty {}
  message Item { string name = 1; optional sint32 count = 2; Empty nothing = 3; }
  int32 a = 1; sint32 b = 2; sfixed32 c = 3; uint32 d = 4; fixed32 e = 5;
  int64 f = 6; uint64 g = 7; float h = 8; double i = 9; bool j = 10;
  string k = 11; bytes l = 12; State m = 13;
  google.protobuf.Timestamp n = 14; google.protobuf.Duration o = 15;
  google.protobuf.Int64Value p = 16; google.protobuf.Any q = 17;
  repeated Item r = 18; map<string, Item> s = 19; repeated int64 t = 20;
  oneof choice { string u = 21; Item v = 22; Empty w = 23; }
  Empty x = 24; map<int32, Empty> y = 25; repeated State z = 26;
}
message Other { Order order = 1; message Within { int32 x = 1; } map<string, Within> m = 2; }
"""
ITEM = pa.struct([("name", pa.string()), ("count", pa.int32())])
SETTINGS = ReadSettings()


def type_of(schema: Schema) -> pa.DataType:
    return format_of("protobuf").type_of(schema, SETTINGS)


def unfit(text: str, message: str = "", *references: tuple[str, str]) -> str:
    with pytest.raises(UnfitSchema) as failure:
        type_of(Schema(text, message, references))
    return str(failure.value)


def read(text: str, *payloads: bytes | None, rescues: bool = False) -> ReadValues:
    schema = Schema(text)
    decoder = format_of("protobuf").decoder(schema, schema, ReadSettings(rescues=rescues))
    found = decoder.read(Payloads.of(pa.array(payloads, pa.binary())))
    found.column.validate(full=True)
    assert found.column.type == decoder.type == type_of(schema)
    return found


def test_messages_without_end_are_refused() -> None:
    text = 'syntax = "proto3"; message D0 { int32 x = 1; }'
    twice = [f"message D{n} {{ D{n - 1} x = 1; D{n - 1} y = 2; }}" for n in range(1, 40)]
    assert unfit(text + "".join(twice), "D39") == "makes more than 10000 columns"
    once = [f"message D{n} {{ D{n - 1} x = 1; }}" for n in range(1, 400)]
    assert unfit(text + "".join(once), "D399") == "nests more than 100 messages"


def test_the_compiler_is_not_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc_tools").mkdir()
    (tmp_path / "grpc_tools" / "__init__.py").touch()
    (tmp_path / "grpc_tools" / "protoc.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    schema = Schema('syntax = "proto3"; message Elsewhere { int32 a = 1; }')
    assert type_of(schema) == pa.struct([("a", pa.int32())])
    assert not (tmp_path / "ran").exists()


def values(text: str, *payloads: bytes | None) -> list[Any]:
    found = read(text, *payloads)
    assert not found.bad
    return found.column.to_pylist()


def error(text: str, payload: bytes) -> str:
    found = read(text, payload)
    assert found.column.to_pylist() == [None]
    return next(iter(found.bad.values()))


def fields(body: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; {body}'


def test_columns_are_those_of_sparks_from_protobuf() -> None:
    duration = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
    wanted = {
        **dict.fromkeys("abcde", pa.int32()),
        **dict.fromkeys("fg", pa.int64()),
        "h": pa.float32(),
        "i": pa.float64(),
        "j": pa.bool_(),
        "k": pa.string(),
        "l": pa.binary(),
        "m": pa.string(),
        "n": pa.timestamp("us", "UTC"),
        "o": duration,
        "p": pa.struct([("value", pa.int64())]),
        "q": pa.struct([("type_url", pa.string()), ("value", pa.binary())]),
        "r": pa.list_(pa.field("element", ITEM)),
        "s": pa.map_(pa.string(), ITEM),
        "t": pa.list_(pa.field("element", pa.int64())),
        "u": pa.string(),
        "v": ITEM,
        "z": pa.list_(pa.field("element", pa.string())),
    }
    assert type_of(Schema(ORDER)) == pa.struct(list(wanted.items()))


def test_a_schema_is_source_or_descriptors() -> None:
    source = Schema(ORDER, "Other")
    whole = serialized(source)
    file = message_of(source).file.serialized_pb
    for other in (whole, Schema(base64.b64encode(file).decode(), "shop.Other")):
        assert type_of(other) == type_of(source)
    assert message_of(whole).full_name == "shop.Other"
    assert message_of(Schema(whole.text)).full_name == "shop.Order"
    assert message_of(Schema(whole.text, "Other.Within")).full_name == "shop.Other.Within"
    unnamed = descriptor_pb2.FileDescriptorProto.FromString(file)
    unnamed.name = ""
    text = base64.encodebytes(unnamed.SerializeToString()).decode()
    assert type_of(Schema(text)) == type_of(Schema(ORDER))


def test_messages_are_found_by_confluents_indexes() -> None:
    for schema in (Schema(ORDER), serialized(Schema(ORDER))):
        assert message_at(schema, [0]) == "shop.Order"
        assert message_at(schema, [0, 1]) == "shop.Order.Item"
        # The entries of a map are no messages of the source.
        assert message_at(schema, [1, 0]) == "shop.Other.Within"
        for indexes in ([], [2], [0, 2], [-1], [0, 0, 0]):
            with pytest.raises(UnfitSchema):
                message_at(schema, indexes)


def test_references_are_known_by_the_names_of_imports() -> None:
    money = fields("package m; message Money { int64 cents = 1; }")
    text = fields('import "lib/money.proto"; message A { m.Money price = 1; }')
    source = Schema(text, "", (("lib/money.proto", money),))
    wanted = pa.struct([("price", pa.struct([("cents", pa.int64())]))])
    assert type_of(source) == wanted
    # As the registry has them with format=serialized: a file each.
    one = message_of(source).file.serialized_pb
    other = message_of(Schema(money)).file.serialized_pb
    encoded, imported = (base64.b64encode(each).decode() for each in (one, other))
    assert type_of(Schema(encoded, "", (("lib/money.proto", imported),))) == wanted
    assert "lib/money.proto" in unfit(encoded)
    assert "one form" in unfit(encoded, "", ("lib/money.proto", money))
    assert "lib/money.proto" in unfit(text)
    for name in ("/lib/money.proto", "../money.proto", ""):
        assert "no name of a file" in unfit(text, "", (name, money))


N = 'syntax = "proto3"; message N { int32 b = 1; }'
M = "message M { optional int32 a = 1; }"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a" * 300, N, "for protoc: File name too long"),
        ("a/" * 3_000 + "b", N, "for protoc: File name too long"),
        ("a\0b", N, "no name of a file"),
        ("/a.proto", N, "no name of a file"),
        ("a/../../b.proto", N, "no name of a file"),
        ("keyrange_schema.proto/x", N, "no name of a file"),
        ("keyrange_schema.proto", N, "for protoc: File exists"),
        ("\ud800.proto", N, "it is not Unicode"),
        ("x.proto", "\ud800", "it is not Unicode"),
    ],
)
def test_what_a_registry_calls_imports_is_no_error_of_pythons(
    name: str, text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    assert why in unfit(M, "", (name, text))
    # Neither beside the directory of one schema nor left in it.
    assert [each.name for each in tmp_path.rglob("*")] == ["scratch"]


@pytest.mark.parametrize("name", ["descriptors", "keyrange_descriptors", "sources/a"])
def test_what_protoc_writes_is_beside_what_it_reads(name: str) -> None:
    schema = Schema(f'import "{name}"; ' + M, references=((name, N),))
    assert type_of(schema) == pa.struct([("a", pa.int32())])


def test_half_a_character_in_the_name_of_descriptors_is_no_error_of_pythons() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a")
    file.message_type.add(name="A")
    text = base64.b64encode(file.SerializeToString()).decode()
    assert "not Unicode" in unfit(text, "", ("\ud800", text))


def test_what_has_no_columns_is_refused_with_its_field() -> None:
    tree = fields("message T { int32 a = 1; U u = 2; } message U { map<string, T> more = 1; }")
    assert "field U.MoreEntry.value is in a message T" in unfit(tree)
    assert "no fields" in unfit(fields("message A {}"))
    assert "defines no message" in unfit(fields("enum E { A = 0; }"))
    assert "defines no message 'B'" in unfit(fields("message A { int32 a = 1; }"), "B")
    assert 'line 1:32: "X" is not defined' in unfit(fields("message A { X a = 1; }"))
    assert "neither base64" in unfit("abcde")
    assert "no descriptors" in unfit("AAAA")


def test_a_zero_without_presence_is_null_as_spark_has_it() -> None:
    text = fields("message A { int32 a = 1; optional int32 b = 2; double c = 3; string d = 4; }")
    minus = b"\x19" + bytes(7) + b"\x80"
    assert values(text, b"", b"\x08\x00\x10\x00\x22\x00", b"\x08\x05\x08\x00" + minus) == [
        {"a": None, "b": None, "c": None, "d": None},
        {"a": None, "b": 0, "c": None, "d": None},
        {"a": None, "b": None, "c": -0.0, "d": None},
    ]


def test_what_holds_any_json_is_a_text() -> None:
    text = fields(
        'import "google/protobuf/struct.proto"; message A { google.protobuf.Struct s = 1; }'
    )
    assert type_of(Schema(text)) == pa.struct([("s", pa.string())])
    number = b"\x0a\x10\x0a\x0e\x0a\x01n\x12\x09\x11" + bytes(6)
    assert values(text, number + b"\xf8\x3f") == [{"s": '{"n": 1.5}'}]
    assert error(text, number + b"\xf0\x7f") == "field s: a number that JSON does not have"


def test_proto2_has_defaults_and_required_fields() -> None:
    text = fields(
        'message A { required int32 a = 1; optional string b = 2 [default = "x"];'
        " optional E c = 3 [default = TWO]; optional group G = 4 { optional int32 x = 1; }"
        " enum E { ONE = 1; TWO = 2; } }",
        "proto2",
    )
    assert values(text, b"\x08\x01", b"\x08\x00\x12\x00\x18\x01\x23\x08\x07\x24") == [
        {"a": 1, "b": "x", "c": "TWO", "g": None},
        {"a": 0, "b": "", "c": "ONE", "g": {"x": 7}},
    ]
    # A closed enum has no other numbers.
    assert values(text, b"\x08\x01\x18\x09")[0]["c"] == "TWO"
    assert error(text, b"") == "field a: required, and not there"
    assert error(text, b"\x08\x01\x12\x01\xff") == "field b: not UTF-8"
    assert error(text, b"\x08\x01\x23\x08\x07") == "field g: a group does not end"
    assert error(text, b"\x08\x01\x24") == "a group ends that does not begin"


def test_an_open_enum_names_its_unknown_numbers_as_java_does() -> None:
    found = values(ORDER, b"\x68\x07", b"\x68\x01\xd2\x01\x03\x00\x01\x09")
    assert found[0]["m"] == "UNKNOWN_ENUM_VALUE_State_7"
    assert found[1]["m"] == "PAID"
    assert found[1]["z"] == ["NEW", "PAID", "UNKNOWN_ENUM_VALUE_State_9"]


def test_fields_come_in_any_order_and_twice() -> None:
    text = fields(
        "message A { int32 a = 1; B b = 2; repeated int32 c = 3; map<string, B> d = 4;"
        " oneof o { int32 e = 5; B f = 6; } } message B { int32 x = 1; repeated int32 y = 2; }"
    )
    found = values(
        text,
        b"\x12\x02\x10\x01\x1a\x02\x01\x02\x08\x01\x12\x04\x08\x05\x10\x02\x18\x03\x08\x02",
        # A member of a oneof, then another one; a message whose parts are one.
        b"\x32\x02\x08\x01\x28\x07",
        b"\x28\x07\x32\x02\x08\x01\x32\x02\x10\x02",
        # Entries without a key, without a value, of one key.
        b"\x22\x04\x12\x02\x08\x01\x22\x03\x0a\x01k\x22\x07\x0a\x01k\x12\x02\x08\x02\x22\x00",
    )
    rest = {"a": None, "b": None, "c": [], "d": [], "e": None, "f": None}
    assert found == [
        {**rest, "a": 2, "b": {"x": 5, "y": [1, 2]}, "c": [1, 2, 3]},
        {**rest, "e": 7},
        {**rest, "f": {"x": 1, "y": [2]}},
        {**rest, "d": [("", {"x": None, "y": []}), ("k", {"x": 2, "y": []})]},
    ]


def test_lists_of_numbers_are_read_in_one_piece_and_one_by_one() -> None:
    text = fields("message A { repeated double a = 1 [packed = false]; repeated sint64 b = 2; }")
    one = b"\x09" + bytes(6) + b"\xf0\x3f"
    piece = b"\x0a\x10" + one[1:] * 2
    found = values(text, one + piece, b"\x12\x02\x01\x02\x10\x03", b"\x0a\x00")
    assert [row["a"] for row in found] == [[1.0] * 3, [], []]
    assert [row["b"] for row in found] == [[], [-1, 1, -2], []]
    assert error(text, b"\x0a\x07" + bytes(7)) == "field a: cut off"


def test_more_than_a_batch_has_room_for_is_read() -> None:
    text = fields("message A { repeated int32 a = 1; repeated B b = 2; } "
                  "message B { repeated string c = 1; }")  # fmt: skip
    made = message_factory.GetMessageClass(message_of(Schema(text)))
    rows = [made(a=range(each), b=[{"c": ["x"] * each}] * (each % 7)) for each in range(300)]
    found = values(text, *(each.SerializeToString() for each in rows))
    for at, row in enumerate(found):
        assert row == {"a": list(range(at)), "b": [{"c": ["x"] * at}] * (at % 7)}


def test_large_numbers_of_fields_and_whole_tags() -> None:
    text = fields("message A { int32 a = 536870911; string b = 5000; int32 c = 4095; }")
    made = message_factory.GetMessageClass(message_of(Schema(text)))
    payload = made(a=1, b="x", c=-1).SerializeToString()
    assert values(text, payload) == [{"a": 1, "b": "x", "c": -1}]
    # A tag in more bytes than it needs, of which the library takes five.
    assert values(text, b"\xf8\xff\x81\x80\x00\x05")[0]["c"] == 5
    assert error(text, b"\xf8\xff\x81\x80\x80\x00\x05")


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (b"\x08", "field a: cut off"),
        (b"\x08" + b"\x80" * 10 + b"\x00", "field a: a number has more than ten bytes"),
        (b"\x5a\x05abc", "field k: cut off"),
        (b"\x5a\x01\xff", "field k: not UTF-8"),
        (b"\x00\x00", "no field has such a number"),
        (b"\x92\x01\x04\x0a\x02a\xff", "field r.name: not UTF-8"),
        (b"\x92\x01\x02\x0a\x05aaaaa", "field r.name: cut off"),
        (b"\x9a\x01\x04\x0a\x02\xff\xff", "field s.key: not UTF-8"),
        (b"\x72\x02\x08\x80", "field n.1: cut off"),
        (b"\xba\x3e\x05", "field 999: cut off"),
        (b"\xbb\x3e\x08\x01", "field 999: a group does not end"),
        (b"\xbf\x3e", "field 999: no value has such a type"),
        (b"\x72\x0a\x08" + b"\xff" * 8 + b"\x7f", "field n: a time that no timestamp holds"),
    ],
)
def test_a_bad_payload_names_its_field_and_nothing_of_it(payload: bytes, wanted: str) -> None:
    assert error(ORDER, payload) == wanted


def test_times_are_cut_to_microseconds_towards_zero() -> None:
    def time(seconds: int, nanos: int) -> int:
        made = message_factory.GetMessageClass(message_of(Schema(ORDER)))()
        made.n.seconds, made.n.nanos = seconds, nanos
        found = read(ORDER, made.SerializeToString()).column.field("n")
        return found.cast(pa.int64())[0].as_py()

    assert time(0, 0) == 0
    assert time(-2, 1999) == -1_999_999
    assert time(-2, -1999) == -2_000_001
    assert time(9_223_372_036_854, 775_807_999) == 2**63 - 1
    assert time(-9_223_372_036_854, -775_808_999) == -(2**63)


def test_unknown_fields_are_rescued() -> None:
    text = fields("message A { int32 a = 1; B b = 2; } message B { int32 x = 1; }")
    found = read(
        text,
        b"\x08\x01",
        b"\x08\x01\x1a\x01a\x12\x02\x10\x05\x25\x01\x00\x00\x00",
        b"\x1b\x08\x01\x12\x01a\x1c",
        b"\x0a\x01a",
        None,
        rescues=True,
    )
    assert found.column.field("a").to_pylist() == [1, 1, None, None, None]
    first, second, third, fourth, last = found.rescued.to_pylist()
    assert first is None
    assert last is None
    assert json.loads(second) == [
        {"number": 3, "type": "bytes", "value": "YQ=="},
        {"number": 4, "type": "fixed32", "value": 1},
        {"in": "b", "number": 2, "type": "varint", "value": 5},
    ]
    assert json.loads(third) == [
        {
            "number": 3,
            "type": "group",
            "value": [
                {"number": 1, "type": "varint", "value": 1},
                {"number": 2, "type": "bytes", "value": "YQ=="},
            ],
        }
    ]
    # What does not fit the type of its field is an unknown field too.
    assert json.loads(fourth) == [{"number": 1, "type": "bytes", "value": "YQ=="}]


def test_extensions_are_unknown_fields() -> None:
    text = fields(
        "message A { optional int32 a = 1; extensions 100 to 200; }"
        " extend A { optional string b = 100; }",
        "proto2",
    )
    found = read(text, b"\x08\x01\xa2\x06\x01\xff", rescues=True)
    assert not found.bad
    assert json.loads(found.rescued[0].as_py())[0]["number"] == 100
