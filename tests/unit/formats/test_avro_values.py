"""Avro values: what is bad and how it is said, and bytes that no library writes."""

from __future__ import annotations

import json
import tracemalloc
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest

from keyrange.formats.payloads import Payloads
from keyrange.wire.kernel_helpers import ENTRIES_MAX
from unit.formats.avro_cases import (
    DATE,
    MILLIS,
    decimal,
    decoder,
    error,
    long,
    read,
    record,
    text,
    values,
    written,
)

INTS = {"type": "array", "items": "int"}


def test_blocks_of_an_array_are_read_one_after_the_other() -> None:
    blocks = long(2) + long(1) + long(2) + long(-2) + long(3) + long(3) + long(300) + long(0)
    assert values(INTS, blocks, long(0), blocks) == [[1, 2, 3, 300], [], [1, 2, 3, 300]]
    wrong = long(-2) + long(4) + long(3) + long(300) + long(0)
    assert error(INTS, wrong) == "field []: a block does not end where it says"
    assert "longer than what is left" in error(INTS, long(-1) + long(9) + long(1) + long(0))
    for count in (2**40, -(2**63), 2**63 - 1):
        assert error(INTS, long(count)).endswith("the value ends within it")
        assert error(INTS, long(count) + b"\x00" * 9)


def test_elements_without_bytes_are_counted() -> None:
    nulls = {"type": "array", "items": "null"}
    assert values(nulls, long(3) + long(0)) == [[None] * 3]
    assert "too many elements that take no bytes" in error(nulls, long(2**62) + long(0))
    empty = {"type": "array", "items": record(name="E")}
    assert values(empty, long(2) + long(0)) == [[{}, {}]]
    left = record(("a", nulls), ("b", "int"))
    assert error(record(("b", "int")), long(2**62) + long(0) + long(1), left).startswith(
        "field a[]"
    )


@pytest.mark.ordinary
def test_memory_follows_the_bytes_and_not_what_they_claim() -> None:
    nested = {
        "type": "array",
        "items": {"type": "array", "items": record(("a", "long"), ("b", "int"))},
    }
    made = decoder(nested)
    claims = [long(2**20) + long(2**20) + b"\x00" * 50] * 1000
    read(made, claims[0])
    tracemalloc.start()
    found = read(made, *claims)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.bad) == 1000
    assert peak < 20_000_000


def test_a_batch_whose_lists_outgrow_their_room_is_read_again() -> None:
    nested = {"type": "map", "values": INTS}
    made = decoder(nested)
    value = {f"k{at}": list(range(at)) for at in range(120)}
    payload = written(nested, value)
    found = read(made, payload, None, payload + b"x", payload, written(nested, {}))
    wanted = list(value.items())
    assert found.column.to_pylist() == [wanted, None, None, wanted, []]
    assert [*found.bad] == [2]


def test_of_two_entries_of_a_key_the_last_one_counts() -> None:
    kind = {"type": "map", "values": "int"}
    entries = [("a", 1), ("b", 2), ("a", 3)]
    payload = long(3) + b"".join(text(key) + long(each) for key, each in entries) + long(0)
    blocks = b"".join(long(1) + text(key) + long(each) for key, each in entries) + long(0)
    assert values(kind, payload, blocks) == [[("a", 3), ("b", 2)]] * 2
    many = {f"k{at}": at for at in range(ENTRIES_MAX + 1)}
    assert values(kind, written(kind, many)) == [list(many.items())]


def test_a_record_in_itself_is_left_where_the_reader_has_no_field_for_it() -> None:
    node = record(("value", "string"), ("next", ["null", "Node"]), name="Node")
    writer = record(("a", "int"), ("list", node), ("b", "int"))
    reader = record(("b", "int"), ("a", "int"))
    for depth in (0, 3, 150, 250):
        chain = b"".join(text("x") + b"\x02" for _ in range(depth)) + text("end") + b"\x00"
        assert values(reader, long(1) + chain + long(2), writer=writer) == [{"b": 2, "a": 1}]
    deep = b"".join(text("x") + b"\x02" for _ in range(50_000))
    assert error(reader, long(1) + deep, writer) in ("nested too deeply",)


def test_an_error_says_which_field_and_nothing_of_the_value() -> None:
    kind = record(
        ("id", "long"),
        ("places", {"type": "array", "items": record(("zip", "string"), name="P")}),
        ("ok", "boolean"),
        ("d", decimal(3)),
    )
    good = long(1) + long(1) + text("secret") + long(0) + b"\x01" + b"\x02\x05"
    assert read(decoder(kind), good).bad == {}
    damaged = {
        b"": "field id: the value ends within it",
        good[:-1]: "field d: the value ends within it",
        good + b"\x00": "there are bytes behind the value",
        good.replace(b"secret", b"secr\xff\xff"): "field places[].zip: not UTF-8",
        good.replace(b"\x01\x02\x05", b"\x02\x02\x05"): "field ok: a boolean is neither 0 nor 1",
        good[:-2] + b"\x04\x7f\xff": "field d: a decimal is empty or has more than 3 digits",
        b"\xff" * 11: "field id: a number is longer than 64 bits",
    }
    for payload, wanted in damaged.items():
        assert error(kind, payload) == wanted


def test_decimals_of_many_bytes() -> None:
    kind = decimal(38, 3)
    numbers = [
        0,
        1,
        -1,
        127,
        128,
        -128,
        -129,
        10**37,
        10**38 - 1,
        -(10**38) + 1,
        10**38,
        2**127 - 1,
    ]
    payloads = []
    for each in numbers:
        least = each.to_bytes(each.bit_length() // 8 + 1, "big", signed=True)
        longer = each.to_bytes(40, "big", signed=True)
        payloads += [long(len(least)) + least, long(40) + longer]
    found = read(decoder(kind), *payloads)
    assert [*found.bad] == [20, 21, 22, 23]
    with localcontext(prec=50):
        unscaled = [each.scaleb(3) for each in found.column.drop_null().to_pylist()]
    assert unscaled == [each for each in numbers[:10] for _ in range(2)]


def test_fields_that_the_reader_has_not_are_rescued_as_json() -> None:
    inner = record(("zip", "string"), ("city", "string"), name="P")
    writer = record(
        ("id", "int"), ("place", inner), ("raw", "bytes"), ("on", DATE), ("price", decimal(5, 2)),
        ("all", {"type": "array", "items": "P"}), ("at", MILLIS), ("ratio", "double"),
    )  # fmt: skip
    less = record(("zip", "string"), name="P")
    reader = record(("id", "int"), ("place", less), ("all", {"type": "array", "items": "P"}))
    one = {"zip": "1", "city": "Bonn"}
    value = {"id": 1, "place": one, "raw": b"\x00\xff", "on": 0, "price": Decimal("1.20"),
             "all": [one, one], "at": 0, "ratio": float("inf")}  # fmt: skip
    payload = written(json.loads(json.dumps(writer)), value)
    found = read(decoder(reader, writer, rescues=True), payload, None, payload[:-1])
    assert found.column.to_pylist()[0] == {
        "id": 1,
        "place": {"zip": "1"},
        "all": [{"zip": "1"}] * 2,
    }
    assert found.rescued is not None
    kept, *others = found.rescued.to_pylist()
    assert others == [None, None]
    assert json.loads(kept) == {
        "place": {"city": "Bonn"}, "raw": "AP8=", "on": "1970-01-01", "price": "1.20",
        "all": [{"city": "Bonn"}] * 2, "at": "1970-01-01T00:00:00.000Z", "ratio": "Infinity",
    }  # fmt: skip
    assert read(decoder(writer, writer, rescues=True), payload).rescued.to_pylist() == [None]
    assert read(decoder(reader, writer), payload).rescued is None


READER = record(
    ("id", "long"),
    ("price", "double"),
    ("kind", {"type": "enum", "name": "K", "symbols": ["A"]}),
    ("near", record(("zip", "int"), name="P")),
)


@pytest.mark.parametrize(
    ("changed", "value", "wanted", "left"),
    [
        ({"price": "string"}, {"price": "9.5"}, {"price": None}, {"price": "9.5"}),
        # A branch of a union, and one that fits.
        ({"price": ["double", "string"]}, {"price": "x"}, {"price": None}, {"price": "x"}),
        ({"price": ["double", "string"]}, {"price": 1.5}, {"price": 1.5}, None),
        ({"price": ["null", "double"]}, {"price": None}, {"price": None}, None),
        # The writer has none by now, and the reader no default.
        ({"price": None}, {}, {"price": None}, None),
        (
            {"kind": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
            {"kind": "B"},
            {"kind": None},
            {"kind": "B"},
        ),
        (
            {"near": record(("zip", "string"), ("city", "string"), name="P")},
            {"near": {"zip": "a", "city": "b"}},
            {"near": {"zip": None}},
            {"near": {"zip": "a", "city": "b"}},
        ),
        ({"near": "string"}, {"near": "b"}, {"near": None}, {"near": "b"}),
        (
            {"near": {"type": "array", "items": READER["fields"][3]["type"]}},
            {"near": [{"zip": 1}]},
            {"near": None},
            {"near": [{"zip": 1}]},
        ),
    ],
    ids=str,
)
def test_fields_that_do_not_fit_are_null_and_rescued(
    changed: Any, value: Any, wanted: Any, left: Any
) -> None:
    kinds = {each["name"]: each["type"] for each in READER["fields"]} | changed
    writer = record(*((name, kind) for name, kind in kinds.items() if kind is not None))
    whole = {"id": 1, "price": 2.5, "kind": "A", "near": {"zip": 3}}
    payload = written(json.loads(json.dumps(writer)), whole | value)
    found = read(decoder(READER, writer, rescues=True), payload)
    assert found.bad == {}
    assert found.column.to_pylist() == [whole | wanted]
    [said] = (found.rescued or pa.nulls(1)).to_pylist()
    assert (said and json.loads(said)) == left


def test_a_slice_of_a_column_and_keys_that_are_no_records() -> None:
    column = pa.array([b"x", long(5), None, long(-6)]).slice(1)
    found = decoder("long").read(Payloads.of(column))
    assert found.column.to_pylist() == [5, None, -6]
    assert values(["null", record(("a", "int"))], b"\x00", b"\x02\x04") == [None, {"a": 2}]
