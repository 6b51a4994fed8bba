"""What is wrong with a payload that the reference library does not read, in words.

The library says no more than that it is wrong. This walks the bytes until they make no sense; it
decides nothing.
"""

from __future__ import annotations

from typing import Final

from keyrange.formats.column_kinds import where
from keyrange.formats.protobuf.messages import Field, Message
from keyrange.formats.protobuf.program import WIRES

_FIXED_BYTES: Final = {1: 8, 5: 4}
_DEPTH_MAX: Final = 100


class _Fault(Exception):
    pass


def why_bad(payload: bytes, message: Message) -> str:
    """Names the field, and nothing of the payload."""
    try:
        _Walk(payload).message(0, len(payload), message, "", 0)
    except _Fault as found:
        return str(found)
    return f"not a message {message.name[:200]}"


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def message(self, at: int, end: int, message: Message | None, path: str, group: int) -> int:
        """Where a message ends, or the group of this number."""
        fields = {} if message is None else {each.number: each for each in message.fields}
        if path.count(".") > _DEPTH_MAX:
            raise _Fault("messages are nested too deeply")
        while at < end:
            tag, at = self._varint(at, end, path, "a field's number")
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise _Fault(f"{where(path)}no field has such a number")
            if wire == 4:
                if number != group:
                    raise _Fault(f"{where(path)}a group ends that does not begin")
                return at
            field = fields.get(number)
            name = f"{number}" if field is None else field.name
            at = self._field(at, end, field, f"{path}.{name}" if path else name, number, wire)
        if group:
            raise _Fault(f"{where(path)}a group does not end")
        return at

    def _field(
        self, at: int, end: int, field: Field | None, path: str, number: int, wire: int
    ) -> int:
        inner = field.message if field is not None else None
        if wire == 0:
            return self._varint(at, end, path, "a number")[1]
        if wire == 2:
            size, at = self._varint(at, end, path, "a length")
            if size > end - at:
                raise _Fault(f"{where(path)}cut off")
            if field is not None:
                self._block(at, at + size, field, path)
            return at + size
        if wire == 3:
            return self.message(at, end, inner, path, number)
        if wire not in _FIXED_BYTES:
            raise _Fault(f"{where(path)}no value has such a type")
        if _FIXED_BYTES[wire] > end - at:
            raise _Fault(f"{where(path)}cut off")
        return at + _FIXED_BYTES[wire]

    def _block(self, at: int, end: int, field: Field, path: str) -> None:
        if field.kind == "string":
            try:
                self._data[at:end].decode()
            except UnicodeDecodeError:
                raise _Fault(f"{where(path)}not UTF-8") from None
        elif field.kind in ("message", "timestamp", "json"):
            self.message(at, end, field.message, path, 0)
        elif field.repeated and WIRES[field.kind] in _FIXED_BYTES:
            if (end - at) % _FIXED_BYTES[WIRES[field.kind]]:
                raise _Fault(f"{where(path)}cut off")
        elif field.repeated and field.kind not in ("bytes", "group"):
            while at < end:
                at = self._varint(at, end, path, "a number")[1]

    def _varint(self, at: int, end: int, path: str, what: str) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise _Fault(f"{where(path)}cut off")
            value |= (self._data[at] & 127) << shift
            at += 1
            if self._data[at - 1] < 128:
                return value, at
        raise _Fault(f"{where(path)}{what} has more than ten bytes")
