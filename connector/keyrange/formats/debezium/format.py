"""Debezium's envelope as a format of values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from keyrange.formats.connect.format import (
    avro_decoder,
    avro_type,
    columns_of,
    is_avro,
)
from keyrange.formats.format import ChangeFormat
from keyrange.model.value_forms import DELETED, KEPT, ReadSettings, Schema, UnfitSchema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder, Flags, ReadKeys, ReadValues

_FIELDS: Final = ("before", "after", "op", "ts_ms")
# What else an envelope has, of all connectors.
_OTHERS: Final = ("source", "transaction", "ts_us", "ts_ns")
_NAMES: Final = pa.list_(pa.field("element", pa.string()))


class _Debezium(ChangeFormat):
    """A schema is Spark's JSON of the captured table's columns, or Avro's JSON of the envelope. A
    change is a struct: the row `before` and `after` it, `op` (c, r: read by a snapshot, u, d, t, m)
    and `ts_ms`."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        if is_avro(schema):
            return _checked(avro_type(schema, _FIELDS))
        from keyrange.formats.connect.decoder import shown

        return shown(_envelope(columns_of(schema)))

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> Decoder:
        from keyrange.formats.connect.decoder import ConnectDecoder
        from keyrange.formats.debezium.decoder import EnvelopeDecoder

        if is_avro(reader):
            return EnvelopeDecoder(avro_decoder(writer, reader, _FIELDS, settings.rescues))
        changes = _envelope(columns_of(reader, settings.time_zone))
        given = "after", _OTHERS, settings.rescues
        return EnvelopeDecoder(ConnectDecoder(changes, *given))

    def said_by(self, payload: bytes) -> Schema | None:
        from keyrange.formats.connect.schema_columns import columns_said_by

        return columns_said_by(payload, ("after",))

    def rows_type(self, changes: pa.DataType) -> pa.StructType:
        return pa.struct([*changes.field("after").type, (DELETED, pa.bool_()), (KEPT, _NAMES)])

    def key_schema(self, schema: Schema, keys: Sequence[str]) -> Schema:
        document = json.loads(schema.text)
        if is_avro(schema):
            from keyrange.formats.avro.kept_fields import with_fields

            return Schema(json.dumps(with_fields(_record_of_rows(document), keys)))
        fields = [each for each in document["fields"] if each["name"] in keys]
        return Schema(json.dumps(document | {"fields": fields}))

    def rows(
        self, changes: ReadValues, present: Flags, keys: Sequence[str], read_keys: ReadKeys
    ) -> ReadValues:
        from keyrange.formats.debezium.rows import rows_of

        return rows_of(changes, present, keys, read_keys, self.rows_type(changes.column.type))


def _checked(kind: pa.DataType) -> pa.DataType:
    """The envelope's columns in their order. Raises UnfitSchema where it is none."""
    fields = {each.name: each for each in kind} if pa.types.is_struct(kind) else {}
    sides = [fields[name].type for name in ("before", "after") if name in fields]
    is_rows = len(sides) == 2 and pa.types.is_struct(sides[0]) and sides[0] == sides[1]
    if not is_rows or [*fields] != [*_FIELDS] or fields["op"].type != pa.string():
        raise UnfitSchema(
            "the schema is no envelope of Debezium, which has before, after, op and ts_ms; rows "
            "that ExtractNewRecordState has taken out of it are of format connect"
        )
    return kind


def _record_of_rows(envelope: Any) -> dict[str, Any]:
    """Of an envelope's schema that of its rows, which is where they are first named."""
    for field in envelope["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for kind in kinds:
            if field["name"] in ("before", "after") and isinstance(kind, dict) and "fields" in kind:
                namespace = envelope.get("namespace") or envelope["name"].rpartition(".")[0]
                return {"namespace": namespace, **kind}
    raise UnfitSchema("the rows before and after are of a type that the schema refers to")


def _envelope(row: pa.StructType) -> pa.StructType:
    sides = [("before", row), ("after", row)]
    return pa.struct([*sides, ("op", pa.string()), ("ts_ms", pa.int64())])


FORMAT = _Debezium()
