"""The document that Spark writes of a schema, as Arrow's types and as DDL: also where there is no
Spark, as for the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# By Spark's name in a document: Arrow's type, and the word of DDL.
_PLAIN: Final[dict[str, tuple[Callable[[], pa.DataType], str]]] = {
    "boolean": (pa.bool_, "boolean"),
    "byte": (pa.int8, "tinyint"),
    "short": (pa.int16, "smallint"),
    "integer": (pa.int32, "int"),
    "long": (pa.int64, "bigint"),
    "float": (pa.float32, "float"),
    "double": (pa.float64, "double"),
    "string": (pa.string, "string"),
    "binary": (pa.binary, "binary"),
    "date": (pa.date32, "date"),
    "timestamp": (lambda: pa.timestamp("us", tz="UTC"), "timestamp"),
    "timestamp_ntz": (lambda: pa.timestamp("us"), "timestamp_ntz"),
}


def struct_type(document: Mapping[str, Any]) -> pa.StructType:
    """The columns of a schema, as pyspark's `to_arrow_schema` makes them with time zone UTC.

    Raises KeyError with the name of a type that keyrange keeps and writes no values of.
    """
    return pa.struct(
        [
            pa.field(each["name"], _arrow_type(each["type"]), each["nullable"])
            for each in document["fields"]
        ]
    )


def _arrow_type(kind: str | Mapping[str, Any]) -> pa.DataType:
    if isinstance(kind, str):
        found = _DECIMAL.fullmatch(kind)
        return pa.decimal128(*map(int, found.groups())) if found else _PLAIN[kind][0]()
    if kind["type"] == "struct" and kind["fields"]:
        return struct_type(kind)
    if kind["type"] == "array":
        element = _arrow_type(kind["elementType"])
        return pa.list_(pa.field("element", element, kind["containsNull"]))
    if kind["type"] != "map":
        raise KeyError(kind["type"])
    value = pa.field("value", _arrow_type(kind["valueType"]), kind["valueContainsNull"])
    return pa.map_(pa.field("key", _arrow_type(kind["keyType"]), False), value)


def ddl_of(document: Mapping[str, Any], between: str = " ") -> str:
    """The columns of a schema in DDL, as `parse_ddl` reads it."""
    columns = []
    for each in document["fields"]:
        name = each["name"]
        quoted = name if _WORD.fullmatch(name) else f"`{name.replace('`', '``')}`"
        columns.append(f"{quoted}{between}{_ddl_type(each['type'])}")
    return ", ".join(columns)


def _ddl_type(kind: str | Mapping[str, Any]) -> str:
    if isinstance(kind, str):
        return _PLAIN[kind][1] if kind in _PLAIN else kind
    if kind["type"] == "struct":
        return f"struct<{ddl_of(kind, ': ')}>"
    if kind["type"] == "array":
        return f"array<{_ddl_type(kind['elementType'])}>"
    return f"map<{_ddl_type(kind['keyType'])}, {_ddl_type(kind['valueType'])}>"
