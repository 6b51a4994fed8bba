"""JSON values by a schema: what is read, what is null, and what is bad, case by case."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from keyrange.formats.json.decoder import JsonDecoder
from keyrange.formats.payloads import Payloads
from unit.formats.json_cases import BAD, CASES, OURS_ARE_BAD, TYPES, identity, read_json


def decode(kind: pa.DataType, *values: bytes | None) -> tuple[list[Any], list[int]]:
    schema = pa.schema([("a", kind)])
    batch, bad = read_json(schema, pa.array(values, pa.binary()))
    batch.validate(full=True)
    assert batch.schema == schema
    return batch.column(0).to_pylist(), [*bad]


@pytest.mark.parametrize(
    ("ddl", "value", "wanted"),
    [(ddl, value, wanted) for ddl, cases in CASES.items() for value, wanted in cases],
    ids=identity,
)
def test_a_value_is_read_as_spark_reads_it(ddl: str, value: bytes, wanted: Any) -> None:
    read, bad = decode(TYPES[ddl], value)
    assert bad == ([0] if wanted is BAD else [])
    assert repr(read) == repr([None if wanted is BAD else wanted])


@pytest.mark.parametrize("value", OURS_ARE_BAD, ids=identity)
def test_what_spark_reads_on_over_is_bad(value: bytes) -> None:
    assert decode(pa.int64(), value) == ([None], [0])


def test_rows_stay_in_order_among_bad_ones_and_tombstones() -> None:
    values = [b'{"a": 1}', None, b"{", b'{"a": 2}', b"", b'{"a": 3.0}', b'{"a": 4}']
    assert decode(pa.int64(), *values) == ([1, None, None, 2, None, None, 4], [2, 5])


def test_a_document_over_two_values_is_two_bad_values() -> None:
    """Joined they would be two documents: rows must not move."""
    values = [b'{"a":', b'1}{"a":2}', b'{"a":3}']
    assert decode(pa.int64(), *values) == ([None, None, 3], [0, 1])


def test_a_slice_of_a_batch_is_read_by_its_own_rows() -> None:
    schema = pa.schema([("a", pa.int64())])
    values = pa.array([b'{"a":1}', None, b'{"a":"x"}', b'{"a":4}'], pa.binary()).slice(1, 3)
    batch, bad = read_json(schema, values)
    assert (batch.to_pydict(), [*bad]) == ({"a": [None, None, 4]}, [1])


def test_no_rows_and_no_columns() -> None:
    empty = pa.array([], pa.binary())
    batch, bad = read_json(pa.schema([("a", pa.int64())]), empty)
    assert (len(batch), len(bad)) == (0, 0)


def test_a_bad_field_takes_the_others_with_it_and_is_named() -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.list_(pa.int64()))]))])
    value = b'{"a": 1, "s": {"b": [1, "secret"]}}'
    batch, bad = read_json(schema, pa.array([value], pa.binary()))
    assert batch.to_pylist() == [{"a": None, "s": None}]
    assert [*bad.values()] == ["field s.b[]: a string is no int64, or out of its range"]


@pytest.mark.parametrize(
    "value", [b'{"secret": 1', b'{"a": "secret"}', b'{"secret": "\xff"}', b"[" * 100_000]
)
def test_an_error_says_nothing_of_the_value(value: bytes) -> None:
    schema = pa.schema([("a", pa.int64())])
    _, bad = read_json(schema, pa.array([value], pa.binary()))
    (error,) = bad.values()
    assert "secret" not in error
    assert len(error) < 300


@pytest.mark.parametrize("depth", [10, 199, 250, 100_000])
@pytest.mark.parametrize("ends", [True, False])
def test_deep_values_do_no_harm(depth: int, ends: bool) -> None:
    deep = b'{"b":' + b"[" * depth + (b"]" * depth if ends else b"") + b',"a":1}'
    read, bad = decode(pa.int64(), deep, b'{"a":2}')
    assert (read, bad) in [([1, 2], []), ([None, 2], [0])]
    assert (bad == []) == (ends and depth < 300)


@pytest.mark.parametrize("depth", [10, 450, 990])
@pytest.mark.parametrize("opens", ["[", '{"a":'])
def test_deep_values_of_text_columns_do_no_harm(depth: int, opens: str) -> None:
    closes = {"[": "]"}.get(opens, "}")
    deep = f'{{"a":{opens * depth}1{closes * depth}}}'.encode()
    read, bad = decode(pa.string(), deep, b'{"a":"x"}')
    assert bad in ([], [0])
    assert read[1] == "x"
    others = JsonDecoder(pa.struct([("b", pa.int64())]), rescues=True)
    found = others.read(Payloads.of(pa.array([deep, b'{"b":1}'])))
    assert found.column[1].as_py() == {"b": 1}
    assert [*found.bad] in ([], [0])


def test_fields_are_found_in_any_order_and_depth() -> None:
    inner = pa.struct([("x", pa.string()), ("y", pa.decimal128(5, 1))])
    schema = pa.schema([("a", pa.int32()), ("s", inner), ("m", pa.map_(pa.string(), inner))])
    values = [
        b'{"m": {"k": {"y": 1.25}}, "s": {"y": 2, "z": [{}], "x": "1"}, "a": 5, "b": {"a": 6}}',
        b'{"s": {"x": null}, "a": 7}',
        b'{"s": null}',
    ]
    batch, bad = read_json(schema, pa.array(values, pa.binary()))
    assert [*bad] == []
    assert batch.to_pylist() == [
        {
            "a": 5,
            "s": {"x": "1", "y": Decimal("2.0")},
            "m": [("k", {"x": None, "y": Decimal("1.3")})],
        },
        {"a": 7, "s": {"x": None, "y": None}, "m": None},
        {"a": None, "s": None, "m": None},
    ]


PLACES = pa.struct(
    [
        ("a", pa.int64()),
        ("at", pa.struct([("x", pa.string())])),
        ("items", pa.list_(pa.struct([("n", pa.int64())]))),
    ]
)


@pytest.mark.parametrize(
    ("value", "row", "left"),
    [
        (b'{"a": 1}', {"a": 1}, None),
        (b'{"a": 1, "b": 1.50, "c": null}', {"a": 1}, '{"b":1.50}'),
        (b'{"a": "x", "at": {"x": "p", "y": [1, {"z": 2}]}}', {"at": {"x": "p"}},
         '{"a":"x","at":{"y":[1,{"z":2}]}}'),
        (b'{"at": 3, "b": "\xc3\xa9\\ud800"}', {}, '{"at":3,"b":"\xe9?"}'),
        (b'{"items": [{"n": 1}, {"n": 2, "m": true}]}', {"items": [{"n": 1}, {"n": 2}]},
         '{"items":[null,{"m":true}]}'),
        (b'{"b": 1, "b": null, "a": 1, "a": 2}', {"a": 2}, None),
        (b"", None, None),
        (None, None, None),
    ],
)  # fmt: skip
def test_what_has_no_place_is_rescued(value: bytes, row: Any, left: str | None) -> None:
    for kind in (PLACES, pa.struct(list(PLACES)[:2])):
        if kind is not PLACES and row and "items" in row:
            continue
        others = [b'{"a": 9}', value, b"[]", b'{"q": 0}']
        read = JsonDecoder(kind, rescues=True).read(Payloads.of(pa.array(others, pa.binary())))
        wanted = None if row is None else dict.fromkeys(kind.names) | row
        assert read.column[1].as_py() == wanted
        assert read.rescued is not None
        assert read.rescued.to_pylist() == [None, left, None, '{"q":0}']
        assert [*read.bad] == [2]
