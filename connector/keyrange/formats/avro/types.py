"""The columns of Avro's schemas: Spark's, as its own `from_avro` makes them.

The rules are those of spark-avro's SchemaConverters. There, and here, nanoseconds and milliseconds
of a day are the numbers that Avro writes, and a UUID of 16 bytes is its bytes. Microseconds of a
day are a number too: Spark's TIME for them is a type that Delta's tables do not have.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from keyrange.formats.avro.schemas import DEPTH_MAX, AvroType
from keyrange.formats.column_kinds import below, where
from keyrange.model.ddl import DIGITS_MAX
from keyrange.model.value_forms import COLUMNS_MAX, UnfitSchema

_LONG, _DOUBLE, _NULL = AvroType("long"), AvroType("double"), AvroType("null")
_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_TIMES: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def members(union: AvroType) -> AvroType | tuple[AvroType, ...]:
    """What a union is in a column: the one type that it has beside null, or that holds all; or the
    types of the fields of a struct."""
    others = tuple(each for each in union.branches if each.kind != "null")
    kinds = {each.kind for each in others}
    if len(others) == 2 and kinds == {"int", "long"}:
        return _LONG
    if len(others) == 2 and kinds == {"float", "double"}:
        return _DOUBLE
    if len(others) > 1:
        return others
    return others[0] if others else _NULL


def arrow_type(schema: AvroType) -> pa.DataType:
    """Everything in it may be null. Raises UnfitSchema with the path of the field."""
    return _Columns().of(schema, "", ())


class _Columns:
    def __init__(self) -> None:
        self._made = 0

    def of(self, schema: AvroType, path: str, outer: tuple[AvroType, ...]) -> pa.DataType:
        self._made += 1
        if self._made > COLUMNS_MAX:
            raise UnfitSchema(f"the schema makes more than {COLUMNS_MAX} columns")
        if len(outer) > DEPTH_MAX:
            raise UnfitSchema(f"the schema nests more than {DEPTH_MAX} records")
        if schema in outer:
            raise UnfitSchema(
                f"{where(path)}{schema} is in itself, and no column holds that: leave the field "
                "out of the reader's schema"
            )
        if schema.kind == "union":
            held = members(schema)
            if isinstance(held, AvroType):
                return self.of(held, path, outer)
            named = {f"member{at}": each for at, each in enumerate(held)}
            return self._struct(named, path, outer)
        if schema.kind == "record":
            fields = {each.name: each.type for each in schema.fields}
            return self._struct(fields, path, (*outer, schema))
        if schema.kind == "array":
            return pa.list_(pa.field("element", self.of(schema.element, f"{path}[]", outer)))
        if schema.kind == "map":
            value = pa.field("value", self.of(schema.element, f"{path}{{}}", outer))
            return pa.map_(pa.field("key", pa.string(), nullable=False), value)
        if schema.logical == "decimal":
            if schema.precision > DIGITS_MAX:
                raise UnfitSchema(
                    f"{where(path)}a decimal of {schema.precision} digits; a column holds "
                    f"{DIGITS_MAX}"
                )
            return pa.decimal128(schema.precision, schema.scale)
        return _TIMES.get(schema.logical, _PLAIN[schema.kind])

    def _struct(
        self, fields: dict[str, AvroType], path: str, outer: tuple[AvroType, ...]
    ) -> pa.DataType:
        return pa.struct(
            [
                pa.field(name, self.of(each, below(path, name), outer))
                for name, each in fields.items()
            ]
        )
