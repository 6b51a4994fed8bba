"""The defaults of fields, which Avro's schemas give as JSON, in the form that Arrow takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from keyrange.formats.avro.schemas import MISSING, AvroType
from keyrange.formats.avro.types import members
from keyrange.formats.column_kinds import below, where
from keyrange.model.value_forms import UnfitSchema

_MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")
BITS: Final = {"int": 32, "long": 64}


def in_micros(logical: str) -> int:
    """The microseconds of one of what Avro counts, for a column that counts those."""
    return 1000 if logical in _MILLIS else 1


def default_of(said: Any, schema: AvroType, path: str) -> Any:
    """Raises UnfitSchema where the JSON is of another type."""
    try:
        return _value(said, schema, path)
    except ValueError as failure:
        if isinstance(failure, UnfitSchema):
            raise
        raise UnfitSchema(f"{where(path)}the default of the reader's {schema} is none") from None


def _value(said: Any, schema: AvroType, path: str) -> Any:
    kind = schema.kind
    if kind == "union":
        return _of_union(said, schema, path)
    if kind == "null" and said is None:
        return None
    if kind == "boolean" and type(said) is bool:
        return said
    if kind in BITS and type(said) is int:
        return _integer(said, schema)
    if kind in ("float", "double") and type(said) in (int, float, str):
        return float(said)  # NaN and Infinity are texts
    if kind in ("string", "enum") and type(said) is str:
        if kind == "enum" and said not in schema.symbols:
            raise ValueError
        return said
    if kind in ("bytes", "fixed") and type(said) is str:
        return _bytes(said.encode("latin-1"), schema)
    if kind == "array" and type(said) is list:
        return [_value(each, schema.element, f"{path}[]") for each in said]
    if kind == "map" and type(said) is dict:
        return [(key, _value(each, schema.element, f"{path}{{}}")) for key, each in said.items()]
    if kind == "record" and type(said) is dict:
        return {
            each.name: _value(
                _given(said, each.name, each.default), each.type, below(path, each.name)
            )
            for each in schema.fields
        }
    raise ValueError


def _given(said: dict[str, Any], name: str, default: Any) -> Any:
    if name in said:
        return said[name]
    if default is MISSING:
        raise ValueError
    return default


def _of_union(said: Any, schema: AvroType, path: str) -> Any:
    """By the first branch that it fits."""
    held = members(schema)
    for each in schema.branches:
        plain = held if isinstance(held, AvroType) and each.kind != "null" else each
        try:
            value = _value(said, plain, path)
        except ValueError:
            continue
        if each.kind == "null" or isinstance(held, AvroType):
            return value
        return {f"member{held.index(each)}": value}
    raise ValueError


def _integer(said: int, schema: AvroType) -> int:
    limit = 1 << (BITS[schema.kind] - 1)
    value = said * in_micros(schema.logical)
    if not -limit <= said < limit or not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def _bytes(said: bytes, schema: AvroType) -> bytes | Decimal:
    if schema.kind == "fixed" and len(said) != schema.size:
        raise ValueError
    return decimal_of(said, schema) if schema.logical == "decimal" else said


def decimal_of(unscaled: bytes, schema: AvroType) -> Decimal:
    """Raises ValueError where there is none, or one of more digits than the schema says."""
    value = int.from_bytes(unscaled, "big", signed=True)
    if not unscaled or abs(value) >= 10**schema.precision:
        raise ValueError
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -schema.scale))
