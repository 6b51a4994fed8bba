"""Protobuf as a format of values: what the driver asks of it loads no decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from keyrange.formats.format import WrittenFormat
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema
from keyrange.text.packages import install_line

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder, Encoder
    from keyrange.formats.protobuf.messages import Message


class _Protobuf(WrittenFormat):
    """A schema's text is the source of a .proto file, or descriptors in base64. Each field has its
    number in the payload, so of what wrote one only the message counts. No time needs a zone."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        return _columns(schema).type

    def decoder(
        self,
        reader: Schema,
        writer: Schema,
        settings: ReadSettings,
    ) -> Decoder:
        columns = _columns(reader)
        from keyrange.formats.protobuf.decoder import ProtobufDecoder
        from keyrange.formats.protobuf.descriptors import message_of

        message = message_of(reader, maps=False)
        name = message.full_name
        if writer is not reader and writer.message and writer.message != name:
            raise UnfitSchema(f"is message {writer.message}, and {name} is read")
        return ProtobufDecoder(message, columns, rescues=settings.rescues)

    def told(self, schema: Schema) -> Schema:
        """As descriptors: tasks need no compiler."""
        from keyrange.formats.protobuf.descriptors import serialized

        return serialized(schema)

    def message_at(self, schema: Schema, indexes: tuple[int, ...]) -> str:
        """The full name of a message, as `keyrange.registry.framed_decoder` asks for it."""
        from keyrange.formats.protobuf.descriptors import message_at

        return message_at(schema, indexes)

    def indexes_of(self, schema: Schema) -> tuple[int, ...]:
        """Where the message is that a schema names: the other way round."""
        from keyrange.formats.protobuf.descriptors import indexes_of

        return indexes_of(schema)

    def registered(self, schema: Schema) -> str:
        """One file: a registry knows what it imports by subjects, which nothing here says."""
        from keyrange.formats.protobuf.descriptors import alone

        return alone(schema)

    def schema_of(self, kind: pa.DataType) -> Schema:  # noqa: ARG002
        """None: nothing says which numbers fields have, and columns that change their places would
        be read as one another."""
        raise UnfitSchema("is needed: columns say no numbers of fields")

    def encoder(self, kind: pa.DataType, schema: Schema, prefix: bytes) -> Encoder:
        columns = _columns(schema)
        from keyrange.formats.protobuf.encoder import encoder_of

        return encoder_of(kind, columns, prefix)


def _columns(schema: Schema) -> Message:
    try:
        from keyrange.formats.protobuf.descriptors import message_of
        from keyrange.formats.protobuf.messages import message_columns
    except ModuleNotFoundError as failure:
        if not (failure.name or "").startswith("google"):
            raise
        raise UnfitSchema(f"needs the package protobuf: {install_line('protobuf')}") from failure
    return message_columns(message_of(schema))


FORMAT = _Protobuf()
