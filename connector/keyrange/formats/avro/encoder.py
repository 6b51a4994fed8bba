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
    read_times,
)
from keyrange.formats.written_program import Assembler
from keyrange.model.value_forms import UnfitSchema

_FLOATS: Final = {"float": kernels.FIXED4, "double": kernels.FIXED8}


def encoder_of(kind: pa.DataType, schema: AvroType, prefix: bytes) -> Encoder:
    """For a column of this type, whose payloads begin with a prefix. Raises UnfitSchema with the
    name of what of the column the schema does not take."""
    compiler = _Compiler()
    compiler.add(schema, kind, -1, 0, "")
    return compiler.assembler.writer(prefix)


class _Compiler:
    def __init__(self) -> None:
        self.assembler = Assembler()

    def add(self, schema: AvroType, kind: pa.DataType, parent: int, part: int, path: str) -> None:
        """A part of the column of a node."""
        if schema.kind != "union":
            self._add(schema, kind, parent, part, path, b"", None)
            return
        branches = [each.kind for each in schema.branches]
        null = zigzag(branches.index("null")) if "null" in branches else None
        held = members(schema)
        if not isinstance(held, AvroType):
            self._choose(schema, held, kind, parent, part, path, null)
        elif held.kind == "null":
            self._add(held, kind, parent, part, path, b"", b"\0")
        else:
            at = branches.index(held.kind)
            self._add(schema.branches[at], kind, parent, part, path, zigzag(at), null)

    def _add(
        self,
        schema: AvroType,
        kind: pa.DataType,
        parent: int,
        part: int,
        path: str,
        lead: bytes,
        null: bytes | None,
    ) -> int:
        """The number of the node, of a branch of a union or of a schema that is none."""
        if kinds.is_null(kind):
            null = b"" if null is None and schema.kind == "null" else null
            node = self.assembler.source(parent, part, read_nothing, part_at(path))
            self.assembler.step(kernels.CONST, node, null=null)
            return node
        match schema.kind:
            case "record":
                return self._record(schema, kind, parent, part, path, lead, null)
            case "array" | "map":
                return self._repeat(schema, kind, parent, part, path, lead, null)
        read, op, unfit = _leaf(schema, kind, path)
        node = self.assembler.source(parent, part, read, part_at(path), unfit)
        sized = kernels.CONST if schema.kind == "fixed" else kernels.ZIGZAG
        size = schema.size if schema.kind == "fixed" else -1
        self.assembler.step(op, node, lead, null, size if op == kernels.DECIMAL else sized)
        return node

    def _record(
        self,
        schema: AvroType,
        kind: pa.DataType,
        parent: int,
        part: int,
        path: str,
        lead: bytes,
        null: bytes | None,
    ) -> int:
        if not kinds.is_struct(kind):
            raise _misfit(kind, schema, path)
        places = {each.name: at for at, each in enumerate(kind)}
        if more := [each for each in places if each not in {f.name for f in schema.fields}]:
            raise UnfitSchema(f"{part_at(below(path, more[0]))} is no field of {schema}")
        node = self.assembler.source(parent, part, read_nothing, part_at(path))
        with self.assembler.struct(node, lead, null):
            for each in reversed(schema.fields):
                if each.name in places:
                    at = places[each.name]
                    self.add(each.type, kind[at].type, node, at, below(path, each.name))
                else:
                    self.assembler.step(kernels.CONST, lead=_default(each, path))
        return node

    def _repeat(
        self,
        schema: AvroType,
        kind: pa.DataType,
        parent: int,
        part: int,
        path: str,
        lead: bytes,
        null: bytes | None,
    ) -> int:
        is_map = schema.kind == "map"
        if not (kinds.is_map(kind) if is_map else is_list(kind)):
            raise _misfit(kind, schema, path)
        if is_map and not is_text(kind.key_type):
            raise UnfitSchema(f"{part_at(path)} has keys of type {kind.key_type}, and not texts")
        node = self.assembler.source(parent, part, read_list, part_at(path))
        with self.assembler.elements(node, lead, null, kernels.COUNT, zero=1):
            if is_map:
                self.add(schema.element, kind.item_type, node, 1, path + "{}")
                key = self.assembler.source(node, 0, read_bytes(), f"{part_at(path)}: a key")
                self.assembler.step(kernels.BYTES, key, a=kernels.ZIGZAG)
            else:
                self.add(schema.element, kind.value_type, node, 0, path + "[]")
        return node

    def _choose(
        self,
        schema: AvroType,
        held: tuple[AvroType, ...],
        kind: pa.DataType,
        parent: int,
        part: int,
        path: str,
        null: bytes | None,
    ) -> None:
        """A union of several types is a struct with a field for each, of which one is there."""
        names = [f"member{at}" for at in range(len(held))]
        if not kinds.is_struct(kind) or [each.name for each in kind] != names:
            of = ", ".join(map(str, held))
            raise UnfitSchema(
                f"{part_at(path)} is {kind}, and has to be a struct of {', '.join(names)}, one of "
                f"which is there: a union of {of}"[:400]
            )
        assembler = self.assembler
        node = assembler.source(parent, part, read_nothing, part_at(path))
        several = f"{part_at(path)} has several values, and a union takes one"
        chosen = assembler.choose(node, [0] * len(held), null, several)
        jumps = []
        for at, each in enumerate(held):
            assembler.land(chosen, at)
            lead = zigzag(schema.branches.index(each))
            where = below(path, names[at])
            member = self._add(each, kind[at].type, node, at, where, lead, None)
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
    if written.bad.errors:
        raise UnfitSchema(f"the default of {where[:200]} is none")
    found: bytes = written.payloads[0].as_py()
    return found


def _leaf(schema: AvroType, kind: pa.DataType, path: str) -> tuple[ReadSlots, int, str]:
    """How slots are made of a column, what writes them, and what it means that one is unfit."""
    logical = schema.logical
    if logical == "decimal" and kinds.is_decimal128(kind) and kind.scale <= schema.scale:
        unfit = f"has more than {schema.precision} digits, {schema.scale} of them behind the point"
        return read_decimals(schema.precision, schema.scale), kernels.DECIMAL, unfit
    wanted = arrow_type(schema)
    if schema.kind in BITS:
        return (
            _integer(schema, kind, wanted, path),
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
    raise _misfit(kind, schema, path)


def _integer(schema: AvroType, kind: pa.DataType, wanted: pa.DataType, path: str) -> ReadSlots:
    limit = 1 << (BITS[schema.kind] - 1)
    if kinds.is_signed_integer(kind) and kinds.is_integer(wanted):
        return read_integers(-limit, limit - 1)
    if kinds.is_date32(kind) and kinds.is_date32(wanted):
        return read_times()
    is_time = kinds.is_timestamp(kind) and kinds.is_timestamp(wanted) and kind.unit == "us"
    if is_time and bool(kind.tz) == bool(wanted.tz):
        return read_times(in_micros(schema.logical))
    raise _misfit(kind, schema, path)


def _misfit(kind: pa.DataType, schema: AvroType, path: str) -> UnfitSchema:
    return UnfitSchema(f"{part_at(path)} is {kind}, and the schema has {schema} there"[:400])
