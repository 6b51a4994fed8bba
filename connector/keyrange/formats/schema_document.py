"""The document that Spark writes of a schema, as Arrow's types: also where there is no Spark, as
for the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from keyrange.model.ddl import ddl_of, parse_ddl
from keyrange.model.value_forms import UnfitSchema

_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
# In the metadata of a column: which of its texts are compared otherwise than by their bytes.
_COLLATIONS: Final = "__COLLATIONS"
# By Spark's name in a document.
_PLAIN: Final[dict[str, Callable[[], pa.DataType]]] = {
    "boolean": pa.bool_,
    "byte": pa.int8,
    "short": pa.int16,
    "integer": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "string": pa.string,
    "binary": pa.binary,
    "date": pa.date32,
    "timestamp_ntz": lambda: pa.timestamp("us"),
}


def schema_of_ddl(ddl: str) -> pa.Schema:
    """Columns as Spark's DDL names them. Raises ValueError with a message that begins with
    "must"."""
    return pa.schema(list(struct_type(parse_ddl(ddl))))


def struct_type(document: Mapping[str, Any], time_zone: str = "UTC") -> pa.StructType:
    """The columns of a schema, as pyspark's `to_arrow_schema` makes them.

    Raises KeyError with the name of a type that keyrange keeps and writes no values of.
    """
    for each in document["fields"]:
        if _COLLATIONS in each["metadata"]:
            raise KeyError("string collate")
    return pa.struct(
        [
            pa.field(each["name"], _arrow_type(each["type"], time_zone), each["nullable"])
            for each in document["fields"]
        ]
    )


def check_json_keys(kind: pa.DataType, path: str = "") -> None:
    """Raises UnfitSchema for a map whose keys are no texts, which JSON does not have."""
    if pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise UnfitSchema(f"{path}: keys of a map in JSON are texts, and no {kind.key_type}")
        check_json_keys(kind.item_type, path)
    elif pa.types.is_list(kind):
        check_json_keys(kind.value_type, path)
    elif pa.types.is_struct(kind):
        for each in kind:
            check_json_keys(each.type, f"{path}.{each.name}" if path else each.name)


def _arrow_type(kind: str | Mapping[str, Any], time_zone: str) -> pa.DataType:
    if isinstance(kind, str):
        if kind == "timestamp":
            return pa.timestamp("us", time_zone)
        found = _DECIMAL.fullmatch(kind)
        return pa.decimal128(*map(int, found.groups())) if found else _PLAIN[kind]()
    if kind["type"] == "struct" and kind["fields"]:
        return struct_type(kind, time_zone)
    if kind["type"] == "array":
        element = _arrow_type(kind["elementType"], time_zone)
        return pa.list_(pa.field("element", element, kind["containsNull"]))
    if kind["type"] != "map":
        raise KeyError(kind["type"])
    value = pa.field("value", _arrow_type(kind["valueType"], time_zone), kind["valueContainsNull"])
    return pa.map_(pa.field("key", _arrow_type(kind["keyType"], time_zone), False), value)


def ddl_of_columns(columns: pa.Schema) -> str:
    """Columns in Spark's DDL. Raises ValueError with the name of a type that it has no word for."""
    return ddl_of({"fields": [_document(each) for each in columns]})


def _document(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _spark_type(field.type)}


def _spark_type(kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_struct(kind):
        return {"type": "struct", "fields": [_document(each) for each in kind]}
    if types.is_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type)}
    if types.is_map(kind):
        key, value = _spark_type(kind.key_type), _spark_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value}
    for name, made in _PLAIN.items():
        if made() == kind:
            return name
    raise ValueError(f"type {kind} is none of Spark's")


def in_utc(kind: pa.DataType) -> pa.DataType:
    """The same type, whose timestamps have UTC as their zone, as Spark's Arrow has them."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC") if kind.tz else kind
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(in_utc(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(in_utc(kind.key_type)),
            kind.item_field.with_type(in_utc(kind.item_type)),
        )
    return kind
