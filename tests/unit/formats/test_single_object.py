"""Avro's single-object encoding: what names a schema, and what is read by which."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import to_parsing_canonical_form

from keyrange.formats.avro.fingerprints import canonical_form, fingerprint
from keyrange.formats.avro.schemas import parse
from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema
from project.forms import by_form
from samples.avro_samples import decorated_schema, header_of

OLD: Any = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NOTE = {"name": "note", "type": "string", "default": "-"}
NEW: Any = {**OLD, "fields": [*OLD["fields"], NOTE]}
OTHER: Any = {**OLD, "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "bytes"}]}

# A list of itself, names that are said again within other namespaces, what readers leave aside.
SCHEMAS: list[Any] = [
    "int",
    {"type": "long", "logicalType": "timestamp-micros"},
    ["null", {"type": "bytes", "logicalType": "decimal", "precision": 4}],
    {
        "type": "record",
        "name": "a.b.List",
        "doc": "d",
        "fields": [
            {"name": "at", "type": ["null", "List"], "default": None, "order": "ignore"},
            {"name": "f", "type": {"type": "fixed", "name": "F", "namespace": "c", "size": 3}},
            {"name": "again", "type": {"type": "array", "items": "c.F"}},
        ],
    },
    {
        "type": "record",
        "name": "R",
        "namespace": "",
        "aliases": ["Q"],
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}},
            {"name": "m", "type": {"type": "map", "values": "E"}},
        ],
    },
]


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(rows: list[bytes | None], rescues: bool = False) -> ReadValues:
    reader, *writers = (Schema(json.dumps(each)) for each in (NEW, OLD, OTHER))
    settings = ReadSettings(rescues=rescues)
    decoder = format_of("avro").unframed_decoder(reader, writers, settings)
    return decoder.read(Payloads.of(pa.array(rows, pa.binary())))


def check_fingerprint(schema: Any) -> None:
    parsed = parse(Schema(json.dumps(schema)))
    assert canonical_form(parsed) == to_parsing_canonical_form(schema)
    assert fingerprint(parsed).to_bytes(8, "little") == header_of(schema)[2:]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_fingerprints_are_those_of_fastavro(schema: Any) -> None:
    check_fingerprint(schema)


def test_fingerprints_of_schemas_by_chance_are_those_of_fastavro() -> None:
    chance = Random(41)
    for _ in range(by_form(100, 400, 20_000)):
        check_fingerprint(decorated_schema(chance))


def test_a_fingerprint_is_the_specifications() -> None:
    assert fingerprint(parse(Schema('"int"'))) == 0x7275D51A3F395C8F


def test_each_value_is_read_by_the_schema_that_it_names() -> None:
    rows = [
        header_of(OLD) + written(OLD, {"id": 1}),
        None,
        header_of(NEW) + written(NEW, {"id": 2, "note": "a"}),
        written(NEW, {"id": 3, "note": "b"}),
        header_of(OTHER) + written(OTHER, {"id": 4, "gone": b"x"}),
        # A number that is written as a header begins.
        written(NEW, {"id": -98, "note": "begins alike"}),
    ]
    assert rows[-1] is not None
    assert rows[-1][:2] == b"\xc3\x01"
    found = read(rows, rescues=True)
    assert found.bad == {}
    assert found.column.to_pylist() == [
        {"id": 1, "note": "-"},
        None,
        {"id": 2, "note": "a"},
        {"id": 3, "note": "b"},
        {"id": 4, "note": "-"},
        {"id": -98, "note": "begins alike"},
    ]
    assert found.rescued is not None
    assert [row for row, each in enumerate(found.rescued.to_pylist()) if each] == [4]
    alike = [header_of(OLD) + written(OLD, {"id": at}) for at in range(3)]
    assert read([*alike, None]).column.field("id").to_pylist() == [0, 1, 2, None]


def test_a_schema_that_is_not_given_is_a_bad_value() -> None:
    """And nothing of its bytes is told."""
    strange = {**OLD, "name": "Strange"}
    row = header_of(strange) + written(strange, {"id": 7})
    found = read([row, header_of(NEW) + b"\x02", written(NEW, {"id": 1, "note": ""}), row[:9]])
    assert [*found.bad] == [0, 1, 3]
    assert next(iter(found.bad.values())).startswith(
        "begins as a value with the fingerprint of its schema"
    )
    assert all("fingerprint" not in each for each in [*found.bad.values()][1:])
    assert header_of(strange)[2:].hex() not in "".join(found.bad.values())
    assert found.column.to_pylist() == [None, None, {"id": 1, "note": ""}, None]
