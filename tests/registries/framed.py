"""A format for the tests of framed payloads: its columns say by which schema a payload was read."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema
from keyrange.registry.registered_schemas import RegisteredSchema, SchemaId

HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMN = pa.struct([("schema", pa.string()), ("message", pa.string()), ("payload", pa.binary())])
UNFIT, MESSAGES = "unfit", ("first", "second", "first.inner")
_PATHS = {(0,): "first", (1,): "second", (0, 0): "first.inner"}


class ToldDecoder:
    """A payload that begins with ! is a bad one."""

    type = COLUMN

    def __init__(self, writer: Schema, settings: ReadSettings) -> None:
        self._writer = writer
        self._rescues = settings.rescues

    def read(self, payloads: Payloads) -> ReadValues:
        values = [payloads.row(at) for at in range(len(payloads))]
        bad = [at for at, each in enumerate(values) if each is not None and each[:1] == b"!"]
        rows = [
            None if each is None or at in bad else self._row(each) for at, each in enumerate(values)
        ]
        left = [None if row is None else f'"{row["schema"]}"' for row in rows]
        return ReadValues(
            pa.array(rows, COLUMN),
            dict.fromkeys(bad, f"bad by {self._writer.text}"),
            pa.array(left, pa.string()) if self._rescues else None,
        )

    def _row(self, payload: bytes) -> dict[str, Any]:
        writer = self._writer
        return {"schema": writer.text, "message": writer.message, "payload": payload}


class ToldFormat:
    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:
        return COLUMN

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> ToldDecoder:
        if writer.text == UNFIT:
            raise UnfitSchema("field a is missing")
        return ToldDecoder(writer, settings)

    def message_at(self, schema: Schema, indexes: tuple[int, ...]) -> str:
        if indexes not in _PATHS:
            raise UnfitSchema("it has no such message")
        return _PATHS[indexes]


@dataclass
class Known:
    """Schemas without a registry; `asked` has each question."""

    schemas: dict[SchemaId, RegisteredSchema]
    asked: list[SchemaId] = field(default_factory=list)

    def find(self, id: SchemaId) -> RegisteredSchema | None:
        self.asked.append(id)
        return self.schemas.get(id)


def zigzag(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def prefix(id: SchemaId, indexes: Sequence[int] = ()) -> bytes:
    """As Confluent's serializers write it."""
    number = isinstance(id, int)
    written = struct.pack(">bI", 0, id) if number else b"\x01" + uuid.UUID(str(id)).bytes
    if not indexes:
        return written
    if list(indexes) == [0]:
        return written + b"\0"
    return written + zigzag(len(indexes)) + b"".join(map(zigzag, indexes))
