"""Columns of JSON Schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keyrange.formats.json.format import FORMAT
from keyrange.formats.json.json_schema import columns_of
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def a_map(value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


POINT = {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in fields.items()
        ],
    }


def columns(schema: Any, **references: Any) -> Any:
    others = tuple((name, json.dumps(each)) for name, each in references.items())
    return json.loads(columns_of(Schema(json.dumps(schema), references=others)))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "long"),
        ({"type": "integer", "connect.type": "int16"}, "short"),
        ({"type": "number"}, "double"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": "number", "title": DECIMAL, "connect.parameters": {"scale": "2"}},
         "decimal(38,2)"),
        ({"type": "number", "title": DECIMAL, "connect.parameters": {"scale": "-2"}}, "string"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"enum": ["A", "B", None]}, "string"),
        ({"enum": [1, 2]}, "string"),
        ({"const": "A"}, "string"),
        ({"type": "null"}, "string"),
        ({"type": ["null", "integer"]}, "long"),
        ({"type": ["integer", "string"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "long"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, array("long")),
        ({"type": "array"}, array("string")),
        ({"type": "array", "items": [{"type": "integer"}]}, array("string")),
        ({"type": "object", "additionalProperties": {"type": "number"}}, a_map("double")),
        ({"type": "object", "additionalProperties": False}, "string"),
        ({"type": "object"}, "string"),
        ({"properties": {"a": {"type": "integer"}}}, struct(a="long")),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}],
          "properties": {"b": {"type": "string"}}}, struct(a="long", b="string")),
        ({"allOf": [{"type": "integer"}, {"minimum": 0}]}, "long"),
        ({"allOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"type": "string", "anyOf": [{"format": "date"}, {"format": "uuid"}]}, "string"),
        (POINT | {"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, struct(x="long", y="long")),
        (POINT | {"allOf": [{"required": ["x"]}, {"if": {}, "then": {"required": ["y"]}}]},
         struct(x="long", y="long")),
        (POINT | {"oneOf": [{"type": "object", "minProperties": 1}, {"maxProperties": 1}]},
         struct(x="long", y="long")),
        ({"$ref": "#/definitions/point", "properties": {"z": {"type": "string"}}},
         struct(x="long", y="long", z="string")),
        ({"oneOf": [{"type": "null"}, POINT], "properties": {"z": {"type": "string"}}},
         struct(x="long", y="long", z="string")),
        (POINT | {"oneOf": [POINT, {"properties": {"z": {"type": "string"}}}]}, "string"),
        ({"$ref": "#/definitions/point"}, struct(x="long", y="long")),
        ({"$ref": "#"}, "string"),
        ({"$ref": "money.json"}, struct(amount="double", of="string")),
        ({"$ref": "money.json#/$defs/a~1b"}, "boolean"),
        (True, "string"),
        ({}, "string"),
    ],
)  # fmt: skip
def test_types(schema: Any, kind: Any) -> None:
    root = {"type": "object", "properties": {"c": schema}, "definitions": {"point": POINT}}
    money = {
        "type": "object",
        "properties": {"amount": {"type": "number"}, "of": {"$ref": "#"}},
        "$defs": {"a/b": {"type": "boolean"}},
    }
    assert columns(root, **{"money.json": money}) == struct(c=kind)


def test_what_contains_itself_further_down_is_a_text_there() -> None:
    node = {"properties": {"id": {"type": "integer"}, "next": {"$ref": "#/definitions/node"}}}
    root = {"$ref": "#/definitions/node", "definitions": {"node": node}}
    assert columns(root) == struct(id="long", next="string")


def test_columns_stand_as_connect_numbers_them() -> None:
    given = {"b": 1, "a": 0, "c": 2}
    properties = {name: {"type": "string", "connect.index": at} for name, at in given.items()}
    found = columns({"type": "object", "properties": properties})
    assert [each["name"] for each in found["fields"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type": "string"}', "no object with properties"),
        ('{"type": "object"}', "no object with properties"),
        ("[1]", "no object with properties"),
        ("{", "cannot be read: Expecting property name"),
        ('{"$ref": "other.json"}', "refers to 'other.json', which is not there"),
        ('{"properties": {"a": {"$ref": "#/$defs/b"}}}', "refers to '#/\\$defs/b', which is not"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_has_no_columns(text: str, why: str) -> None:
    with pytest.raises(UnfitSchema, match=why):
        columns_of(Schema(text))


def doubled(number: int, inner: Any) -> dict[str, Any]:
    """Definitions that each use the one before twice."""
    found: dict[str, Any] = {"d0": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    for at in range(1, number):
        found[f"d{at}"] = inner({"$ref": f"#/definitions/d{at - 1}"})
    last = {"$ref": f"#/definitions/d{number - 1}"}
    return {"type": "object", "properties": {"a": last}, "definitions": found}


@pytest.mark.parametrize(
    "inner",
    [
        lambda ref: {"type": "object", "properties": {"x": ref, "y": ref}},
        lambda ref: {"allOf": [ref, ref]},
    ],
)
def test_schemas_without_end_are_refused(inner: Any) -> None:
    with pytest.raises(UnfitSchema, match="has more than 40000 schemas in it"):
        columns_of(Schema(json.dumps(doubled(40, inner))))


def test_schemas_that_are_nested_deep_are_refused() -> None:
    schema: Any = {"type": "integer"}
    for depth in range(1, 301):
        schema = {"type": "object", "properties": {"a": schema}}
        if depth == 50:
            assert "struct" in columns_of(Schema(json.dumps(schema)))
        if depth in (51, 300):
            with pytest.raises(UnfitSchema, match="nests more than 50 types"):
                columns_of(Schema(json.dumps(schema)))


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "struct"}',
        '{"type": "struct", "fields": [{"name": "a", "type": "x", "metadata": {}}]}',
        '{"type": "object", "properties": {"\\ud800": {"type": "integer"}}}',
    ],
)
def test_what_a_registry_gives_for_columns_is_no_error_of_pythons(text: str) -> None:
    with pytest.raises(UnfitSchema, match="columns that cannot be read"):
        FORMAT.type_of(Schema(text), ReadSettings())
