"""Columns of the schemas that Kafka Connect's JSON converter writes beside its payloads."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from keyrange.formats.connect.columns import VARIABLE_DECIMAL
from keyrange.model.ddl import DEPTH_MAX, DIGITS_MAX, array_of, column_of, decimal_of, map_of
from keyrange.model.value_forms import Schema, UnfitSchema

# In the metadata of a column, a text: it holds decimals of any size.
DIGITS_MARK: Final = "keyrange.digits"
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# By the names of Kafka Connect and Debezium.
_NAMED: Final = {
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "timestamp_ntz",
    "io.debezium.time.MicroTimestamp": "timestamp_ntz",
    "io.debezium.time.NanoTimestamp": "timestamp_ntz",
    "org.apache.kafka.connect.data.Timestamp": "timestamp",
    "io.debezium.time.ZonedTimestamp": "timestamp",
}
_PLAIN: Final = {
    "boolean": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
}


def columns_said_by(payload: bytes, path: Sequence[str] = ()) -> Schema | None:
    """The columns of the struct at a path of a document's schema; None where it brings none, or
    none that Kafka Connect could have written. Raises UnfitSchema for one that has no columns."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    said = document.get("schema") if isinstance(document, dict) else None
    for name in path:
        said = next((each for each in _fields(said) if each.get("field") == name), None)
    if said is None or not _fields(said) or not _is_written(said):
        return None
    return Schema(json.dumps(_struct(said)))


def _fields(said: Any) -> list[dict[str, Any]]:
    fields = said.get("fields") if isinstance(said, dict) else None
    return [each for each in fields if isinstance(each, dict)] if isinstance(fields, list) else []


def _is_written(said: Any, depth: int = 0) -> bool:
    """Whether the converter could have written this as a schema: a producer may write anything."""
    if not isinstance(said, dict) or depth > DEPTH_MAX:
        return False
    kind, name, parameters = (said.get(key) for key in ("type", "name", "parameters"))
    if not isinstance(kind, str) or not isinstance(name, str | None):
        return False
    if not isinstance(parameters, dict | None):
        return False
    if name == _DECIMAL and not all(map(_NUMBER.fullmatch, map(str, _decimal(said)))):
        return False
    within = {"array": ("items",), "map": ("keys", "values")}.get(kind, ())
    if not all(_is_written(said.get(key), depth + 1) for key in within):
        return False
    if kind != "struct" or name == VARIABLE_DECIMAL:
        return True
    fields = said.get("fields")
    return isinstance(fields, list) and all(
        _is_written(each, depth + 1) and _is_named(each) for each in fields
    )


def _is_named(said: dict[str, Any]) -> bool:
    name = said.get("field")
    return isinstance(name, str) and not _SURROGATE.search(name)


def _decimal(said: dict[str, Any]) -> tuple[Any, Any]:
    """Precision and scale."""
    parameters = said.get("parameters") or {}
    precision = parameters.get("connect.decimal.precision") or DIGITS_MAX
    return precision, parameters.get("scale") or 0


def _struct(said: dict[str, Any], is_root: bool = True) -> dict[str, Any]:
    fields = []
    for each in _fields(said):
        kind = _type(each, is_root)
        metadata = {} if kind else {DIGITS_MARK: True}
        fields.append(column_of(each["field"], kind or "string", metadata))
    return {"type": "struct", "fields": fields}


def _type(said: Any, is_root: bool, is_field: bool = True) -> Any:
    """Spark's JSON of a type, "" for a decimal of any size. What is in lists and maps has Connect's
    plain types."""
    kind = said.get("type") if isinstance(said, dict) else None
    name = said.get("name") if isinstance(said, dict) and is_field else None
    if name == _DECIMAL:
        precision, scale = map(int, _decimal(said))
        return decimal_of(precision, scale) or _digits(is_root)
    if name == VARIABLE_DECIMAL and is_root:
        return ""
    if name in _NAMED:
        return _NAMED[name]
    if kind == "struct":
        if not _fields(said):
            raise UnfitSchema("a struct has no fields")
        return _struct(said, is_root=False)
    if kind == "array":
        element = _type(said.get("items"), False, is_field=False)
        return array_of(element)
    if kind == "map":
        key, value = (_type(said.get(side), False, is_field=False) for side in ("keys", "values"))
        if key != "string":
            # The converter writes a list of pairs: the column has it as text.
            return "string"
        return map_of(key, value)
    if kind not in _PLAIN:
        raise UnfitSchema(f"a type of Kafka Connect is not known: {json.dumps(kind)[:60]}")
    return _PLAIN[kind]


def _digits(is_root: bool) -> str:
    if not is_root:
        raise UnfitSchema(
            f"a decimal of more than {DIGITS_MAX} digits is in a struct; set the connector's "
            "decimal.handling.mode=string"
        )
    return ""
