"""Kafka Connect's records as a format of keys and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from keyrange.formats.format import Format
from keyrange.formats.schema_document import struct_type
from keyrange.model.value_forms import ReadSettings, Schema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder

# In the metadata of a column, a text: it holds decimals of any size.
DIGITS_MARK: Final = "keyrange.digits"


class _Connect(Format):
    """A schema is Spark's JSON of the columns."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        from keyrange.formats.connect.decoder import shown

        return shown(columns_of(schema))

    def decoder(
        self,
        reader: Schema,
        writer: Schema,  # noqa: ARG002
        settings: ReadSettings,
    ) -> Decoder:
        from keyrange.formats.connect.decoder import ConnectDecoder

        return ConnectDecoder(columns_of(reader, settings.time_zone))


def columns_of(schema: Schema, time_zone: str = "UTC") -> pa.StructType:
    """The columns of Spark's JSON, decimals of any size among them as `DIGITS`."""
    from keyrange.formats.connect.columns import DIGITS

    document: dict[str, Any] = json.loads(schema.text)
    kind = struct_type(document, time_zone)
    marked = [each["name"] for each in document["fields"] if each["metadata"].get(DIGITS_MARK)]
    return pa.struct([each.with_type(DIGITS) if each.name in marked else each for each in kind])


FORMAT = _Connect()
