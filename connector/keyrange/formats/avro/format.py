"""Avro as a format of values: what the driver asks of it loads no decoder."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyrange.formats.avro.schemas import AvroType, parse
from keyrange.formats.avro.types import arrow_type
from keyrange.formats.format import WrittenFormat
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder, Encoder

# Texts are read once: each batch's tasks, and each id of a registry, ask again.
_parsed = functools.lru_cache(maxsize=256)(parse)


class _Avro(WrittenFormat):
    """Each schema is Avro's JSON. Times have zones or none by their schema, so the settings' zone
    says nothing."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        return arrow_type(_parsed(schema))

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> Decoder:
        return _decoder(_parsed(writer), _parsed(reader), settings)

    def check_reads(self, reader: Schema, writer: Schema, settings: ReadSettings) -> None:
        from keyrange.formats.avro.resolution import misfits

        decoder: Any = self.decoder(reader, writer, settings)
        for why in misfits(decoder.action):
            raise UnfitSchema(why)

    def unframed_decoder(
        self, schema: Schema, writers: Sequence[Schema], settings: ReadSettings
    ) -> Decoder:
        from keyrange.formats.avro.single_object import SingleObjectDecoder

        reader = _parsed(schema)
        return SingleObjectDecoder(
            reader,
            [*map(_parsed, writers)],
            lambda writer: _decoder(writer, reader, settings),
            rescues=settings.rescues,
        )

    def schema_of(self, kind: pa.DataType) -> Schema:
        from keyrange.formats.avro.derived import derived

        return Schema(json.dumps(derived(kind)))

    def encoder(self, kind: pa.DataType, schema: Schema, prefix: bytes) -> Encoder:
        from keyrange.formats.avro.encoder import encoder_of

        return encoder_of(kind, _parsed(schema), prefix)

    def own_prefix(self, schema: Schema) -> bytes:
        """The header of Avro's single-object encoding."""
        from keyrange.formats.avro.fingerprints import header

        return header(_parsed(schema))


def _decoder(writer: AvroType, reader: AvroType, settings: ReadSettings) -> Decoder:
    from keyrange.formats.avro.decoder import AvroDecoder

    try:
        return AvroDecoder(writer, reader, rescues=settings.rescues)
    except RecursionError:
        raise UnfitSchema("the schemas are nested too deeply") from None


FORMAT = _Avro()
