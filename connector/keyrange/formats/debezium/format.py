"""Debezium's envelope as a format of values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from keyrange.formats.connect.format import columns_of
from keyrange.formats.format import ChangeFormat
from keyrange.model.value_forms import DELETED, KEPT, ReadSettings, Schema

if TYPE_CHECKING:
    from keyrange.formats.payloads import Decoder, Flags, ReadKeys, ReadValues

_NAMES: Final = pa.list_(pa.field("element", pa.string()))


class _Debezium(ChangeFormat):
    """A schema is Spark's JSON of the captured table's columns. A change is a struct: the row
    `before` and `after` it, `op` (c, r: read by a snapshot, u, d, t, m) and `ts_ms`."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        from keyrange.formats.connect.decoder import shown

        return shown(_envelope(columns_of(schema)))

    def decoder(
        self,
        reader: Schema,
        writer: Schema,  # noqa: ARG002
        settings: ReadSettings,
    ) -> Decoder:
        from keyrange.formats.connect.decoder import ConnectDecoder
        from keyrange.formats.debezium.decoder import EnvelopeDecoder

        return EnvelopeDecoder(ConnectDecoder(_envelope(columns_of(reader, settings.time_zone))))

    def rows_type(self, changes: pa.DataType) -> pa.StructType:
        return pa.struct([*changes.field("after").type, (DELETED, pa.bool_()), (KEPT, _NAMES)])

    def key_schema(self, schema: Schema, keys: Sequence[str]) -> Schema:
        document = json.loads(schema.text)
        fields = [each for each in document["fields"] if each["name"] in keys]
        return Schema(json.dumps(document | {"fields": fields}))

    def rows(
        self, changes: ReadValues, present: Flags, keys: Sequence[str], read_keys: ReadKeys
    ) -> ReadValues:
        from keyrange.formats.debezium.rows import rows_of

        return rows_of(changes, present, keys, read_keys, self.rows_type(changes.column.type))


def _envelope(row: pa.StructType) -> pa.StructType:
    sides = [("before", row), ("after", row)]
    return pa.struct([*sides, ("op", pa.string()), ("ts_ms", pa.int64())])


FORMAT = _Debezium()
