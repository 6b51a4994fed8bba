"""What a format of keys and values is: a module with a `FORMAT`, imported when it is first used.

`keyrange.model.value_forms.FORMATS` names them all.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from keyrange.model.value_forms import CHANGES, WRITTEN, ReadSettings, Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.formats.payloads import Decoder, Encoder, Flags, ReadKeys, ReadValues


class Format(Protocol):
    """Raises `UnfitSchema`."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:
        """The type of a column of what this schema describes: one that Spark's Arrow has, that is
        `to_arrow_type(from_arrow_type(it))` is it again, everything in it nullable."""

    def told(self, schema: Schema) -> Schema:
        """The same schema as the driver tells it to tasks, which are to read it fast."""
        return schema

    def said_by(self, payload: bytes) -> Schema | None:
        """The schema of the columns that a payload brings with it; None where it brings none."""
        del payload
        return None

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> Decoder:
        """Reads what was written by `writer` into the column of `reader`. They are the same where
        nobody says by which schema a payload was written."""

    def check_reads(self, reader: Schema, writer: Schema, settings: ReadSettings) -> None:
        """Raises UnfitSchema too where a value of the writer's has no place in the column."""
        self.decoder(reader, writer, settings)

    def unframed_decoder(
        self, schema: Schema, writers: Sequence[Schema], settings: ReadSettings
    ) -> Decoder:
        """Reads what says no schema of a registry into the column of `schema`: it was written by
        that, or says itself by which of `writers`."""
        del writers
        return self.decoder(schema, schema, settings)


class ChangeFormat(Format, Protocol):
    """A format whose values say what becomes of rows, and are read as the rows after them too."""

    def rows_type(self, changes: pa.DataType) -> pa.StructType:
        """The columns of these rows, DELETED and KEPT behind them; `changes` is the type of the
        values' column."""

    def key_schema(self, schema: Schema, keys: Sequence[str]) -> Schema:
        """That of the record's keys, in format `connect`: these columns of the rows."""

    def rows(
        self, changes: ReadValues, present: Flags, keys: Sequence[str], read_keys: ReadKeys
    ) -> ReadValues:
        """A row for each change. A record without a value, not `present`, deletes the row of its
        key. A key that a change does not say is that of the record, which is read for these
        alone."""


class WrittenFormat(Format, Protocol):
    """A format that columns are written in too."""

    def schema_of(self, kind: pa.DataType) -> Schema:
        """The schema of a column of this type for which nobody gave one."""

    def encoder(self, kind: pa.DataType, schema: Schema, prefix: bytes) -> Encoder:
        """Writes a column of this type by the schema as `told`, each payload behind the prefix."""

    def own_prefix(self, schema: Schema) -> bytes:
        """By which a payload says its schema without a registry; empty where none can."""
        del schema
        return b""

    def registered(self, schema: Schema) -> str:
        """The text by which a registry knows a schema."""
        return schema.text


def format_of(name: str) -> Format:
    """The format of an option's word; `raw` has none."""
    found: Format = importlib.import_module(f"keyrange.formats.{name}.format").FORMAT
    return found


def change_format_of(name: str) -> ChangeFormat:
    """One of `CHANGES`."""
    assert name in CHANGES
    found: ChangeFormat = importlib.import_module(f"keyrange.formats.{name}.format").FORMAT
    return found


def written_format_of(name: str) -> WrittenFormat:
    """One of `WRITTEN`."""
    assert name in WRITTEN
    found: WrittenFormat = importlib.import_module(f"keyrange.formats.{name}.format").FORMAT
    return found
