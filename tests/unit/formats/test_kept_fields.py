"""Some fields of a schema in Avro, with the types that others have defined."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from keyrange.formats.avro.kept_fields import with_fields

SCALED = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.orders",
    "fields": [
        {"name": "quantity", "type": ["null", SCALED]},
        {"name": "colors", "type": {"type": "array", "items": COLOR}},
        {"name": "id", "type": "io.debezium.data.VariableScaleDecimal"},
        {"name": "color", "type": {"type": "map", "values": "Color"}},
        {"name": "other", "type": ["null", "shop.orders.Color",
                                   "io.debezium.data.VariableScaleDecimal"]},
        {"name": "inner", "type": {"type": "record", "name": "Inner",
                                   "fields": [{"name": "color", "type": "Color"}]}},
        {"name": "n", "type": "long"},
    ],
}  # fmt: skip
SCALED_VALUE = {"scale": 2, "value": b"\1"}
VALUES: dict[str, Any] = {
    "quantity": SCALED_VALUE,
    "colors": ["RED"],
    "id": SCALED_VALUE,
    "color": {"a": "BLUE"},
    "other": "RED",
    "inner": {"color": "BLUE"},
    "n": 7,
}


@pytest.mark.parametrize(
    "names",
    [["id"], ["color"], ["other"], ["inner"], ["id", "n"], ["color", "inner", "id"], [*VALUES]],
)
def test_what_is_kept_is_written_as_before(names: list[str]) -> None:
    cut = with_fields(json.loads(json.dumps(ROW)), names)
    assert {each["name"] for each in cut["fields"]} == {*names}
    assert cut["name"] == "shop.orders.Value"
    assert fastavro.validate({name: VALUES[name] for name in names}, cut)
    given = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(ROW))
    kept = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(cut))
    if len(names) == len(VALUES):
        assert kept == given
