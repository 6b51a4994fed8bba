"""Debezium's envelope as a format of values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from keyrange.formats.format import Format
from keyrange.formats.schema_document import in_utc, struct_type
from keyrange.model.value_forms import ReadSettings, Schema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder


class _Debezium(Format):
    """A schema is Spark's JSON of the captured table's columns. A change is a struct: the row
    `before` and `after` it, `op` (c, r: read by a snapshot, u, d, t, m) and `ts_ms`."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        row = in_utc(struct_type(json.loads(schema.text)))
        changes = [("before", row), ("after", row), ("op", pa.string()), ("ts_ms", pa.int64())]
        return pa.struct(changes)

    def decoder(
        self,
        reader: Schema,
        writer: Schema,  # noqa: ARG002
        settings: ReadSettings,
    ) -> Decoder:
        from keyrange.formats.debezium.decoder import DebeziumDecoder

        return DebeziumDecoder(struct_type(json.loads(reader.text), settings.time_zone))


FORMAT = _Debezium()
