"""JSON as a format of values: what the driver asks of it loads no decoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from keyrange.formats.format import Format
from keyrange.formats.schema_document import in_utc, struct_type
from keyrange.model.value_forms import ReadSettings, Schema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder


class _Json(Format):
    """A schema is Spark's JSON of the columns; what wrote a value has no say in how it is read."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        return in_utc(struct_type(json.loads(schema.text)))

    def decoder(
        self,
        reader: Schema,
        writer: Schema,  # noqa: ARG002
        settings: ReadSettings,
    ) -> Decoder:
        from keyrange.formats.json.decoder import JsonDecoder

        kind = struct_type(json.loads(reader.text), settings.time_zone)
        return JsonDecoder(kind, settings.rescues)


FORMAT = _Json()
