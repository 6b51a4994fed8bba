"""The Avro schema of columns for which nobody gave one, as Spark's own `to_avro` has it: records
called topLevelRecord and, within it, by their fields. A field that may be null is a union with null
first and null as its default, so that a later schema may add fields and leave them out."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from keyrange.formats.column_kinds import below
from keyrange.model.value_forms import UnfitSchema

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOP: Final = "topLevelRecord"
_PLAIN: Final = (
    (kinds.is_null, "null"),
    (kinds.is_boolean, "boolean"),
    (kinds.is_int64, "long"),
    (kinds.is_signed_integer, "int"),
    (kinds.is_float32, "float"),
    (kinds.is_float64, "double"),
    (kinds.is_string, "string"),
    (kinds.is_large_string, "string"),
    (kinds.is_binary, "bytes"),
    (kinds.is_large_binary, "bytes"),
    (kinds.is_date32, {"type": "int", "logicalType": "date"}),
)


def derived(kind: pa.DataType) -> Any:
    """JSON of the schema. Raises UnfitSchema with the column that Avro has no type for."""
    return _schema(kind, "", "", _TOP)


def _schema(kind: pa.DataType, path: str, namespace: str, name: str) -> Any:
    if kinds.is_struct(kind):
        return _record(kind, path, namespace, name)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return {"type": "array", "items": _field(kind.value_field, f"{path}[]", namespace, name)}
    if kinds.is_map(kind) and kinds.is_string(kind.key_type):
        return {"type": "map", "values": _field(kind.item_field, f"{path}{{}}", namespace, name)}
    if kinds.is_decimal128(kind):
        said = {"type": "bytes", "logicalType": "decimal"}
        return said | {"precision": kind.precision, "scale": kind.scale}
    if kinds.is_timestamp(kind) and kind.unit == "us":
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    for test, word in _PLAIN:
        if test(kind):
            return word
    raise UnfitSchema(f"column {path[:200] or 'key'} is {kind}, of which no Avro schema is made")


def _record(kind: pa.DataType, path: str, namespace: str, name: str) -> Any:
    within = f"{namespace}.{name}" if namespace else name
    fields = []
    for each in kind:
        at = below(path, each.name)
        if not _NAME.fullmatch(each.name):
            raise UnfitSchema(
                f"column {at[:200]} has no name of Avro's (letters, digits and _): call it "
                "otherwise, or give the schema"
            )
        said = {"name": each.name, "type": _field(each, at, within, each.name)}
        fields.append(said | {"default": None} if isinstance(said["type"], list) else said)
    place = {"namespace": namespace} if namespace else {}
    return {"type": "record", "name": name, **place, "fields": fields}


def _field(field: pa.Field, path: str, namespace: str, name: str) -> Any:
    made = _schema(field.type, path, namespace, name)
    return ["null", made] if field.nullable and made != "null" else made
