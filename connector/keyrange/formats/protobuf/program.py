"""The tables by which the compiled pass reads a message: `keyrange.formats.protobuf.kernels` says
what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from keyrange.formats.cells import Cells, Layout, Node, node_of
from keyrange.formats.protobuf import kernels
from keyrange.formats.protobuf.messages import Enum, Field, Message

_Array = np.ndarray[Any, Any]
# Fields of larger numbers are looked up one by one.
_NUMBERS_MAX: Final = 4096
_FIELD_NUMBERS: Final = 10
_KINDS: Final = {
    **dict.fromkeys(("int32", "uint32", "enum"), (kernels.INT32, kernels.VARINT)),
    **dict.fromkeys(("int64", "uint64"), (kernels.INT64, kernels.VARINT)),
    "sint32": (kernels.SINT32, kernels.VARINT),
    "sint64": (kernels.SINT64, kernels.VARINT),
    "bool": (kernels.BOOL, kernels.VARINT),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), (kernels.FIXED32, kernels.NARROW)),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), (kernels.FIXED64, kernels.WIDE)),
    "string": (kernels.TEXT, kernels.BLOCK),
    "bytes": (kernels.BYTES, kernels.BLOCK),
    "timestamp": (kernels.TIMESTAMP, kernels.BLOCK),
    "json": (kernels.SLOWLY, kernels.BLOCK),
    "message": (kernels.MESSAGES, kernels.BLOCK),
    "group": (kernels.GROUPS, kernels.OPEN),
}
# How the tag of a field says that it is written.
WIRES: Final = {word: wire for word, (_, wire) in _KINDS.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """For one layout. `numbers` are those of FIELD, and behind them the table. Where cells begin
    they do not say yet: of `flags` and `slots`, pairs of a place and the number of the node
    meant."""

    layout: Layout
    numbers: _Array
    table_at: int
    flags: _Array
    slots: _Array
    messages: _Array
    lookup: _Array

    def for_cells(self, cells: Cells) -> tuple[_Array, _Array, _Array]:
        """The kernel's fields, table and nodes, with the places of these cells."""
        numbers = self.numbers.copy()
        for pairs, begin in ((self.flags, cells.flag_at), (self.slots, cells.slot_at)):
            numbers[pairs[:, 0]] = begin[pairs[:, 1]]
        fields, table = numbers[: self.table_at], numbers[self.table_at :]
        return fields.reshape(-1, _FIELD_NUMBERS), table, self.layout.nodes_in(cells)


class _Begin(NamedTuple):
    """In the place of a number: where the flags of a node begin, or its slots."""

    node: Node
    slots: bool = False


def program_of(message: Message) -> Program:
    compiler = _Compiler(Layout(node_of(message.type)))
    compiler.add(message, compiler.layout.root.children)
    return compiler.program()


class _Names:
    """The names of an enum's numbers."""

    def __init__(self, enum: Enum) -> None:
        self._enum = enum
        self._numbers = np.array(sorted(enum.names), np.int64)
        self._texts = pa.array([enum.names[each] for each in sorted(enum.names)], pa.string())

    def of(self, slots: _Array, there: _Array) -> pa.StringArray:
        numbers = np.where(there, slots, self._enum.first)
        at = np.searchsorted(self._numbers, numbers)
        at[at == len(self._numbers)] = 0
        other = self._numbers[at] != numbers
        texts = self._texts
        if other.any():
            unknown, places = np.unique(numbers[other], return_inverse=True)
            at[other] = len(texts) + places
            more = pa.array([self._enum.text(each) for each in unknown.tolist()], pa.string())
            texts = pa.concat_arrays([texts, more])
        return texts.take(pa.array(at))


@dataclass(slots=True, eq=False)
class _Compiler:
    layout: Layout
    fields: list[list[int | _Begin]] = field(default_factory=list)
    messages: list[list[int]] = field(default_factory=list)
    lookup: list[int] = field(default_factory=list)
    table: list[int | _Begin] = field(default_factory=list)

    def add(self, message: Message, nodes: tuple[Node, ...], *, entry: bool = False) -> int:
        """The row of a message, of whose columns these are the nodes."""
        row = len(self.messages)
        self.messages.append([0] * 7)
        columns = iter(nodes)
        found = {each: next(columns) if each.type else None for each in message.fields}
        rows = {each.number: self._field(each, node, entry) for each, node in found.items()}
        there = {each: node for each, node in found.items() if node is not None}
        for each in found:
            self._oneof(rows[each.number], each, there)
        size = min(max(rows, default=0) + 1, _NUMBERS_MAX)
        table_at = [len(self.lookup), size]
        self.lookup += [rows.get(number, -1) for number in range(size)]
        table_at.append(len(self.table))
        more = [pair for pair in rows.items() if pair[0] >= size]
        self.table += [len(more), *(number for pair in more for number in pair)]
        required = [node for each, node in there.items() if each.required]
        maps = [node for each, node in there.items() if each.is_map]
        table_at.append(int(bool(required or maps or entry)))
        table_at.append(self._flags(required))
        table_at.append(self._maps(maps))
        table_at.append(self._entry(there if entry else {}))
        self.messages[row] = table_at
        return row

    def _field(self, each: Field, node: Node | None, entry: bool) -> int:
        """The row of a field. What is in the entry of a map is there when it is zero too."""
        row = len(self.fields)
        kind, wire = _KINDS[each.kind]
        implicit = each.implicit and not each.repeated and not entry
        made: list[int | _Begin] = [kind, wire, 0, -1, 0, -1, int(implicit), -1, 0, -1]
        self.fields.append(made)
        if node is None:
            # A message without fields: nearly always it is empty, and it may be anything.
            made[kernels.KIND] = kernels.SLOWLY
            return row
        values = node.children[0] if each.repeated and not each.is_map else node
        if each.repeated:
            made[kernels.COUNT_AT] = _Begin(node, slots=True)
            made[kernels.SCOPE] = self.layout.scope_in(node)
        if not each.is_map:
            made[kernels.FLAG_AT] = _Begin(values)
        if each.message is not None:
            made[kernels.MESSAGE] = self.add(each.message, values.children, entry=each.is_map)
        else:
            made[kernels.SLOT_AT] = _Begin(values, slots=True)
        if each.enum is not None:
            values.texts = _Names(each.enum).of
            if each.enum.closed:
                made[kernels.KIND] = kernels.CLOSED_ENUM
                made[kernels.ENUM] = len(self.table)
                self.table += [len(each.enum.names), *sorted(each.enum.names)]
        if each.default is not None:
            default = each.enum.text(each.default) if each.enum else each.default
            node.default = pa.scalar(default, each.type)
        node.is_always = each.repeated
        return row

    def _oneof(self, row: int, each: Field, there: dict[Field, Node]) -> None:
        others = [
            node for other, node in there.items() if other.oneof == each.oneof and other != each
        ]
        if each.oneof and others:
            self.fields[row][kernels.ONEOF] = self._flags(others)

    def _flags(self, nodes: Sequence[Node]) -> int:
        first = len(self.table)
        self.table += [len(nodes), *map(_Begin, nodes)]
        return first

    def _maps(self, nodes: Sequence[Node]) -> int:
        first = len(self.table)
        self.table.append(len(nodes))
        for node in nodes:
            key, scope = node.children[0], self.layout.scope_in(node)
            is_text = int(str(key.type) == "string")
            self.table += [_Begin(node, slots=True), scope, _Begin(key, slots=True), is_text]
        return first

    def _entry(self, fields: dict[Field, Node]) -> int:
        first = len(self.table)
        self.table.append(len(fields))
        for each, node in fields.items():
            missing = each.enum.first if each.enum is not None else 0
            # Of a missing message some fields may be required, or have defaults of their own.
            slowly = each.message is not None or each.kind == "json"
            slot = -1 if slowly else _Begin(node, slots=True)
            self.table += [_Begin(node), slot, missing, int(slowly)]
        return first

    def program(self) -> Program:
        told = [*chain.from_iterable(self.fields), *self.table]
        begins = [(at, each) for at, each in enumerate(told) if isinstance(each, _Begin)]

        def pairs(slots: bool) -> _Array:
            found = [(at, each.node.number) for at, each in begins if each.slots is slots]
            return np.array(found, np.int64).reshape(-1, 2)

        return Program(
            self.layout,
            np.array([0 if isinstance(each, _Begin) else each for each in told], np.int64),
            len(told) - len(self.table),
            pairs(slots=False),
            pairs(slots=True),
            np.array(self.messages, np.int64),
            np.array(self.lookup, np.int32),
        )
