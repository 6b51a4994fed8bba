"""One payload to Python values of a message's columns, by the reference library: what payloads
mean, said once.

`keyrange.formats.protobuf.decoder` reads most rows by a compiled pass, and by this module each row
that the pass does not read.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from keyrange.formats.protobuf.faults import why_bad
from keyrange.formats.protobuf.messages import JSON_MESSAGES, Field, Message
from keyrange.formats.slow_rows import BadValue

_NO_FIELDS: Final = Message("", (), pa.struct([]))
_WIRES: Final = ("varint", "fixed64", "bytes", "group", "", "fixed32")


class RowReader:
    """Reads payloads of one message, by descriptors that say nothing of maps."""

    def __init__(self, descriptor: Any, message: Message) -> None:
        self._class = message_factory.GetMessageClass(descriptor)
        self._message = message

    def read(self, payload: bytes, *, rescues: bool = False) -> tuple[dict[str, Any], str | None]:
        """The row, and as JSON text the fields that the message lacks, where that is asked for and
        there are some. Raises BadValue."""
        read = self._class()
        try:
            read.ParseFromString(payload)
        except DecodeError as failure:
            raise BadValue(why_bad(payload, self._message)) from failure
        if not read.IsInitialized():
            names = ", ".join(read.FindInitializationErrors())
            raise BadValue(f"field {names[:200]}: required, and not there")
        row = _row(read, self._message, "")
        left = _unknown(read, self._message, "") if rescues else []
        return row, json.dumps(left) if left else None


def _row(read: Any, message: Message, path: str) -> dict[str, Any]:
    return {
        each.name: _column(read, each, f"{path}.{each.name}" if path else each.name)
        for each in message.columns
    }


def _column(read: Any, field: Field, path: str) -> Any:
    found = getattr(read, field.name)
    if field.is_map:
        keys, values = field.message.columns  # type: ignore[union-attr]
        pairs = {}
        for each in found:
            # What an entry lacks is a zero, or empty.
            key = _value(getattr(each, keys.name), keys, path)
            pairs[key] = _value(getattr(each, values.name), values, path)
        return list(pairs.items())
    if field.repeated:
        return [_value(each, field, path) for each in found]
    if field.implicit:
        return _value(found, field, path) if _is_there(found, field) else None
    if read.HasField(field.name) or field.default is not None:
        return _value(found, field, path)
    return None


def _is_there(found: Any, field: Field) -> bool:
    """A field without presence is there where it is not zero; -0.0 is not zero."""
    if field.kind in ("float", "double"):
        return struct.pack("<d", found) != bytes(8)
    return bool(found)


def _value(found: Any, field: Field, path: str) -> Any:
    if field.kind == "timestamp":
        return _micros(found, path)
    if field.kind == "json":
        return _text(found, path)
    if field.message is not None:
        return _row(found, field.message, path)
    if field.enum is not None:
        return field.enum.text(found)
    if field.kind == "string" and isinstance(found, bytes):
        raise BadValue(f"field {path[:200]}: not UTF-8")
    if field.kind in ("uint32", "fixed32"):
        return found - (1 << 32) if found >= 1 << 31 else found
    if field.kind in ("uint64", "fixed64"):
        return found - (1 << 64) if found >= 1 << 63 else found
    return found


def _micros(found: Any, path: str) -> int:
    # Towards zero, as the JVM does.
    below = abs(found.nanos) // 1000
    micros: int = found.seconds * 1_000_000 + (below if found.nanos >= 0 else -below)
    if not -(2**63) <= micros < 2**63:
        raise BadValue(f"field {path[:200]}: a time that no timestamp holds")
    return micros


def _text(found: Any, path: str) -> str:
    # Of a class that says which of its fields is a map.
    whole = JSON_MESSAGES[found.DESCRIPTOR.full_name].FromString(found.SerializeToString())
    try:
        text: str = json_format.MessageToJson(
            whole, indent=None, ensure_ascii=False, sort_keys=True
        )
    except (json_format.Error, ValueError):
        raise BadValue(f"field {path[:200]}: a number that JSON does not have") from None
    return text


def _unknown(read: Any, message: Message, path: str) -> list[dict[str, Any]]:
    """In the order of the message's fields, of each the message that it is in, its number, how it
    is written, and its value: a number without a sign, or bytes in base64."""
    found = _plain(UnknownFieldSet(read))
    if path:
        found = [{"in": path, **each} for each in found]
    for field in message.fields:
        if field.message is not None or field.kind in ("timestamp", "json"):
            inner = field.message or _NO_FIELDS
            for each in _values(read, field):
                found += _unknown(each, inner, f"{path}.{field.name}" if path else field.name)
    return found


def _values(read: Any, field: Field) -> list[Any]:
    if field.repeated:
        return list(getattr(read, field.name))
    return [getattr(read, field.name)] if read.HasField(field.name) else []


def _plain(fields: Any) -> list[dict[str, Any]]:
    found = []
    for each in fields:
        value = each.data
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        elif not isinstance(value, int):
            value = _plain(value)
        found.append({"number": each.field_number, "type": _WIRES[each.wire_type], "value": value})
    return found
