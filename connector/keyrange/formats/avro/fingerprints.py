"""By what a value in Avro's single-object encoding names its schema: the fingerprint CRC-64-AVRO of
the schema's parsing canonical form, as the specification 1.12 defines both.
"""

from __future__ import annotations

import json
from typing import Any, Final

from keyrange.formats.avro.schemas import NAMED, AvroType

MARKER: Final = b"\xc3\x01"
# Of no bytes; it is the polynomial too.
_EMPTY: Final = 0xC15D213AA4D7A795


def canonical_form(schema: AvroType) -> str:
    """JSON of what readers go by: full names, no logical types, aliases, defaults or words for
    people, each attribute in one order."""
    return json.dumps(_form(schema, set()), separators=(",", ":"), ensure_ascii=False)


def _form(schema: AvroType, defined: set[str]) -> Any:
    if schema.kind == "union":
        return [_form(each, defined) for each in schema.branches]
    if schema.kind in ("array", "map"):
        inner = "items" if schema.kind == "array" else "values"
        return {"type": schema.kind, inner: _form(schema.element, defined)}
    if schema.kind not in NAMED:
        return schema.kind
    if schema.name in defined:
        return schema.name
    defined.add(schema.name)
    made: dict[str, Any] = {"name": schema.name, "type": schema.kind}
    if schema.kind == "record":
        made["fields"] = [
            {"name": each.name, "type": _form(each.type, defined)} for each in schema.fields
        ]
    elif schema.kind == "enum":
        made["symbols"] = list(schema.symbols)
    else:
        made["size"] = schema.size
    return made


def fingerprint(schema: AvroType) -> int:
    """64 bits, which stand in a header from the lowest byte on."""
    found = _EMPTY
    for byte in canonical_form(schema).encode():
        found = found >> 8 ^ _TABLE[(found ^ byte) & 0xFF]
    return found


def header(schema: AvroType) -> bytes:
    """What stands before a value in the single-object encoding."""
    return MARKER + fingerprint(schema).to_bytes(8, "little")


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_EMPTY if byte & 1 else 0)
    return byte


_TABLE: Final = [_entry(byte) for byte in range(256)]
