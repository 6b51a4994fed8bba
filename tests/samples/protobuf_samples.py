"""Protobuf's schemas by chance, each with what another reader may make of it, and what upb reads.

Rule of this file: nothing of keyrange's Protobuf is used. What columns make of a message is written
here a second time, by the library's descriptors.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from keyrange.model.value_forms import Schema
from samples.value_trials import Refused, Trial

_F: Final = descriptor_pb2.FieldDescriptorProto
_TEXTS: Final = ["", "a", "né", "日本語", "x" * 40, "🙂", "0", "with space"]
_INTEGERS: Final = {
    "INT32": (32, True), "SINT32": (32, True), "SFIXED32": (32, True),
    "INT64": (64, True), "SINT64": (64, True), "SFIXED64": (64, True),
    "UINT32": (32, False), "FIXED32": (32, False),
    "UINT64": (64, False), "FIXED64": (64, False),
}  # fmt: skip
_SCALARS: Final = [*_INTEGERS, "FLOAT", "DOUBLE", "BOOL", "STRING", "BYTES", "ENUM"]
_KEYS: Final = ["STRING", "STRING", "BOOL", *_INTEGERS]
_FLOATS: Final = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-40, -7.0]
_NUMBERS: Final = [*range(1, 17), 100, 2047, 2048, 4095, 4096, 5000, 2**29 - 1]
_MICROS: Final = 1_000_000
_IMPORTED: Final = [timestamp_pb2.DESCRIPTOR, struct_pb2.DESCRIPTOR]
_JSON: Final = [f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")]


@dataclass(slots=True)
class _Maker:
    """Makes a file with some messages, of which each has only later ones in it."""

    chance: Random
    syntax: str
    json: bool
    file: Any = field(default_factory=descriptor_pb2.FileDescriptorProto)

    def make(self) -> Any:
        self.file.name, self.file.package = "samples.proto", "t"
        self.file.syntax = self.syntax
        self.file.dependency.extend(each.name for each in _IMPORTED)
        enum = self.file.enum_type.add(name="E")
        for name, number in (("ZERO", 0), ("ONE", 1), ("MINUS", -3), ("MUCH", 2**31 - 1)):
            enum.value.add(name=name, number=number)
        count = self.chance.randrange(1, 4)
        for at in range(count):
            self._message(self.file.message_type.add(name=f"M{at}"), at, count)
        return self.file

    def _message(self, message: Any, at: int, count: int) -> None:
        optionals = []
        numbers = self.chance.sample(_NUMBERS, self.chance.randrange(1, 8))
        if self.chance.random() < 0.3:
            message.oneof_decl.add(name="choice")
        for number in numbers:
            made = self._field(message, number, at, count)
            if made is not None and made.proto3_optional:
                optionals.append(made)
        members = [each for each in message.field if each.HasField("oneof_index")]
        if message.oneof_decl and not members:
            del message.oneof_decl[:]
        for made in optionals:
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{made.name}")

    def _field(self, message: Any, number: int, at: int, count: int) -> Any:
        chance, name = self.chance, f"f{number}"
        kind = chance.random()
        later = [f".t.M{each}" for each in range(at + 1, count)]
        if kind < 0.12:
            return self._map(message, name, number, later)
        made = message.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
        if kind < 0.3 and later:
            made.type, made.type_name = _F.TYPE_MESSAGE, chance.choice(later)
        elif kind < 0.4:
            made.type, made.type_name = _F.TYPE_MESSAGE, ".google.protobuf.Timestamp"
        elif kind < 0.43 and self.json:
            made.type, made.type_name = _F.TYPE_MESSAGE, f".{chance.choice(_JSON)}"
        elif kind < 0.48 and self.syntax == "proto2":
            inner = message.nested_type.add(name=f"F{number}")
            inner.field.add(name="x", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_SINT32)
            inner.field.add(name="y", number=2, label=_F.LABEL_REPEATED, type=_F.TYPE_STRING)
            made.type, made.type_name = _F.TYPE_GROUP, f".t.{message.name}.F{number}"
        else:
            self._scalar(made, chance.choice(_SCALARS))
        if chance.random() < 0.3:
            made.label = _F.LABEL_REPEATED
            if _packable(made):
                made.options.packed = chance.random() < 0.5
        elif message.oneof_decl and chance.random() < 0.6:
            made.oneof_index = 0
        elif self.syntax == "proto2" and chance.random() < 0.15:
            made.label = _F.LABEL_REQUIRED
        elif self.syntax == "proto2" and made.type not in (_F.TYPE_MESSAGE, _F.TYPE_GROUP):
            self._default(made)
        elif self.syntax == "proto3" and chance.random() < 0.2:
            made.proto3_optional = True
        return made

    def _scalar(self, made: Any, kind: str) -> None:
        made.type = getattr(_F, f"TYPE_{kind}")
        if kind == "ENUM":
            made.type_name = ".t.E"

    def _default(self, made: Any) -> None:
        if self.chance.random() < 0.3:
            kind = _F.Type.Name(made.type).removeprefix("TYPE_")
            texts = {"STRING": "né", "BYTES": "\\377a", "BOOL": "true", "ENUM": "MINUS"}
            made.default_value = texts.get(kind, "17")

    def _map(self, message: Any, name: str, number: int, later: list[str]) -> None:
        entry = message.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL)
        self._scalar(key, self.chance.choice(_KEYS))
        value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL)
        names = later or [f".{each}" for each in _JSON if self.json]
        if self.chance.random() < 0.4 and names:
            value.type, value.type_name = _F.TYPE_MESSAGE, self.chance.choice(names)
        else:
            self._scalar(value, self.chance.choice(_SCALARS))
        made = message.field.add(name=name, number=number, label=_F.LABEL_REPEATED)
        made.type, made.type_name = _F.TYPE_MESSAGE, f".t.{message.name}.{entry.name}"


class ProtobufSamples:
    name = format = "protobuf"
    names_writers = False

    def __init__(self, json: bool = True) -> None:
        self._json = json
        self._classes: dict[tuple[Schema, bool], Any] = {}

    def trial(self, chance: Random, payloads: int) -> Trial:
        writer = _Maker(chance, chance.choice(["proto2", "proto3", "proto3"]), self._json).make()
        reader = _other(writer, chance) if chance.random() < 0.5 else writer
        trial = Trial(_schema(writer), _schema(reader), [])
        wrote = self._class(trial.writer)
        for _ in range(payloads):
            trial.payloads.append(_written(wrote, chance))
        return trial

    def read(self, trial: Trial, payload: bytes) -> Any:
        read = self._class(trial.reader, maps=False)()
        try:
            read.ParseFromString(payload)
        except DecodeError as failure:
            raise Refused(str(failure)) from failure
        if not read.IsInitialized():
            raise Refused("required fields are not there")
        return columns_of(read, _maps(trial.reader))

    def is_stricter(self, error: str) -> bool:
        return False

    def _class(self, schema: Schema, *, maps: bool = True) -> Any:
        """Of a map without `maps` the entries, as they are in a payload."""
        if (schema, maps) not in self._classes:
            pool = descriptor_pool.DescriptorPool()
            for imported in _IMPORTED:
                pool.AddSerializedFile(imported.serialized_pb)
            file = _file(schema)
            for each in (inner for message in file.message_type for inner in message.nested_type):
                each.options.map_entry = maps and each.options.map_entry
            pool.Add(file)
            found = pool.FindMessageTypeByName(schema.message)
            self._classes[schema, maps] = message_factory.GetMessageClass(found)
        return self._classes[schema, maps]


def _file(schema: Schema) -> Any:
    data = base64.b64decode(schema.text)
    return descriptor_pb2.FileDescriptorSet.FromString(data).file[0]


def _maps(schema: Schema) -> set[str]:
    """The full names of the messages that are entries of maps."""
    return {
        f"t.{message.name}.{inner.name}"
        for message in _file(schema).message_type
        for inner in message.nested_type
        if inner.options.map_entry
    }


def _schema(file: Any) -> Schema:
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return Schema(base64.b64encode(files.SerializeToString()).decode(), "t.M0")


def _packable(made: Any) -> bool:
    return made.type not in (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP)


def _other(file: Any, chance: Random) -> Any:
    """What another reader may have: fewer fields and symbols, lists that are written otherwise."""
    found = descriptor_pb2.FileDescriptorProto()
    found.CopyFrom(file)
    if chance.random() < 0.5:
        del found.enum_type[0].value[3]
    for message in found.message_type:
        for at in reversed(range(len(message.field))):
            each = message.field[at]
            alone = len(message.field) == 1 or each.HasField("oneof_index")
            if chance.random() < 0.2 and not alone:
                del message.field[at]
            elif each.options.HasField("packed"):
                each.options.packed = chance.random() < 0.5
        used = {each.type_name.rpartition(".")[2] for each in message.field}
        for at in reversed(range(len(message.nested_type))):
            if message.nested_type[at].name not in used:
                del message.nested_type[at]
    return found


def _written(wrote: Any, chance: Random) -> bytes:
    """A message; or several, which are one together, with their fields in another order."""

    def one() -> bytes:
        made = wrote()
        _fill(made, chance)
        return made.SerializeToString(deterministic=True)

    pieces = [one()]
    while chance.random() < 0.25:
        pieces.append(one())
    if chance.random() < 0.3:
        pieces = [piece for each in pieces for piece in _pieces(each)]
        chance.shuffle(pieces)
    if chance.random() < 0.2:
        pieces.insert(chance.randrange(len(pieces) + 1), chance.choice(_UNKNOWN))
    return b"".join(pieces)


# Fields that no schema has: a number, eight and four bytes, bytes, and a group with a group in it.
_UNKNOWN: Final = [
    b"\xb8\x3e\x96\x01",
    b"\xb9\x3e" + bytes(8),
    b"\xbd\x3e" + bytes(4),
    b"\xba\x3e\x03\x08\x96\x01",
    b"\xbb\x3e\x08\x05\x13\x12\x01a\x14\xbc\x3e",
]


def _pieces(data: bytes) -> list[bytes]:
    """The outer fields of a message; a group stays whole."""
    found, at, start, depth = [], 0, 0, 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(data, at)
                at += size
            case 3:
                depth += 1
            case 4:
                depth -= 1
            case _:
                at += 4
        if depth == 0:
            found.append(data[start:at])
            start = at
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def _fill(made: Any, chance: Random) -> None:
    for each in made.DESCRIPTOR.fields:
        if not each.is_required and chance.random() < 0.3:
            continue
        held = getattr(made, each.name)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            key, value = each.message_type.fields
            for _ in range(chance.choice([0, 1, 2, 5])):
                name = _scalar(key, chance)
                if value.message_type is not None:
                    _inner(held[name], chance)
                else:
                    held[name] = _scalar(value, chance)
        elif each.is_repeated:
            for _ in range(chance.choice([0, 1, 2, 5, 30])):
                if each.message_type is None:
                    held.append(_scalar(each, chance))
                else:
                    _inner(held.add(), chance)
        elif each.message_type is not None:
            held.SetInParent()
            _inner(held, chance)
        else:
            setattr(made, each.name, _scalar(each, chance))


def _inner(made: Any, chance: Random) -> None:
    if made.DESCRIPTOR.full_name in _JSON:
        text = chance.choice(['{"a": [1.5, null], "né": {"b": {}}}', '{"b": true}', "{}"])
        json_format.Parse(f"[{text}]" if made.DESCRIPTOR.name == "ListValue" else text, made)
        return
    if made.DESCRIPTOR.full_name != "google.protobuf.Timestamp":
        _fill(made, chance)
        return
    made.seconds = chance.choice([0, 1, -1, 1_764_300_000, chance.randrange(-(2**40), 2**40)])
    made.nanos = chance.choice([0, 1, 999, 1000, 999_999_999, -1001, chance.randrange(10**9)])


def _scalar(each: Any, chance: Random) -> Any:
    kind = {number: name for name, number in _F.Type.items()}[each.type].removeprefix("TYPE_")
    if kind in _INTEGERS:
        bits, signed = _INTEGERS[kind]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        near = chance.choice([0, 1, 127, 128, 300])
        return chance.choice([near, low, high, chance.randint(low, high)])
    if kind in ("FLOAT", "DOUBLE"):
        return chance.choice([*_FLOATS, chance.uniform(-1e6, 1e6)])
    if kind == "ENUM":
        return chance.choice([value.number for value in each.enum_type.values])
    if kind == "BOOL":
        return chance.random() < 0.5
    text = chance.choice(_TEXTS)
    return text if kind == "STRING" else text.encode("utf-16-le")


def columns_of(read: Any, maps: set[str]) -> dict[str, Any]:
    """What Spark's `from_protobuf` makes of a message by default, but for the keys of maps, of
    which the last one counts."""
    there = {each.name for each, _ in read.ListFields()}
    found: dict[str, Any] = {}
    for each in read.DESCRIPTOR.fields:
        held = getattr(read, each.name)
        if each.message_type is not None and each.message_type.full_name in maps:
            key, value = each.message_type.fields
            pairs = {
                _typed(entry.key, key, maps): _typed(entry.value, value, maps) for entry in held
            }
            found[each.name] = list(pairs.items())
        elif each.is_repeated:
            found[each.name] = [_typed(value, each, maps) for value in held]
        else:
            shown = each.name in there or each.has_default_value
            found[each.name] = _typed(held, each, maps) if shown else None
    return found


def _typed(value: Any, each: Any, maps: set[str]) -> Any:
    if each.message_type is not None:
        if each.message_type.full_name in _JSON:
            return _text(value)
        if each.message_type.full_name != "google.protobuf.Timestamp":
            return columns_of(value, maps)
        micros = value.seconds * _MICROS + int(value.nanos / 1000)
        if not -(2**63) <= micros < 2**63:
            raise Refused("a time that no timestamp holds")
        return micros
    if each.enum_type is not None:
        known = each.enum_type.values_by_number.get(value)
        return known.name if known else f"UNKNOWN_ENUM_VALUE_{each.enum_type.name}_{value}"
    if each.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
        raise Refused("not UTF-8")
    if each.type in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32):
        return struct.unpack("<i", struct.pack("<I", value))[0]
    if each.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return struct.unpack("<q", struct.pack("<Q", value))[0]
    return value


def _text(value: Any) -> str:
    try:
        return json.dumps(json_format.MessageToDict(value), ensure_ascii=False, sort_keys=True)
    except ValueError as failure:
        raise Refused(str(failure)) from failure
