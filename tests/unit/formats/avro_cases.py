"""What tests of Avro write schemas and values with."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from keyrange.formats.avro.decoder import AvroDecoder
from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema

AVRO = format_of("avro")
SETTINGS = ReadSettings()


def schema(said: Any, *references: Any) -> Schema:
    named = tuple((str(at), json.dumps(each)) for at, each in enumerate(references))
    return Schema(json.dumps(said), references=named)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields are (name, type) or (name, type, default)."""
    made = []
    for field, kind, *default in fields:
        made.append({"name": field, "type": kind, **({"default": default[0]} if default else {})})
    return {"type": "record", "name": name, "fields": made, **more}


def decoder(reader: Any, writer: Any = None, **settings: Any) -> AvroDecoder:
    made = AVRO.decoder(
        schema(reader), schema(reader if writer is None else writer), ReadSettings(**settings)
    )
    assert isinstance(made, AvroDecoder)
    return made


def read(made: AvroDecoder, *payloads: bytes | None) -> ReadValues:
    found = made.read(Payloads.of(pa.array(payloads, pa.binary())))
    found.column.validate(full=True)
    return found


def values(reader: Any, *payloads: bytes | None, writer: Any = None) -> list[Any]:
    """Of payloads that are all good."""
    found = read(decoder(reader, writer), *payloads)
    assert found.bad == {}
    return found.column.to_pylist()  # type: ignore[no-any-return]


def error(reader: Any, payload: bytes, writer: Any = None) -> str:
    found = read(decoder(reader, writer), payload)
    assert found.column.to_pylist() == [None]
    return next(iter(found.bad.values()))


def long(value: int) -> bytes:
    raw, out = (value << 1) ^ (value >> 63), bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


def text(value: str) -> bytes:
    return long(len(value.encode())) + value.encode()


def written(said: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(said), value)
    return out.getvalue()


DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def decimal(precision: int, scale: int = 0) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
