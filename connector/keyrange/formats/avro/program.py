"""The steps by which the compiled pass reads what two schemas resolve to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.formats.avro import kernels
from keyrange.formats.avro.defaults import BITS, in_micros
from keyrange.formats.avro.resolution import (
    Action,
    Branches,
    Member,
    Misfit,
    Nothing,
    Read,
    Record,
    Repeat,
    Skip,
    reads_defaults,
)
from keyrange.formats.avro.schemas import AvroType
from keyrange.formats.cells import Cells, Layout, Node

_Array = np.ndarray[Any, Any]
_PAYLOAD_BYTES_MAX: Final = 2**31
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


@dataclass(slots=True, eq=False)
class _Step:
    op: int
    node: Node | None = None
    a: int = 0
    b: int = 0
    c: int = 0
    # The node whose slots `a` is to be the beginning of.
    keys: Node | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """For one layout. `steps` do not say yet where cells begin."""

    layout: Layout
    steps: _Array
    nodes: _Array  # by step: its node, or -1
    keys: _Array  # by step: the node whose slots its `a` is the beginning of, or -1
    table: _Array

    def for_cells(self, cells: Cells) -> tuple[_Array, _Array]:
        """The steps with the places of these cells, and the kernel's nodes."""
        steps = self.steps.copy()
        at = np.flatnonzero(self.nodes >= 0)
        steps[at, kernels.FLAG_AT] = cells.flag_at[self.nodes[at]]
        steps[at, kernels.SLOT_AT] = cells.slot_at[self.nodes[at]]
        at = np.flatnonzero(self.keys >= 0)
        steps[at, kernels.A] = cells.slot_at[self.keys[at]]
        return steps, self.layout.nodes_in(cells)


def program_of(action: Action, root: Node) -> Program:
    """Numbers the nodes, of which `action` has made some constants."""
    compiler = _Compiler(Layout(root))
    compiler.add(action)
    compiler.step(kernels.END)
    compiler.add_skipped_records()
    return compiler.program()


@dataclass(slots=True, eq=False)
class _Compiler:
    layout: Layout
    steps: list[_Step] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    # Records that are left, each once: the steps that call them, and where they are.
    calls: dict[AvroType, list[_Step]] = field(default_factory=dict)
    least: dict[AvroType, int] = field(default_factory=dict)

    def step(self, op: int, node: Node | None = None, a: int = 0, b: int = 0, c: int = 0) -> _Step:
        self.steps.append(_Step(op, node, a, b, c))
        return self.steps[-1]

    def add(self, action: Action) -> None:
        match action:
            case Nothing():
                pass
            case Misfit():
                self.step(kernels.SLOWLY)
            case Skip():
                self._skip(action.writer)
            case Read():
                self._read(action)
            case Member():
                self.step(kernels.PRESENT, action.node)
                self.add(action.action)
            case Record():
                self._record(action)
            case Branches():
                self._branches(list(action.actions))
            case Repeat():
                self._repeat(action)

    def _record(self, action: Record) -> None:
        if reads_defaults(action):
            self.step(kernels.SLOWLY)
            return
        self.step(kernels.PRESENT, action.node)
        for _, each in action.steps:
            self.add(each)

    def _branches(self, actions: list[Action]) -> None:
        """Each ends with a jump behind the last one."""
        first = len(self.table)
        self.step(kernels.BRANCH, a=len(actions), b=first)
        self.table += [-1] * len(actions)
        jumps = []
        for at, each in enumerate(actions):
            if not isinstance(each, Misfit):
                self.table[first + at] = len(self.steps)
                self.add(each)
                jumps.append(self.step(kernels.JUMP))
        if jumps and jumps[-1] is self.steps[-1]:
            self.steps.pop()
        for jump in jumps:
            jump.a = len(self.steps)

    def _repeat(self, action: Repeat) -> None:
        node = action.node
        scope = self.layout.scope_in(node)
        is_map = action.writer.kind == "map"
        loop = self.step(kernels.LOOP, b=self._least_element(action.writer), c=scope)
        start = len(self.steps)
        if is_map:
            self.step(kernels.TEXT, node.children[0])
        self.add(action.element)
        self.step(kernels.NEXT, a=start, b=loop.b, c=scope)
        loop.a = len(self.steps)
        close = self.step(kernels.CLOSE, node, a=-1, c=scope)
        close.keys = node.children[0] if is_map else None

    def _read(self, action: Read) -> None:
        kind, node = action.writer.kind, action.node
        if pa.types.is_decimal(node.type):
            limit = 10**action.reader.precision
            size = action.writer.size if kind == "fixed" else -1
            self.step(kernels.DECIMAL, node, a=size, b=len(self.table))
            self.table += [*_halves(limit), *_halves(-limit)]
        elif kind == "enum":
            numbers = {each: at for at, each in enumerate(action.reader.symbols)}
            node.texts = partial(_texts, pa.array(action.reader.symbols, pa.string()))
            self.step(kernels.SYMBOL, node, a=len(action.symbols), b=len(self.table))
            self.table += [-1 if each is None else numbers[each] for each in action.symbols]
        elif kind == "fixed":
            self.step(kernels.FIXED, node, a=action.writer.size)
        elif kind in BITS:
            self._integer(action)
        elif kind == "float":
            wide = pa.types.is_float64(node.type)
            self.step(kernels.FLOAT_TO_DOUBLE if wide else kernels.FLOAT, node)
        else:
            text = pa.types.is_string(node.type)
            ops = {"double": kernels.DOUBLE, "boolean": kernels.BOOLEAN}
            self.step(ops.get(kind, kernels.TEXT if text else kernels.BYTES), node)

    def _integer(self, action: Read) -> None:
        kind, bits = action.node.type, BITS[action.writer.kind]
        if pa.types.is_floating(kind):
            wide = pa.types.is_float64(kind)
            op = kernels.INTEGER_TO_DOUBLE if wide else kernels.INTEGER_TO_FLOAT
            self.step(op, action.node, a=bits)
        else:
            self.step(kernels.INTEGER, action.node, a=bits, b=factor(action))

    def _skip(self, writer: AvroType) -> None:
        kind = writer.kind
        if kind == "record":
            self.calls.setdefault(writer, []).append(self.step(kernels.CALL))
        elif kind == "union":
            self._branches([Skip(each) for each in writer.branches])
        elif kind in ("array", "map"):
            loop = self.step(kernels.LOOP, b=self._least_element(writer), c=-1)
            start = len(self.steps)
            if kind == "map":
                self.step(kernels.SKIP_BYTES, a=64)
            self._skip(writer.element)
            self.step(kernels.NEXT, a=start, b=loop.b, c=-1)
            loop.a = len(self.steps)
        elif kind == "boolean":
            self.step(kernels.SKIP_BOOLEAN)
        elif kind in _FIXED_BYTES or kind == "fixed":
            self.step(kernels.SKIP_FIXED, a=_FIXED_BYTES.get(kind, writer.size))
        elif kind in ("bytes", "string"):
            self.step(kernels.SKIP_BYTES, a=64)
        elif kind != "null":
            # An enum is an int.
            self.step(kernels.SKIP_VARINT, a=64 if kind == "long" else 32, b=len(writer.symbols))

    def add_skipped_records(self) -> None:
        """Behind the end of the program, each with its return: records may be in themselves."""
        starts: dict[AvroType, int] = {}
        while left := [each for each in self.calls if each not in starts]:
            for record in left:
                starts[record] = len(self.steps)
                for each in record.fields:
                    self._skip(each.type)
                self.step(kernels.RETURN)
        for record, calls in self.calls.items():
            for call in calls:
                call.a = starts[record]

    def _least_element(self, writer: AvroType) -> int:
        """The bytes that an element has at least, its key with it."""
        return self._least(writer.element) + (writer.kind == "map")

    def _least(self, writer: AvroType) -> int:
        """The bytes that a value has at least. What is in itself counts for nothing there."""
        if writer.kind == "record":
            if writer not in self.least:
                self.least[writer] = 0
                fields = sum(self._least(each.type) for each in writer.fields)
                self.least[writer] = min(fields, _PAYLOAD_BYTES_MAX)
            return self.least[writer]
        if writer.kind in ("null", "fixed"):
            return writer.size
        return _FIXED_BYTES.get(writer.kind, 1)

    def program(self) -> Program:
        steps = np.zeros((len(self.steps), 7), np.int64)
        for at, each in enumerate(self.steps):
            scope = each.node.scope if each.node else 0
            steps[at] = (each.op, scope, 0, 0, each.a, each.b, each.c)
        numbers = [-1 if each.node is None else each.node.number for each in self.steps]
        keys = [-1 if each.keys is None else each.keys.number for each in self.steps]
        table = np.array(self.table or [0], np.int64)
        return Program(self.layout, steps, np.array(numbers), np.array(keys), table)


def factor(action: Read) -> int:
    """By what an integer is multiplied: columns have microseconds."""
    if not pa.types.is_timestamp(action.node.type):
        return 1
    return in_micros(action.writer.logical or action.reader.logical)


def _texts(symbols: pa.StringArray, slots: _Array, there: _Array) -> pa.StringArray:
    return symbols.take(pa.array(np.where(there, slots, 0).astype(np.int32)))


def _halves(number: int) -> tuple[int, int]:
    """The upper and the lower half of 128 bits, as numbers with a sign."""
    low = number & (2**64 - 1)
    return number >> 64, low - (2**64 if low >= 2**63 else 0)
