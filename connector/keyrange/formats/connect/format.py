"""Kafka Connect's records as a format of keys and values."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyrange.formats.format import Format
from keyrange.formats.schema_document import check_json_keys, struct_type
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema

if TYPE_CHECKING:
    from keyrange.formats.avro.schemas import AvroType
    from keyrange.formats.payloads import Decoder


class _Connect(Format):
    """A schema is Spark's JSON of the columns, or Avro's JSON."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        if is_avro(schema):
            return avro_type(schema)
        from keyrange.formats.connect.decoder import shown

        return shown(columns_of(schema))

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> Decoder:
        from keyrange.formats.connect.decoder import ConnectDecoder

        if is_avro(reader):
            return avro_decoder(writer, reader, rescues=settings.rescues)
        return ConnectDecoder(columns_of(reader, settings.time_zone), rescues=settings.rescues)

    def said_by(self, payload: bytes) -> Schema | None:
        from keyrange.formats.connect.schema_columns import columns_said_by

        return columns_said_by(payload)


def is_avro(schema: Schema) -> bool:
    """Whether a schema is Avro's, and payloads are too."""
    try:
        document = json.loads(schema.text)
    except ValueError as failure:
        raise UnfitSchema(f"the schema is not JSON: {failure}") from None
    return not isinstance(document, dict) or document.get("type") != "struct"


def avro_type(schema: Schema, fields: Collection[str] = ()) -> pa.DataType:
    """The type of a schema's columns, where given of these `fields` alone."""
    from keyrange.formats.connect.avro import read_type, shown

    return shown(read_type(_written(schema), fields))


def avro_decoder(
    writer: Schema, reader: Schema, fields: Collection[str] = (), rescues: bool = False
) -> Decoder:
    """For the columns of a reader's schema, where given of these `fields` alone: nobody rescues
    others."""
    from keyrange.formats.avro.decoder import AvroDecoder
    from keyrange.formats.connect.avro import ConnectAvroDecoder, read_type, with_others

    columns, written = read_type(_written(reader), fields), _written(writer)
    wide = with_others(columns, written) if rescues and fields else columns
    try:
        plain = AvroDecoder(written, wide, rescues=rescues)
    except RecursionError:
        raise UnfitSchema("the schemas are nested too deeply") from None
    return ConnectAvroDecoder(plain, columns)


@functools.lru_cache(maxsize=256)
def _written(schema: Schema) -> AvroType:
    from keyrange.formats.connect.avro import written_type

    return written_type(schema)


def columns_of(schema: Schema, time_zone: str = "UTC") -> pa.StructType:
    """The columns of Spark's JSON, decimals of any size among them as `DIGITS`. Raises UnfitSchema
    for what JSON cannot say."""
    from keyrange.formats.connect.columns import DIGITS
    from keyrange.formats.connect.schema_columns import DIGITS_MARK

    document: dict[str, Any] = json.loads(schema.text)
    kind = struct_type(document, time_zone)
    check_json_keys(kind)
    marked = [each["name"] for each in document["fields"] if each["metadata"].get(DIGITS_MARK)]
    return pa.struct([each.with_type(DIGITS) if each.name in marked else each for each in kind])


FORMAT = _Connect()
