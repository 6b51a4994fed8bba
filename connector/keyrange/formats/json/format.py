"""JSON as a format of values: what the driver asks of it loads no decoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from keyrange.formats.format import WrittenFormat
from keyrange.formats.json.json_schema import columns_of
from keyrange.formats.schema_document import check_json_keys, in_utc, struct_type
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder, Encoder


class _Json(WrittenFormat):
    """A schema is Spark's JSON of the columns, or a JSON Schema, which tasks are told as columns;
    what wrote a value has no say in how it is read."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        document = json.loads(self.told(schema).text)
        try:
            found = in_utc(struct_type(document))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as failure:
            # A registry may answer with what looks like the columns that Spark writes.
            message = f"the schema has columns that cannot be read: {str(failure)[:100]}"
            raise UnfitSchema(message) from None
        check_json_keys(found)
        return found

    def told(self, schema: Schema) -> Schema:
        return schema if _has_columns(schema) else Schema(columns_of(schema))

    def decoder(
        self,
        reader: Schema,
        writer: Schema,  # noqa: ARG002
        settings: ReadSettings,
    ) -> Decoder:
        from keyrange.formats.json.decoder import JsonDecoder

        kind = struct_type(json.loads(reader.text), settings.time_zone)
        return JsonDecoder(kind, settings.rescues)

    def schema_of(self, kind: pa.DataType) -> Schema:  # noqa: ARG002
        """None: columns say it all."""
        return Schema("")

    def encoder(self, kind: pa.DataType, schema: Schema, prefix: bytes) -> Encoder:  # noqa: ARG002
        from keyrange.formats.json.encoder import JsonEncoder

        assert not prefix
        return JsonEncoder(kind)


def _has_columns(schema: Schema) -> bool:
    try:
        document = json.loads(schema.text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("type") == "struct"


FORMAT = _Json()
