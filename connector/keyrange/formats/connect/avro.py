"""Kafka Connect's Avro: beside the types of Avro its converter writes the names of those of Kafka
Connect, as `connect.name`, which say what numbers and texts mean."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.avro.schemas import (
    CONNECT_NANOS,
    CONNECT_ZONED,
    AvroField,
    AvroType,
    parse,
)
from keyrange.formats.avro.types import arrow_type, members
from keyrange.formats.column_kinds import below
from keyrange.formats.connect.columns import VARIABLE_DECIMAL, Meaning, read_column, scaled
from keyrange.formats.connect.decoder import null_where_bad
from keyrange.formats.json.decoder import RAW
from keyrange.formats.payloads import Decoder, Payloads, ReadValues
from keyrange.model.ddl import DIGITS_MAX
from keyrange.model.value_forms import Schema

# Avro's own logical types of what Debezium counts: days, and times of columns without zones.
_LOGICAL: Final = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    CONNECT_NANOS: CONNECT_NANOS,
    CONNECT_ZONED: CONNECT_ZONED,
}
_TIME, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
_NULL: Final = AvroType("null")


def written_type(schema: Schema) -> AvroType:
    """What a schema describes. Raises UnfitSchema."""
    texts = [schema.text, *(text for _, text in schema.references)]
    try:
        told, *others = (json.dumps(_with_logical(json.loads(text))) for text in texts)
    except (json.JSONDecodeError, RecursionError):
        # Whoever parses it says why.
        return parse(schema)
    names = (name for name, _ in schema.references)
    return parse(replace(schema, text=told, references=tuple(zip(names, others, strict=True))))


def _with_logical(said: Any) -> Any:
    if isinstance(said, list):
        return [*map(_with_logical, said)]
    if not isinstance(said, dict):
        return said
    found = {name: _with_logical(each) for name, each in said.items()}
    logical = _LOGICAL.get(str(said.get("connect.name")))
    if logical is not None and isinstance(said.get("type"), str):
        found.setdefault("logicalType", logical)
    parameters = said.get("connect.parameters")
    if said.get("logicalType") == "decimal" and isinstance(parameters, dict):
        # The converter writes 64 where the precision is not known.
        known = "connect.decimal.precision" in parameters
        found["precision"] = said.get("precision") if known else DIGITS_MAX
    return found


def read_type(written: AvroType, fields: Collection[str] = ()) -> AvroType:
    """The columns of a schema, where given those of these `fields` alone: a field that another
    schema lacks is null."""
    return _read(written, fields, {})


def _read(written: AvroType, fields: Collection[str], known: dict[AvroType, AvroType]) -> AvroType:
    """`known` are the records so far: one may be used again and again, or be in itself."""
    if written in known:
        return known[written]
    if written.kind == "union":
        return replace(written, branches=tuple(_read(each, (), known) for each in written.branches))
    if written.kind != "record":
        return written
    made = known[written] = replace(written, fields=())
    kept = (each for each in written.fields if not fields or each.name in fields)
    made.fields = tuple(_nullable(each, known) for each in kept)
    return made


def with_others(columns: AvroType, written: AvroType) -> AvroType:
    """With the fields behind them that only who writes has: each row that has a field more than is
    read is read anew."""
    known = {each.name for each in columns.fields}
    more = (_nullable(each, {}) for each in written.fields if each.name not in known)
    return replace(columns, fields=(*columns.fields, *more))


def _nullable(field: AvroField, known: dict[AvroType, AvroType]) -> AvroField:
    found = _read(field.type, (), known)
    branches = found.branches if found.kind == "union" else (found,)
    others = (each for each in branches if each.kind != "null")
    return replace(field, type=AvroType("union", branches=(_NULL, *others)), default=None)


def shown(schema: AvroType) -> pa.DataType:
    """The type of a column. Raises UnfitSchema."""
    return _shown(arrow_type(schema), schema)


def _shown(kind: pa.DataType, schema: AvroType) -> pa.DataType:
    held = _held(schema)
    if held.name == VARIABLE_DECIMAL:
        return pa.string()
    if held.kind == "record":
        fields = zip(kind, held.fields, strict=True)
        return pa.struct([each.with_type(_shown(each.type, field.type)) for each, field in fields])
    return {CONNECT_NANOS: _TIME, CONNECT_ZONED: _INSTANT}.get(held.logical, kind)


def _held(schema: AvroType) -> AvroType:
    """What is in a column of a union, where that is of one type."""
    if schema.kind != "union":
        return schema
    held = members(schema)
    return held if isinstance(held, AvroType) else schema


class ConnectAvroDecoder:
    """What a decoder of Avro reads, as Kafka Connect means it. `schema` is the reader's."""

    def __init__(self, decoder: Decoder, schema: AvroType) -> None:
        self._decoder, self._schema = decoder, schema
        self.type = shown(schema)

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        found = self._decoder.read(payloads)
        why: dict[int, str] = {}
        column, count = found.column, self.type.num_fields
        if pa.types.is_struct(self.type) and count < column.type.num_fields:
            fields, children = list(column.type)[:count], column.flatten()[:count]
            column = pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
        column = _converted(column, self._schema, "", why)
        why |= found.bad
        return null_where_bad(column, why, found.rescued)


def _converted(column: pa.Array, schema: AvroType, path: str, bad: dict[int, str]) -> pa.Array:
    held = _held(schema)
    if held.name == VARIABLE_DECIMAL:
        return _digits(column, path, bad)
    if held.kind == "record":
        children = [
            _converted(child, field.type, below(path, field.name), bad)
            for child, field in zip(column.flatten(), held.fields, strict=True)
        ]
        fields = list(_shown(column.type, held))
        return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
    if held.logical == CONNECT_NANOS:
        return _floored(column)
    if held.logical == CONNECT_ZONED:
        # As a JSON text, which is read so too.
        texts = pc.binary_join_element_wise('"', column, '"', "").cast(RAW)
        column, why = read_column(texts, _INSTANT, Meaning(CONNECT_ZONED))
        for row, text in why.items():
            bad.setdefault(row, f"field {path}: {text}")
    return column


def _floored(nanos: pa.Array) -> pa.Array:
    """Whole microseconds."""
    values = nanos.fill_null(0).to_numpy() // 1000
    return pa.array(values, mask=nanos.is_null().to_numpy(zero_copy_only=False)).view(_TIME)


def _digits(column: pa.Array, path: str, bad: dict[int, str]) -> pa.Array:
    found: list[str | None] = []
    for row, each in enumerate(column.to_pylist()):
        if each is None:
            found.append(None)
        elif each["scale"] is None or each["value"] is None:
            bad.setdefault(row, f"field {path}: a decimal without its scale or value")
            found.append(None)
        else:
            try:
                found.append(f"{scaled(each['value'], each['scale']):f}")
            except ValueError:
                bad.setdefault(row, f"field {path}: a decimal without bytes, or of a scale of none")
                found.append(None)
    return pa.array(found, pa.string())
