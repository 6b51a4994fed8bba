"""What a format of keys and values is: a module with a `FORMAT`, imported when it is first used.

`keyrange.model.value_forms.FORMATS` names them all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from keyrange.model.value_forms import ReadSettings, Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.formats.payloads import Decoder


class Format(Protocol):
    """Raises `UnfitSchema`."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:
        """The type of a column of what this schema describes: one that Spark's Arrow has, that is
        `to_arrow_type(from_arrow_type(it))` is it again, everything in it nullable."""

    def told(self, schema: Schema) -> Schema:
        """The same schema as the driver tells it to tasks, which are to read it fast."""
        return schema

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> Decoder:
        """Reads what was written by `writer` into the column of `reader`. They are the same where
        nobody says by which schema a payload was written."""


def format_of(name: str) -> Format:
    """The format of an option's word; `raw` has none."""
    found: Format = importlib.import_module(f"keyrange.formats.{name}.format").FORMAT
    return found
