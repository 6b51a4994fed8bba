"""One Avro value to Python values: what a pair of schemas means, said once more and exactly.

`keyrange.formats.avro.decoder` reads rows by the compiled pass, and by this module those that the
pass does not read: most of them are bad, and this says why. It also reads what a reader's schema
has no place for.
"""

from __future__ import annotations

import base64
import struct
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.formats.avro.defaults import BITS, decimal_of
from keyrange.formats.avro.program import factor
from keyrange.formats.avro.resolution import (
    Action,
    Branches,
    Member,
    Misfit,
    Read,
    Record,
    Repeat,
    Skip,
)
from keyrange.formats.avro.schemas import AvroType
from keyrange.formats.column_kinds import below, where
from keyrange.formats.slow_rows import BadValue

# Of all arrays and maps of a value: they take no bytes, so they may be as many as anyone says.
EMPTY_ELEMENTS_MAX: Final = 10_000
_INFINITE: Final = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
_TIME_TYPES: Final = {"millis": "M8[ms]", "micros": "M8[us]", "nanos": "M8[ns]"}


def read_row(value: bytes, action: Action, *, rescues: bool = False) -> tuple[Any, Any]:
    """The value in the form that Arrow takes, and of fields that the reader has not what JSON
    takes, or None. Raises BadValue."""
    reader = _Reader(value, rescues)
    try:
        read = reader.read(action, "")
    except RecursionError:
        raise BadValue("nested too deeply") from None
    if reader.at != len(value):
        raise BadValue("there are bytes behind the value")
    return read


class _Reader:
    def __init__(self, data: bytes, rescues: bool) -> None:
        self.at = 0
        self._data = data
        self._rescues = rescues
        self._empty = 0

    def read(self, action: Action, path: str) -> tuple[Any, Any]:
        match action:
            case Misfit():
                if self._rescues:
                    return None, self.plain(action.writer, path)
                raise BadValue(action.why)
            case Read():
                return self._read(action, path)
            case Member():
                value, left = self.read(action.action, path)
                return {action.node.type[action.at].name: value}, left
            case Branches():
                return self.read(action.actions[self._branch(len(action.actions), path)], path)
            case Record():
                return self._record(action, path)
            case Repeat():
                return self._repeat(action, path)
            case Skip():
                if self._rescues:
                    return None, self.plain(action.writer, path)
                self.plain(action.writer, path)
        return None, None

    def _record(self, action: Record, path: str) -> tuple[Any, Any]:
        kind = action.node.type
        found = {kind[at].name: value for at, value in action.defaults}
        rest = {}
        for name, each in action.steps:
            value, left = self.read(each, below(path, name))
            if not isinstance(each, Skip):
                found[name] = value
            if left is not None:
                rest[name] = left
        return found, rest or None

    def _repeat(self, action: Repeat, path: str) -> tuple[Any, Any]:
        if action.writer.kind == "array":
            path += "[]"
            read = [self.read(action.element, path) for _ in self._elements(path)]
            rest = [left for _, left in read]
            kept = None if all(each is None for each in rest) else rest
            return [value for value, _ in read], kept
        path += "{}"
        # Of two entries of one key the last one counts, as in Java's and Python's own maps.
        entries = {}
        for _ in self._elements(path):
            key = self._text(path)
            entries[key] = self.read(action.element, path)
        values = [(key, value) for key, (value, _) in entries.items()]
        return values, {key: left for key, (_, left) in entries.items() if left is not None} or None

    def _read(self, action: Read, path: str) -> tuple[Any, Any]:
        writer = action.writer
        value = self._raw(writer, path, pa.types.is_string(action.node.type))
        try:
            return self._converted(value, action, path), None
        except BadValue:
            if not self._rescues:
                raise
            return None, _said(value, writer)

    def _converted(self, value: Any, action: Read, path: str) -> Any:
        writer, kind = action.writer, action.node.type
        if pa.types.is_decimal(kind):
            try:
                return decimal_of(value, action.reader)
            except ValueError:
                raise BadValue(
                    f"{where(path)}a decimal is empty or has more than "
                    f"{action.reader.precision} digits"
                ) from None
        if writer.kind == "enum":
            symbol = action.symbols[value]
            if symbol is None:
                raise BadValue(f"{where(path)}a symbol that the reader's schema does not have")
            return symbol
        if writer.kind in BITS and pa.types.is_floating(kind):
            return np.int64(value).astype(kind.to_pandas_dtype()).item()
        if pa.types.is_timestamp(kind):
            value *= factor(action)
            if not -(2**63) <= value < 2**63:
                raise BadValue(f"{where(path)}a time out of the range of {kind}")
        return value

    def plain(self, writer: AvroType, path: str) -> Any:
        """A value by the writer's schema alone, in the form of JSON."""
        match writer.kind:
            case "record":
                return {
                    each.name: self.plain(each.type, below(path, each.name))
                    for each in writer.fields
                }
            case "union":
                return self.plain(writer.branches[self._branch(len(writer.branches), path)], path)
            case "array":
                path += "[]"
                return [self.plain(writer.element, path) for _ in self._elements(path)]
            case "map":
                path += "{}"
                return {
                    self._text(path, "replace"): self.plain(writer.element, path)
                    for _ in self._elements(path)
                }
        value = self._raw(writer, path, False)
        return _said(value, writer) if self._rescues else None

    def _raw(self, writer: AvroType, path: str, text: bool) -> Any:
        """A value without others in it: of an enum the number of its symbol."""
        match writer.kind:
            case "null":
                return None
            case "boolean":
                byte = self._take(1, path)[0]
                if byte > 1:
                    raise BadValue(f"{where(path)}a boolean is neither 0 nor 1")
                return byte == 1
            case "float":
                return struct.unpack("<f", self._take(4, path))[0]
            case "double":
                return struct.unpack("<d", self._take(8, path))[0]
            case "fixed":
                return self._take(writer.size, path)
            case "int" | "long":
                value = self._varint(path)
                limit = 1 << (BITS[writer.kind] - 1)
                if not -limit <= value < limit:
                    raise BadValue(f"{where(path)}a number out of the range of {writer.kind}")
                return value
            case "enum":
                return self._branch(len(writer.symbols), path)
        return self._text(path) if text else self._take(self._varint(path), path)

    def _text(self, path: str, errors: str = "strict") -> str:
        try:
            return self._take(self._varint(path), path).decode(errors=errors)
        except UnicodeDecodeError:
            raise BadValue(f"{where(path)}not UTF-8") from None

    def _branch(self, count: int, path: str) -> int:
        at = self._varint(path)
        if not 0 <= at < count:
            raise BadValue(
                f"{where(path)}a branch or symbol that the writer's schema does not have"
            )
        return at

    def _elements(self, path: str) -> Any:
        """A step for each element of an array or a map."""
        while count := self._varint(path):
            until = -1
            if count < 0:
                count = -count
                size = self._varint(path)
                until = self.at + size
                if not 0 <= size <= len(self._data) - self.at:
                    raise BadValue(f"{where(path)}a block is longer than what is left")
            for _ in range(count):
                start = self.at
                yield
                self._empty += start == self.at
                if self._empty > EMPTY_ELEMENTS_MAX:
                    raise BadValue(f"{where(path)}too many elements that take no bytes")
            if until not in (-1, self.at):
                raise BadValue(f"{where(path)}a block does not end where it says")

    def _varint(self, path: str) -> int:
        raw = shift = 0
        while True:
            byte = self._take(1, path)[0]
            raw |= (byte & 127) << shift
            shift += 7
            if byte < 128 and raw < 1 << 64:
                return (raw >> 1) ^ -(raw & 1)
            if byte < 128 or shift > 63:
                raise BadValue(f"{where(path)}a number is longer than 64 bits")

    def _take(self, size: int, path: str) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise BadValue(f"{where(path)}the value ends within it")
        self.at += size
        return self._data[self.at - size : self.at]


def _said(value: Any, writer: AvroType) -> Any:
    """As JSON says it: bytes in base64, decimals as text, times as Spark's `to_json` writes them
    where there is such a time."""
    if writer.kind == "enum":
        return writer.symbols[value]
    if writer.logical == "decimal":
        with suppress(ValueError):
            return str(decimal_of(value, writer))
    if writer.kind == "string":
        return value.decode(errors="replace")
    if writer.kind in ("bytes", "fixed"):
        return base64.b64encode(value).decode()
    if writer.kind in ("float", "double") and value - value != 0:
        return _INFINITE.get(value, "NaN")
    if "timestamp" in writer.logical:
        time = np.int64(value).view(_TIME_TYPES[writer.logical.rpartition("-")[2]])
        return str(time) + ("" if writer.logical.startswith("local") else "Z")
    if writer.logical == "date":
        return str(np.int64(value).view("M8[D]"))
    return value
