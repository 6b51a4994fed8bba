"""The steps by which the compiled pass writes a schema, and their run over a column.

A format emits the steps of its schema from the last byte to the first one. Errors name the part of
the column, and nothing of its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.formats import written_kernels as kernels
from keyrange.formats.column_kinds import below, part_at
from keyrange.formats.payloads import WrittenValues
from keyrange.formats.written_cells import ReadSlots, Source, WrittenCells, cells_of

_Array = np.ndarray[Any, Any]
_VARINT: Final = 10
# By op, the most that a step writes beside its lead, its null, and bytes of the column's own.
_BYTES_MAX: Final = np.zeros(kernels.END + 1, np.int64)
for _op, _most in {
    **dict.fromkeys((kernels.ZIGZAG, kernels.VARINT, kernels.BYTES, kernels.SIZE), _VARINT),
    **dict.fromkeys((kernels.COUNT, kernels.PACKED), _VARINT),
    kernels.BYTE: 1,
    kernels.FIXED4: 4,
    kernels.FIXED8: 8,
    kernels.DECIMAL: 17,
    kernels.TIMESTAMP: 3 * _VARINT,
    kernels.LOOP: 1,
}.items():
    _BYTES_MAX[_op] = _most


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the column of a node, by default the column itself. `at` as `part` of a `Source`.
    For errors `path` is that within the column, and `what` of it this is."""

    kind: pa.DataType
    node: int = -1
    at: int = 0
    path: str = ""
    what: str = ""

    @property
    def name(self) -> str:
        return part_at(self.path) + self.what

    def field(self, node: int, at: int) -> Part:
        """A field of this part, whose node it is."""
        field = self.kind[at]
        return Part(field.type, node, at, below(self.path, field.name))


@dataclass(slots=True, eq=False)
class _Step:
    op: int
    node: int
    scope: int  # a node that has as many places as the step runs
    lead: bytes
    null: bytes | None
    a: int
    b: int
    null_next: int
    several: str = ""  # what it means that a choice has several values


@dataclass(slots=True, eq=False)
class Assembler:
    """Takes the steps of a program, each behind those of what is written behind it."""

    steps: list[_Step] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    _scopes: list[int] = field(default_factory=lambda: [0])
    _depth: int = 0
    _deepest: int = 0

    def source(
        self, part: Part, read: ReadSlots, unfit: str = "", *, skips_zero: bool = False
    ) -> int:
        """A node, by its number."""
        self.sources.append(Source(part.node, part.at, read, part.name, unfit, skips_zero))
        return len(self.sources) - 1

    def step(
        self,
        op: int,
        node: int = -1,
        lead: bytes = b"",
        null: bytes | None = None,
        a: int = 0,
        b: int = 0,
    ) -> _Step:
        """A step that goes on to the next one also where its node has no value; `null` None: that
        is a fault."""
        made = _Step(op, node, self._scopes[-1], lead, null, a, b, len(self.steps) + 1)
        self.steps.append(made)
        return made

    @contextmanager
    def struct(
        self, node: int, lead: bytes, null: bytes | None, *, sized: bool = False
    ) -> Iterator[None]:
        """What is emitted within is in a struct, `sized` behind its size."""
        opened = self.step(kernels.OPEN_SIZED if sized else kernels.OPEN, node, null=null)
        with self._deeper(sized):
            yield
        self.step(kernels.SIZE if sized else kernels.CONST, lead=lead)
        opened.null_next = len(self.steps)

    @contextmanager
    def elements(
        self, node: int, lead: bytes, null: bytes | None, close: int, *, zero: int = 0
    ) -> Iterator[None]:
        """What is emitted within is an element of a list, or an entry of a map; `close` is COUNT or
        PACKED, or CONST without a lead for neither."""
        loop = self.step(kernels.LOOP, node, null=null, b=zero)
        start = len(self.steps)
        # Its first part is emitted next.
        self._scopes.append(len(self.sources))
        with self._deeper(True):
            yield
        self._scopes.pop()
        self.step(kernels.NEXT, a=start)
        loop.a = len(self.steps)
        if close != kernels.CONST:
            self.step(close, lead=lead)
        loop.null_next = len(self.steps)

    @contextmanager
    def _deeper(self, stacks: bool) -> Iterator[None]:
        self._depth += stacks
        self._deepest = max(self._deepest, self._depth)
        yield
        self._depth -= stacks

    def choose(self, node: int, members: Sequence[int], null: bytes | None, several: str) -> _Step:
        """At most one of the members is there; `several` says what is wrong with more of them. Each
        is gone on with at the next step, if `land` does not say another one."""
        chosen = self.step(kernels.CHOOSE, node, null=null, a=len(self.table), b=len(members))
        chosen.several = several
        for each in members:
            self.table += [each, len(self.steps)]
        return chosen

    def land(self, chosen: _Step, at: int) -> None:
        """The member at a place is written by the next step."""
        self.table[chosen.a + 2 * at + 1] = len(self.steps)

    def writer(self, prefix: bytes) -> Writer:
        """The program, each of whose payloads begins with a prefix."""
        self.step(kernels.CONST, lead=prefix)
        self.step(kernels.END)
        consts = bytearray()

        def placed(text: bytes) -> int:
            at = consts.find(text)
            if at < 0:
                at = len(consts)
                consts.extend(text)
            return at

        steps = np.zeros((len(self.steps), 9), np.int64)
        for row, each in enumerate(self.steps):
            null = each.null or b""
            size = -1 if each.null is None else len(null)
            lead = placed(each.lead), len(each.lead)
            absent = placed(null), size, each.null_next
            steps[row] = (each.op, each.node, *lead, *absent, each.a, each.b)
        return Writer(
            tuple(self.sources),
            steps,
            np.array([each.scope for each in self.steps], np.int64),
            np.frombuffer(bytes(consts) or b"\0", np.uint8).copy(),
            np.array(self.table or [0], np.int64),
            self._deepest + 1,
            tuple(each.several for each in self.steps),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Writer:
    """An `Encoder`: a program for columns of one type. `scopes`: by step a node of its scope."""

    sources: tuple[Source, ...]
    steps: _Array
    scopes: _Array
    consts: _Array
    table: _Array
    depth: int
    several: tuple[str, ...]

    def write(self, column: pa.Array) -> WrittenValues:
        """A payload for each value; none where it is null, or unfit."""
        count = len(column)
        cells = cells_of(self.sources, column)
        margin, room = self._room(cells)
        target = pa.allocate_buffer(room, resizable=False)
        out = np.frombuffer(target, np.uint8)
        begins, faults = np.zeros(count + 1, np.int64), np.full(count, -1, np.int64)
        present = cells.flags[:count] != kernels.ABSENT
        least: int = kernels.write_rows(
            out,
            begins,
            present.view(np.uint8),
            faults,
            self.steps,
            cells.nodes,
            self.consts,
            self.table,
            cells.flags,
            cells.slots,
            np.zeros((self.depth, 4), np.int64),
            margin,
        )
        if least < 0:
            raise AssertionError("payloads are larger than their parts")
        bad = {row: self._told(int(faults[row])) for row in np.flatnonzero(faults >= 0).tolist()}
        there = pa.array(present & (faults < 0)).buffers()[1]
        written = target.slice(least)
        buffers = [there, pa.py_buffer(begins - least), written]
        return WrittenValues(pa.Array.from_buffers(pa.large_binary(), count, buffers), bad)

    def _room(self, cells: WrittenCells) -> tuple[int, int]:
        """Bytes that stay free, of which one step needs no more; and of all that is needed."""
        steps = self.steps
        of_step = _BYTES_MAX[steps[:, kernels.OP]]
        of_step += steps[:, kernels.LEAD_BYTES] + np.maximum(steps[:, kernels.NULL_BYTES], 0)
        is_sized = steps[:, kernels.OP] == kernels.DECIMAL
        of_step += np.where(is_sized, np.maximum(steps[:, kernels.A], 0), 0)
        margin = int(of_step.max())
        runs = int(of_step @ cells.places[self.scopes])
        return margin, margin + runs + int(cells.sizes.sum())

    def _told(self, fault: int) -> str:
        step, why = divmod(fault, kernels.FAULTS)
        source = self.sources[int(self.steps[step, kernels.NODE])]
        if why == kernels.FAULT_NULL:
            return f"{source.path} is null, and the schema has no place for that"
        if why == kernels.FAULT_SEVERAL:
            return self.several[step]
        return f"{source.path} {source.unfit}"
