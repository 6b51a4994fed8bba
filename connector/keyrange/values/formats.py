"""The formats of keys and values, registered in one place.

A format is a module with a `FORMAT`. What it brings is imported when the format is first used: a
query that reads bytes loads none of it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from keyrange.values.payloads import Decoder


@dataclass(frozen=True, slots=True)
class Schema:
    """How a format lays its bytes out, as its own tools write it.

    `text` is Avro's JSON, the source of a .proto file or a FileDescriptorSet in base64, or Spark's
    JSON of columns. `message` names one of several that a text defines. `references` are other
    texts by the names under which this one uses them, each behind those that it uses itself.
    """

    text: str
    message: str = ""
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`time_zone` is that of times that name none. With `rescues` a decoder also answers with what
    the reader's schema has no place for."""

    time_zone: str = "UTC"
    rescues: bool = False


class UnfitSchema(ValueError):
    """A schema that the format does not read, or that another cannot be resolved to. The text says
    which part of it, and why."""


class Format(Protocol):
    """Raises `UnfitSchema`."""

    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:
        """The type of a column of what this schema describes: one that Spark's Arrow has, that is
        `to_arrow_type(from_arrow_type(it))` is it again, everything in it nullable."""

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> Decoder:
        """Reads what was written by `writer` into the column of `reader`. They are the same where
        nobody says by which schema a payload was written."""


_MODULES: Final = {
    "string": "keyrange.values.text_values",
    "json": "keyrange.values.json.decoder",
}


def format_of(name: str) -> Format:
    """The format of an option's word; `raw` has none."""
    found: Format = importlib.import_module(_MODULES[name]).FORMAT
    return found
