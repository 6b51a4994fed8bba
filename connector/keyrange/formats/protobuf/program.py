"""The tables by which the compiled pass reads a message: `keyrange.formats.protobuf.kernels` says
what is in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from keyrange.formats.cells import Cells, Layout, Node, node_of
from keyrange.formats.protobuf import kernels
from keyrange.formats.protobuf.messages import Enum, Field, Message

_Array = np.ndarray[Any, Any]
# Fields of larger numbers are looked up one by one.
_NUMBERS_MAX: Final = 4096
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
    "message": (kernels.MESSAGES, kernels.BLOCK),
    "group": (kernels.GROUPS, kernels.OPEN),
}


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """For one layout. Where cells begin its tables do not say yet: of `flags` and `slots`, pairs of
    a place in `fields`, or in `table`, and the number of the node meant."""

    layout: Layout
    fields: _Array
    messages: _Array
    lookup: _Array
    table: _Array
    field_flags: _Array
    field_slots: _Array
    field_counts: _Array
    table_flags: _Array
    table_slots: _Array
    # By the node of its values.
    enums: dict[int, Enum]
    # By the node of the field.
    defaults: dict[int, Field]

    def for_cells(self, cells: Cells) -> tuple[_Array, _Array, _Array]:
        """The kernel's fields, table and nodes, with the places of these cells."""
        fields, table = self.fields.copy(), self.table.copy()
        for column, pairs, begin in (
            (kernels.FLAG_AT, self.field_flags, cells.flag_at),
            (kernels.SLOT_AT, self.field_slots, cells.slot_at),
            (kernels.COUNT_AT, self.field_counts, cells.slot_at),
        ):
            fields[pairs[:, 0], column] = begin[pairs[:, 1]]
        for pairs, begin in (
            (self.table_flags, cells.flag_at),
            (self.table_slots, cells.slot_at),
        ):
            table[pairs[:, 0]] = begin[pairs[:, 1]]
        widths = np.array([each.width for each in self.layout.nodes])
        scopes = np.array([each.scope for each in self.layout.nodes], np.int64)
        slots = np.where(widths > 0, cells.slot_at, -1)
        return fields, table, np.stack([scopes, cells.flag_at, slots], axis=1)


def program_of(message: Message) -> Program:
    compiler = _Compiler(Layout(node_of(message.type)))
    compiler.add(message, compiler.layout.root.children)
    return compiler.program()


@dataclass(slots=True, eq=False)
class _Compiler:
    layout: Layout
    fields: list[list[int]] = field(default_factory=list)
    messages: list[list[int]] = field(default_factory=list)
    lookup: list[int] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    field_flags: list[tuple[int, int]] = field(default_factory=list)
    field_slots: list[tuple[int, int]] = field(default_factory=list)
    field_counts: list[tuple[int, int]] = field(default_factory=list)
    table_flags: list[tuple[int, int]] = field(default_factory=list)
    table_slots: list[tuple[int, int]] = field(default_factory=list)
    enums: dict[int, Enum] = field(default_factory=dict)
    defaults: dict[int, Field] = field(default_factory=dict)

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
        table_at.append(self._required(required))
        table_at.append(self._maps(maps))
        table_at.append(self._entry(there if entry else {}))
        self.messages[row] = table_at
        return row

    def _field(self, each: Field, node: Node | None, entry: bool) -> int:
        """The row of a field. What is in the entry of a map is there when it is zero too."""
        row = len(self.fields)
        kind, wire = _KINDS[each.kind]
        implicit = each.implicit and not each.repeated and not entry
        self.fields.append([kind, wire, 0, -1, 0, -1, int(implicit), -1, 0, -1])
        if node is None:
            # A message without fields: nearly always it is empty, and it may be anything.
            self.fields[row][kernels.KIND] = kernels.SLOWLY
            return row
        values = node.children[0] if each.repeated and not each.is_map else node
        if each.repeated:
            self.field_counts.append((row, node.number))
            self.fields[row][kernels.SCOPE] = self.layout.scope_in(node)
        if not each.is_map:
            self.field_flags.append((row, values.number))
        if each.message is not None:
            inner = self.add(each.message, values.children, entry=each.is_map)
            self.fields[row][kernels.MESSAGE] = inner
        else:
            self.field_slots.append((row, values.number))
        if each.enum is not None:
            self.enums[values.number] = each.enum
            if each.enum.closed:
                self.fields[row][kernels.KIND] = kernels.CLOSED_ENUM
                self.fields[row][kernels.ENUM] = len(self.table)
                self.table += [len(each.enum.names), *sorted(each.enum.names)]
        if each.default is not None:
            self.defaults[node.number] = each
        return row

    def _oneof(self, row: int, each: Field, there: dict[Field, Node]) -> None:
        others = [
            node for other, node in there.items() if other.oneof == each.oneof and other != each
        ]
        if each.oneof and others:
            self.fields[row][kernels.ONEOF] = len(self.table)
            self._flags(others)

    def _flags(self, nodes: list[Node]) -> None:
        self.table.append(len(nodes))
        for node in nodes:
            self.table_flags.append((len(self.table), node.number))
            self.table.append(0)

    def _required(self, nodes: list[Node]) -> int:
        first = len(self.table)
        self._flags(nodes)
        return first

    def _maps(self, nodes: list[Node]) -> int:
        first = len(self.table)
        self.table.append(len(nodes))
        for node in nodes:
            key = node.children[0]
            self.table_slots.append((len(self.table), node.number))
            self.table_slots.append((len(self.table) + 2, key.number))
            is_text = int(str(key.type) == "string")
            self.table += [0, self.layout.scope_in(node), 0, is_text]
        return first

    def _entry(self, fields: dict[Field, Node]) -> int:
        first = len(self.table)
        self.table.append(len(fields))
        for each, node in fields.items():
            self.table_flags.append((len(self.table), node.number))
            missing = each.enum.first if each.enum is not None else 0
            if each.message is None:
                self.table_slots.append((len(self.table) + 1, node.number))
            # Of a missing message some fields may be required, or have defaults of their own.
            slowly = int(each.message is not None)
            self.table += [0, -1, missing, slowly]
        return first

    def program(self) -> Program:
        def pairs(found: list[tuple[int, int]]) -> _Array:
            return np.array(found, np.int64).reshape(-1, 2)

        return Program(
            self.layout,
            np.array(self.fields, np.int64).reshape(-1, 10),
            np.array(self.messages, np.int64),
            np.array(self.lookup, np.int32),
            np.array(self.table, np.int64),
            pairs(self.field_flags),
            pairs(self.field_slots),
            pairs(self.field_counts),
            pairs(self.table_flags),
            pairs(self.table_slots),
            self.enums,
            self.defaults,
        )
