"""Typed Arrow columns to Protobuf values.

A column fits where `messages` has its type, or a wider or narrower integer: each value that the
field does not hold is a bad one. A field without a column is not written. A null is a field that is
not there, as is a zero of a field without presence. The bytes are those of Google's serializers: by
the fields' numbers, and of a map in its order. Numbers that are repeated are packed also in proto2,
where few messages say so: every reader since Protobuf 2.3 takes both.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from keyrange.formats import written_kernels as kernels
from keyrange.formats.column_kinds import below, is_bytes, is_list, is_text, part_at
from keyrange.formats.payloads import Encoder
from keyrange.formats.protobuf.kernels import BLOCK, CLOSE
from keyrange.formats.protobuf.messages import Field, Message
from keyrange.formats.protobuf.program import WIRES
from keyrange.formats.varints import varint
from keyrange.formats.written_cells import (
    ReadSlots,
    read_booleans,
    read_bytes,
    read_floats,
    read_integers,
    read_list,
    read_nothing,
    read_symbols,
)
from keyrange.formats.written_program import Assembler, Part
from keyrange.model.value_forms import UnfitSchema

# What writes a kind of number.
_NUMBERS: Final = {
    **dict.fromkeys(("int32", "uint32", "int64", "uint64", "enum"), kernels.VARINT),
    **dict.fromkeys(("sint32", "sint64"), kernels.ZIGZAG),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), kernels.FIXED4),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), kernels.FIXED8),
    "bool": kernels.BYTE,
}
_LOW_32: Final = 2**32 - 1
# Of what Timestamp stands for: the years 1 to 9999, in microseconds.
_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999


def encoder_of(kind: pa.DataType, message: Message, prefix: bytes) -> Encoder:
    """For a column of this type, whose payloads begin with a prefix. Raises UnfitSchema with the
    name of what of the column the message does not take."""
    if not kinds.is_struct(kind):
        raise UnfitSchema(f"has message {message.name}, and the column is {kind}, no struct")
    compiler = _Compiler()
    part = Part(kind)
    node = compiler.assembler.source(part, read_nothing)
    with compiler.assembler.struct(node, b"", b""):
        compiler.add(message, part, node)
    return compiler.assembler.writer(prefix)


class _Compiler:
    def __init__(self) -> None:
        self.assembler = Assembler()

    def add(self, message: Message, part: Part, node: int) -> None:
        """What is in a message, of whose column this is the node."""
        path = part.path
        fields = {each.name: each for each in message.fields}
        places = {each.name: at for at, each in enumerate(part.kind)}
        for name in places:
            if name not in fields or fields[name].type is None:
                what = "is no field of" if name not in fields else "has no fields in"
                raise UnfitSchema(f"{part_at(below(path, name))} {what} message {message.name}")
        members: dict[str, list[int]] = {}
        for each in sorted(message.fields, key=lambda one: -one.number):
            if each.name in places:
                made = self._field(each, part.field(node, places[each.name]))
                members.setdefault(each.oneof, []).append(made)
            elif each.required:
                raise UnfitSchema(f"no column is {below(path, each.name)}, a required field")
        for oneof, nodes in members.items():
            if oneof and len(nodes) > 1:
                several = f"{part_at(below(path, oneof))} is a oneof, and has several values"
                self.assembler.choose(node, nodes, b"", several)

    def _field(self, field: Field, part: Part) -> int:
        """The number of its node."""
        kind, inner = part.kind, part.path + "[]"
        tag = varint(field.number << 3 | WIRES[field.kind])
        if kinds.is_null(kind):
            node = self.assembler.source(part, read_nothing)
            self.assembler.step(kernels.CONST, node, null=None if field.required else b"")
            return node
        if not field.repeated:
            null = None if field.required else b""
            return self._value(field, part, tag, null, field.implicit)
        if not (kinds.is_map(kind) if field.is_map else is_list(kind)):
            raise _misfit(part, field)
        assembler = self.assembler
        node = assembler.source(part, read_list)
        if field.is_map:
            self._entries(field, part, node, tag)
        elif field.kind in _NUMBERS:
            tag = varint(field.number << 3 | BLOCK)
            with assembler.elements(node, tag, b"", kernels.PACKED):
                self._value(field, Part(kind.value_type, node, 0, inner), b"", None)
        else:
            with assembler.elements(node, b"", b"", kernels.CONST):
                self._value(field, Part(kind.value_type, node, 0, inner), tag, None)
        return node

    def _entries(self, field: Field, part: Part, node: int, tag: bytes) -> None:
        """What is in an entry is written when it is zero, too."""
        assert field.message is not None
        key, value = field.message.fields
        kind, path = part.kind, part.path + "{}"
        assembler = self.assembler
        with (
            assembler.elements(node, b"", b"", kernels.CONST),
            assembler.struct(-1, tag, b"", sized=True),
        ):
            for at, each, inner in ((1, value, kind.item_type), (0, key, kind.key_type)):
                own = varint(each.number << 3 | WIRES[each.kind])
                self._value(each, Part(inner, node, at, path), own, None)

    def _value(
        self, field: Field, part: Part, tag: bytes, null: bytes | None, implicit: bool = False
    ) -> int:
        """One value of a field; with `null` None each place has one."""
        assembler = self.assembler
        if field.message is not None:
            if not kinds.is_struct(part.kind):
                raise _misfit(part, field)
            node = assembler.source(part, read_nothing)
            if field.kind == "group":
                end = varint(field.number << 3 | CLOSE)
                with assembler.struct(node, tag, null):
                    assembler.step(kernels.CONST, lead=end)
                    self.add(field.message, part, node)
            else:
                with assembler.struct(node, tag, null, sized=True):
                    self.add(field.message, part, node)
            return node
        read, op, unfit = _leaf(field, part)
        node = assembler.source(part, read, unfit, skips_zero=implicit)
        assembler.step(op, node, tag, null, kernels.VARINT)
        return node


def _leaf(field: Field, part: Part) -> tuple[ReadSlots, int, str]:
    """How slots are made of a column, what writes them, and what it means that one is unfit."""
    kind, word = part.kind, field.kind
    op = _NUMBERS.get(word, kernels.BYTES)
    if field.enum is not None and is_text(kind):
        numbers = field.enum.numbers
        read = read_symbols([*numbers], [*numbers.values()])
        return read, op, f"is no name of enum {field.enum.name}"
    if word == "string" and is_text(kind):
        return read_bytes(), op, ""
    if word == "bytes" and is_bytes(kind):
        return read_bytes(), op, ""
    if word == "bool" and kinds.is_boolean(kind):
        return read_booleans, op, ""
    if word in ("float", "double") and kinds.is_floating(kind):
        wanted = pa.float32() if word == "float" else pa.float64()
        if kind.bit_width <= wanted.bit_width:
            return read_floats(wanted), op, ""
    if word == "timestamp" and kinds.is_timestamp(kind) and kind.unit == "us" and kind.tz:
        read = read_integers(_FIRST_US, _LAST_US)
        return read, kernels.TIMESTAMP, "is not within the years 1 to 9999"
    if word in _NUMBERS and field.enum is None and kinds.is_signed_integer(kind):
        return _integers(word, kind), op, f"is out of the range of {word}"
    raise _misfit(part, field)


def _integers(word: str, kind: pa.DataType) -> ReadSlots:
    """Of a number without a sign, columns of as many bits have its bits, and wider ones itself."""
    if word.endswith("64"):
        return read_integers()
    if word in ("uint32", "fixed32"):
        lowest, highest = (0, _LOW_32) if kind.bit_width > 32 else (-(2**31), 2**31 - 1)
        return read_integers(lowest, highest, mask=_LOW_32)
    return read_integers(-(2**31), 2**31 - 1)


def _misfit(part: Part, field: Field) -> UnfitSchema:
    many = ("map of " if field.is_map else "repeated ") if field.repeated else ""
    unwritten = ", which keyrange reads and does not write" if field.kind == "json" else ""
    text = f"{part.name} is {part.kind}, and the message has {many}{field.named} there{unwritten}"
    return UnfitSchema(text[:400])
