"""The compiled passes over JSON values, the reading of one value and Python's own reading agree."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange.formats.json import rows as json_rows
from unit.formats.json_cases import read_json

INNER = pa.struct([("x", pa.string()), ("n", pa.int16()), ("d", pa.decimal128(9, 2))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("ratio", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("place", INNER),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("rows", pa.list_(INNER)),
        ("grid", pa.list_(pa.list_(pa.int16()))),
        ("places", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("blob", pa.binary()),
    ]
)
NAMES = [*SCHEMA.names, *[field.name for field in INNER], "other", "né", ""]
TIMES = ["2026-11-24T01:02:03Z", "2026-11-24 01:02:03.5+01:30", "2026-2-3", "2024-02-29", "24:00"]

strings = st.text(max_size=8) | st.sampled_from(TIMES)
integers = st.integers(-200, 200) | st.integers(-(2**64), 2**64)
scalars = st.none() | st.booleans() | integers | st.floats() | strings


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


documents = st.recursive(scalars, _containers, max_leaves=8)
places = st.fixed_dictionaries(
    {}, optional={"x": strings, "n": integers, "d": st.floats(-1e6, 1e6), "other": documents}
)
base64s = st.binary(max_size=8).map(lambda each: base64.b64encode(each).decode()) | st.text(
    "AQ+/=\n", max_size=9
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": strings,
        "amount": st.floats() | st.integers(-(2**70), 2**70),
        "ratio": st.floats(width=32),
        "at": st.datetimes().map(str) | st.sampled_from(TIMES),
        "day": st.dates().map(str),
        "place": st.none() | places,
        "ok": st.booleans(),
        "tags": st.lists(st.none() | strings, max_size=3),
        "counts": st.dictionaries(strings, st.integers(-9, 9), max_size=3),
        "rows": st.lists(st.none() | places, max_size=3),
        "grid": st.lists(st.none() | st.lists(st.none() | integers, max_size=3), max_size=3),
        "places": st.dictionaries(strings, st.none() | st.lists(st.floats()), max_size=3),
        "blob": base64s,
        "other": documents,
    },
)
objects = st.dictionaries(st.sampled_from(NAMES), documents, max_size=6)
PRETTY = st.sampled_from([None, 0, 2])


@st.composite
def written(draw: st.DrawFn) -> bytes:
    document = draw(fitting | fitting | objects | documents)
    text = json.dumps(document, indent=draw(PRETTY), ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "replace")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    value = bytearray(draw(written()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value)))
        piece = draw(st.sampled_from([b"", b"{", b"}", b'"', b",", b"\\", b"\n", b"0", b"\xff"]))
        value[at : at + draw(st.integers(0, 2))] = piece
    return bytes(value)


batches = st.lists(st.none() | written() | mutated() | st.binary(max_size=12), max_size=12)


def read_alone(value: bytes | None) -> dict[str, Any] | None:
    """One value by the reading that the compiled pass falls back to; None where it is bad."""
    try:
        row = None if value is None else json_rows.read_row(value, pa.struct(list(SCHEMA)))
    except json_rows.BadValue:
        return None
    return row or {}


@given(batches)
def test_many_values_are_read_as_each_alone(values: list[bytes | None]) -> None:
    batch, bad = read_json(SCHEMA, pa.array(values, pa.binary()))
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    alone = [read_alone(value) for value in values]
    assert [*bad] == [row for row, each in enumerate(alone) if each is None]
    expected = pa.RecordBatch.from_pylist([each or {} for each in alone], SCHEMA)
    assert repr(batch.to_pylist()) == repr(expected.to_pylist())


def plain(value: Any, kind: pa.DataType) -> tuple[bool, Any]:
    """What Python's own reading makes of a field of the plain kinds: (whether it fits, it)."""
    if value is None:
        return True, None
    if kind == pa.int64():
        return type(value) is int and -(2**63) <= value < 2**63, value
    if kind == pa.bool_():
        return type(value) is bool, value
    if kind == pa.string():
        return type(value) is str, value
    return type(value) in (int, float), float(value) if type(value) in (int, float) else None


PLAIN = pa.schema([each for each in SCHEMA if each.name in ("id", "ok", "amount", "name")])


@given(st.lists(written() | mutated(), max_size=8))
def test_plain_fields_are_what_pythons_json_reads(values: list[bytes]) -> None:
    batch, bad = read_json(PLAIN, pa.array(values, pa.binary()))
    bad_rows = set(bad)
    for row, (value, read) in enumerate(zip(values, batch.to_pylist(), strict=True)):
        try:
            document = json.loads(value.decode())
        except ValueError:
            assert row in bad_rows or not value.strip()
            continue
        if not isinstance(document, dict):
            assert row in bad_rows
            continue
        wanted = {field.name: plain(document.get(field.name), field.type) for field in PLAIN}
        if all(fits for fits, _ in wanted.values()):
            assert row not in bad_rows
            for name, (_, each) in wanted.items():
                same = each == read[name] or (isinstance(each, float) and math.isnan(each))
                assert same or (name == "name" and "?" in read[name])
        elif wanted["name"][0] and not isinstance(document.get("amount"), str):
            assert row in bad_rows
