"""The columns of a message: what Spark's `from_protobuf` makes of its descriptor by default.

- int32, sint32, sfixed32, and as their bits uint32 and fixed32: int32. The 64-bit ones: int64.
- enum: string, the value's name. bytes: binary.
- Timestamp: timestamp in UTC, of microseconds. Wrappers, Any: structs of their fields.
- repeated: a list; map: a map. Both are there, empty, where a message has none of their values.
- A member of a oneof: a column as others.
- A message without fields has no column, and a message that is in itself is refused.

It differs from Spark in this: a Duration is a struct of its fields, since neither tables nor
Spark's sources in Python have intervals; Struct, Value and ListValue, which are in themselves, are
their JSON text; all columns are nullable; a map has each key once, with its last value, and not as
often as a payload repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor

from keyrange.model.value_forms import COLUMNS_MAX, UnfitSchema

# As deep as Protobuf's own readers go.
_DEPTH_MAX: Final = 100
# By Protobuf's number of a type: its word, and the type of its column.
_SCALARS: Final[dict[int, tuple[str, pa.DataType]]] = {
    FieldDescriptor.TYPE_DOUBLE: ("double", pa.float64()),
    FieldDescriptor.TYPE_FLOAT: ("float", pa.float32()),
    FieldDescriptor.TYPE_INT64: ("int64", pa.int64()),
    FieldDescriptor.TYPE_UINT64: ("uint64", pa.int64()),
    FieldDescriptor.TYPE_INT32: ("int32", pa.int32()),
    FieldDescriptor.TYPE_FIXED64: ("fixed64", pa.int64()),
    FieldDescriptor.TYPE_FIXED32: ("fixed32", pa.int32()),
    FieldDescriptor.TYPE_BOOL: ("bool", pa.bool_()),
    FieldDescriptor.TYPE_STRING: ("string", pa.string()),
    FieldDescriptor.TYPE_BYTES: ("bytes", pa.binary()),
    FieldDescriptor.TYPE_UINT32: ("uint32", pa.int32()),
    FieldDescriptor.TYPE_ENUM: ("enum", pa.string()),
    FieldDescriptor.TYPE_SFIXED32: ("sfixed32", pa.int32()),
    FieldDescriptor.TYPE_SFIXED64: ("sfixed64", pa.int64()),
    FieldDescriptor.TYPE_SINT32: ("sint32", pa.int32()),
    FieldDescriptor.TYPE_SINT64: ("sint64", pa.int64()),
}
# Any JSON, as messages.
JSON_MESSAGES: Final = {
    each.DESCRIPTOR.full_name: each
    for each in (struct_pb2.Struct, struct_pb2.Value, struct_pb2.ListValue)
}
_TIMESTAMP: Final = (
    ("seconds", FieldDescriptor.TYPE_INT64),
    ("nanos", FieldDescriptor.TYPE_INT32),
)


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    """The names of an enum by their numbers, of several of a number the first. A `closed` one has
    no other numbers: what comes with one is an unknown field."""

    name: str
    names: dict[int, str]
    first: int
    closed: bool
    # By all names, of several of a number too.
    numbers: dict[str, int]

    def text(self, number: int) -> str:
        """Of an unknown number the text that Protobuf's Java, and so Spark, makes."""
        found = self.names.get(number)
        return f"UNKNOWN_ENUM_VALUE_{self.name}_{number}" if found is None else found


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """`kind` is Protobuf's word, or timestamp, json, message or group, and `named` what Protobuf
    calls the type. `type` is that of the column, None where there is none. `implicit`: the field is
    there where it is not zero or empty."""

    name: str
    number: int
    kind: str
    type: pa.DataType | None
    repeated: bool
    required: bool
    implicit: bool
    oneof: str
    default: Any = None
    enum: Enum | None = None
    message: Message | None = None
    is_map: bool = False
    named: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """`type` has a field for each of `columns`."""

    name: str
    fields: tuple[Field, ...]
    type: pa.StructType

    @property
    def columns(self) -> tuple[Field, ...]:
        return tuple(each for each in self.fields if each.type is not None)


def message_columns(descriptor: Any) -> Message:
    """Raises UnfitSchema for what has no columns."""
    found = _Reader().message(descriptor, (descriptor.full_name,))
    if not found.columns:
        raise UnfitSchema(f"has no columns: message {found.name} has no fields")
    return found


class _Reader:
    """Reads the messages of a descriptor, each as often as it is used."""

    def __init__(self) -> None:
        self._made = 0

    def message(self, descriptor: Any, within: tuple[str, ...]) -> Message:
        fields = tuple(self._field(each, within) for each in descriptor.fields)
        columns = [pa.field(each.name, each.type) for each in fields if each.type is not None]
        return Message(descriptor.full_name, fields, pa.struct(columns))

    def _field(self, descriptor: Any, within: tuple[str, ...]) -> Field:
        self._made += 1
        if self._made > COLUMNS_MAX:
            raise UnfitSchema(f"makes more than {COLUMNS_MAX} columns")
        kind, element, message, enum = "", None, None, None
        is_map = False
        if descriptor.type in _SCALARS:
            kind, element = _SCALARS[descriptor.type]
            enum = _enum(descriptor.enum_type) if kind == "enum" else None
        elif _is_timestamp(descriptor.message_type):
            kind, element = "timestamp", pa.timestamp("us", "UTC")
        elif descriptor.message_type.full_name in JSON_MESSAGES:
            kind, element = "json", pa.string()
        else:
            kind = "group" if descriptor.type == FieldDescriptor.TYPE_GROUP else "message"
            name = descriptor.message_type.full_name
            if len(within) >= _DEPTH_MAX:
                raise UnfitSchema(f"nests more than {_DEPTH_MAX} messages")
            if name in within:
                raise UnfitSchema(
                    f"has no columns: field {descriptor.full_name} is in a message {name} and "
                    "is one"
                )
            message = self.message(descriptor.message_type, (*within, name))
            is_map = descriptor.is_repeated and descriptor.message_type.GetOptions().map_entry
            if len(message.columns) >= (2 if is_map else 1):
                element = message.type
        oneof = descriptor.containing_oneof
        return Field(
            descriptor.name,
            descriptor.number,
            kind,
            _column_type(element, descriptor.is_repeated, is_map),
            descriptor.is_repeated,
            descriptor.is_required,
            not descriptor.has_presence,
            # That of a proto3 `optional` has one member.
            oneof.name if oneof is not None and len(oneof.fields) > 1 else "",
            descriptor.default_value if descriptor.has_default_value else None,
            enum,
            message,
            is_map,
            descriptor.message_type.full_name if kind in ("timestamp", "json") else kind,
        )


def _column_type(element: pa.DataType | None, repeated: bool, is_map: bool) -> pa.DataType | None:
    if element is None or not repeated:
        return element
    if is_map:
        key = pa.field("key", element.field("key").type, nullable=False)
        return pa.map_(key, pa.field("value", element.field("value").type))
    return pa.list_(pa.field("element", element))


def _is_timestamp(descriptor: Any) -> bool:
    """As Spark says it: by the message's name and its fields, in whichever package it is."""
    fields = tuple((each.name, each.type) for each in descriptor.fields if not each.is_repeated)
    return descriptor.name == "Timestamp" and fields == _TIMESTAMP


def _enum(descriptor: Any) -> Enum:
    names: dict[int, str] = {}
    for each in descriptor.values:
        names.setdefault(each.number, each.name)
    numbers = {each.name: each.number for each in descriptor.values}
    return Enum(descriptor.name, names, descriptor.values[0].number, descriptor.is_closed, numbers)
