"""Typed Arrow columns to Avro values.

A column fits where reading what is written gives its type (`keyrange.formats.avro.types`), and
where nothing is lost: an integer may be wider or narrower than its field, each value that does not
fit is a bad one; a float may become a double, and a decimal one of more digits. Times are rounded
down to the unit of their field.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from keyrange.formats import written_kernels as kernels
from keyrange.formats.avro.defaults import BITS, default_of, in_micros
from keyrange.formats.avro.schemas import MISSING, AvroField, AvroType
from keyrange.formats.avro.types import arrow_type, members
from keyrange.formats.column_kinds import below, is_bytes, is_list, is_text, part_at
from keyrange.formats.payloads import Encoder
from keyrange.formats.varints import zigzag
from keyrange.formats.written_cells import (
    ReadSlots,
    read_booleans,
    read_bytes,
    read_decimals,
    read_floats,
    read_integers,
    read_list,
    read_nothing,
    read_symbols,
)
from keyrange.formats.written_program import Assembler, Part
from keyrange.model.value_forms import UnfitSchema

_FLOATS: Final = {"float": kernels.FIXED4, "double": kernels.FIXED8}


def encoder_of(kind: pa.DataType, schema: AvroType, prefix: bytes) -> Encoder:
    """For a column of this type, whose payloads begin with a prefix. Raises UnfitSchema with the
    name of what of the column the schema does not take."""
    compiler = _Compiler()
    compiler.add(schema, Part(kind))
    return compiler.assembler.writer(prefix)


class _Compiler:
    def __init__(self) -> None:
        self.assembler = Assembler()

    def add(self, schema: AvroType, part: Part) -> None:
        if schema.kind != "union":
            self._add(schema, part, b"", None)
            return
        branches = [each.kind for each in schema.branches]
        null = zigzag(branches.index("null")) if "null" in branches else None
        held = members(schema)
        if not isinstance(held, AvroType):
            self._choose(schema, held, part, null)
        elif held.kind == "null":
            self._add(held, part, b"", b"\0")
        else:
            at = branches.index(held.kind)
            self._add(schema.branches[at], part, zigzag(at), null)

    def _add(self, schema: AvroType, part: Part, lead: bytes, null: bytes | None) -> int:
        """The number of the node, of a branch of a union or of a schema that is none."""
        if kinds.is_null(part.kind):
            null = b"" if null is None and schema.kind == "null" else null
            node = self.assembler.source(part, read_nothing)
            self.assembler.step(kernels.CONST, node, null=null)
            return node
        match schema.kind:
            case "record":
                return self._record(schema, part, lead, null)
            case "array" | "map":
                return self._repeat(schema, part, lead, null)
        read, op, unfit = _leaf(schema, part)
        node = self.assembler.source(part, read, unfit)
        sized = kernels.CONST if schema.kind == "fixed" else kernels.ZIGZAG
        size = schema.size if schema.kind == "fixed" else -1
        self.assembler.step(op, node, lead, null, size if op == kernels.DECIMAL else sized)
        return node

    def _record(self, schema: AvroType, part: Part, lead: bytes, null: bytes | None) -> int:
        if not kinds.is_struct(part.kind):
            raise _misfit(part, schema)
        places = {each.name: at for at, each in enumerate(part.kind)}
        if more := [each for each in places if each not in {f.name for f in schema.fields}]:
            raise UnfitSchema(f"{part_at(below(part.path, more[0]))} is no field of {schema}")
        node = self.assembler.source(part, read_nothing)
        with self.assembler.struct(node, lead, null):
            for each in reversed(schema.fields):
                if each.name in places:
                    self.add(each.type, part.field(node, places[each.name]))
                else:
                    self.assembler.step(kernels.CONST, lead=_default(each, part.path))
        return node

    def _repeat(self, schema: AvroType, part: Part, lead: bytes, null: bytes | None) -> int:
        kind, is_map = part.kind, schema.kind == "map"
        if not (kinds.is_map(kind) if is_map else is_list(kind)):
            raise _misfit(part, schema)
        if is_map and not is_text(kind.key_type):
            raise UnfitSchema(f"{part.name} has keys of type {kind.key_type}, and not texts")
        node = self.assembler.source(part, read_list)
        with self.assembler.elements(node, lead, null, kernels.COUNT, zero=1):
            if is_map:
                self.add(schema.element, Part(kind.item_type, node, 1, part.path + "{}"))
                keys = Part(kind.key_type, node, 0, part.path, ": a key")
                key = self.assembler.source(keys, read_bytes())
                self.assembler.step(kernels.BYTES, key, a=kernels.ZIGZAG)
            else:
                self.add(schema.element, Part(kind.value_type, node, 0, part.path + "[]"))
        return node

    def _choose(
        self, schema: AvroType, held: tuple[AvroType, ...], part: Part, null: bytes | None
    ) -> None:
        """A union of several types is a struct with a field for each, of which one is there."""
        names = [f"member{at}" for at in range(len(held))]
        if not kinds.is_struct(part.kind) or [each.name for each in part.kind] != names:
            of = ", ".join(map(str, held))
            raise UnfitSchema(
                f"{part.name} is {part.kind}, and has to be a struct of {', '.join(names)}, one of "
                f"which is there: a union of {of}"[:400]
            )
        assembler = self.assembler
        node = assembler.source(part, read_nothing)
        several = f"{part.name} has several values, and a union takes one"
        chosen = assembler.choose(node, [0] * len(held), null, several)
        jumps = []
        for at, each in enumerate(held):
            assembler.land(chosen, at)
            lead = zigzag(schema.branches.index(each))
            member = self._add(each, part.field(node, at), lead, None)
            assembler.table[chosen.a + 2 * at] = member
            jumps.append(assembler.step(kernels.JUMP))
        for jump in jumps:
            jump.a = len(assembler.steps)
        chosen.null_next = len(assembler.steps)


def _default(field: AvroField, path: str) -> bytes:
    """What is written of a field that no column has."""
    where = below(path, field.name)
    has_null = any(each.kind == "null" for each in field.type.branches)
    if field.default is MISSING and not has_null:
        raise UnfitSchema(f"no column is {where[:200]}, a field without a default")
    value = None if field.default is MISSING else default_of(field.default, field.type, where)
    only = AvroType("record", "r", fields=(AvroField(field.name, field.type, frozenset(), None),))
    kind = arrow_type(only)
    written = encoder_of(kind, only, b"").write(pa.array([{field.name: value}], kind))
    if written.bad:
        raise UnfitSchema(f"the default of {where[:200]} is none")
    found: bytes = written.payloads[0].as_py()
    return found


def _leaf(schema: AvroType, part: Part) -> tuple[ReadSlots, int, str]:
    """How slots are made of a column, what writes them, and what it means that one is unfit."""
    kind, logical = part.kind, schema.logical
    if logical == "decimal" and kinds.is_decimal128(kind) and kind.scale <= schema.scale:
        unfit = f"has more than {schema.precision} digits, {schema.scale} of them behind the point"
        return read_decimals(schema.precision, schema.scale), kernels.DECIMAL, unfit
    wanted = arrow_type(schema)
    if schema.kind in BITS:
        return (
            _integer(schema, part, wanted),
            kernels.ZIGZAG,
            f"is out of the range of {schema}",
        )
    if schema.kind in _FLOATS and kinds.is_floating(kind) and kind.bit_width <= wanted.bit_width:
        return read_floats(wanted), _FLOATS[schema.kind], ""
    if schema.kind == "boolean" and kinds.is_boolean(kind):
        return read_booleans, kernels.BYTE, ""
    if schema.kind == "enum" and is_text(kind):
        symbols = schema.symbols
        return (
            read_symbols(symbols, range(len(symbols))),
            kernels.ZIGZAG,
            f"is no symbol of {schema}",
        )
    if schema.kind == "string" and is_text(kind) and logical != "decimal":
        return read_bytes(), kernels.BYTES, ""
    if schema.kind in ("bytes", "fixed") and is_bytes(kind) and logical != "decimal":
        size = schema.size if schema.kind == "fixed" else -1
        return read_bytes(size), kernels.BYTES, f"has not the {size} bytes of {schema}"
    raise _misfit(part, schema)


def _integer(schema: AvroType, part: Part, wanted: pa.DataType) -> ReadSlots:
    kind = part.kind
    limit = 1 << (BITS[schema.kind] - 1)
    if kinds.is_signed_integer(kind) and kinds.is_integer(wanted):
        return read_integers(-limit, limit - 1)
    if kinds.is_date32(kind) and kinds.is_date32(wanted):
        return read_integers()
    is_time = kinds.is_timestamp(kind) and kinds.is_timestamp(wanted) and kind.unit == "us"
    if is_time and bool(kind.tz) == bool(wanted.tz):
        return read_integers(divisor=in_micros(schema.logical))
    raise _misfit(part, schema)


def _misfit(part: Part, schema: AvroType) -> UnfitSchema:
    return UnfitSchema(f"{part.name} is {part.kind}, and the schema has {schema} there"[:400])
