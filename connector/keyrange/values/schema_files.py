"""Schemas of keys and values that are in files: read once, on the driver."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final

from keyrange.errors import invalid_options
from keyrange.model.ddl import parse_ddl
from keyrange.model.value_forms import Side, is_ddl

_BYTES_MAX: Final = 4 << 20
# What a text has of characters below the space.
_OF_TEXTS: Final = frozenset(b"\t\n\f\r")


def schema_in(side: Side, form: str, location: str, storage: Mapping[str, str]) -> str:
    """The schema of a format in the file at a path or URI, as the option `valueSchema` or
    `keySchema` has it when it was read: columns as Spark's JSON, a FileDescriptorSet in base64.

    `storage` are settings of the object store. Raises INVALID_OPTIONS.
    """
    option = f"option '{side}Schema.location'"
    data = _read(option, location, storage)
    if form == "protobuf" and not _is_text(data):
        return base64.b64encode(data).decode()
    try:
        text = data.decode("utf-8-sig").strip()
        if not text:
            raise ValueError("is empty")
        if is_ddl(form, text):
            return json.dumps(parse_ddl(text))
    except ValueError as failure:
        is_text = not isinstance(failure, UnicodeDecodeError)
        why = str(failure) if is_text else "is not UTF-8"
        raise invalid_options(f"{option}: the schema in {location} {why}") from None
    return text


def _read(option: str, location: str, storage: Mapping[str, str]) -> bytes:
    from keyrange.storage.directory import Directory
    from keyrange.storage.object_store import FAILURES

    place, _, name = location.rstrip("/").rpartition("/")
    try:
        directory = Directory(place or "/", storage)
        size = directory.size(name)
        if size is None:
            raise FileNotFoundError("there is no such file")
        if size > _BYTES_MAX:
            raise ValueError(f"the file has {size:,} bytes, and a schema at most {_BYTES_MAX:,}")
        return directory.read(name)
    except FAILURES as failure:
        raise invalid_options(f"{option}: {location} cannot be read: {failure}") from None


def _is_text(data: bytes) -> bool:
    """Whether the bytes are the source of a .proto file, or base64. A descriptor of a field has the
    byte 0x18 before its number."""
    return all(byte >= 0x20 or byte in _OF_TEXTS for byte in data)
