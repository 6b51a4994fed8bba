"""Protobuf values to typed Arrow columns.

Meant is what Spark's `from_protobuf` makes of the same payload by default: a field without presence
is null where it is zero or not there, a proto2 default takes the place of what is not there, an
unknown number of an open enum has a name that Spark makes too. `messages` says where types differ.
A text that is not UTF-8 is bad, also where proto2 lets it be.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.cells import Cells, GrowingCells, Node
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.formats.protobuf import kernels
from keyrange.formats.protobuf.messages import Enum, Message
from keyrange.formats.protobuf.program import program_of
from keyrange.formats.protobuf.rows import RowReader
from keyrange.formats.slow_rows import with_slow_rows

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Cells(Cells):
    """`names` of enums and `defaults` are by node. Slots of enums have their numbers."""

    names: dict[int, _Names]
    defaults: dict[int, pa.Scalar]

    def there(self, node: Node) -> _Array:
        """A list or a map is there, empty, where its message has none of its values."""
        if node.opens:
            return np.ones(int(self.counts[node.scope]), np.bool_)
        return Cells.there(self, node)

    def column(self, node: Node, inside: _Array | None = None) -> pa.Array:
        found = Cells.column(self, node, inside)
        default = self.defaults.get(node.number)
        return found if default is None else pc.fill_null(found, default)

    def _values(self, node: Node, there: _Array) -> Any:
        names = self.names.get(node.number)
        if names is None:
            yield from Cells._values(self, node, there)
        else:
            yield from names.of(np.where(there, self._slots(node), names.first)).buffers()[1:]


class _Names:
    """The names of an enum's numbers."""

    def __init__(self, enum: Enum) -> None:
        self._enum = enum
        self.first = enum.first
        self._numbers = np.array(sorted(enum.names), np.int64)
        self._texts = pa.array([enum.names[each] for each in sorted(enum.names)], pa.string())

    def of(self, numbers: _Array) -> pa.StringArray:
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


class ProtobufDecoder:
    """Reads payloads of one message."""

    def __init__(self, descriptor: Any, message: Message, *, rescues: bool) -> None:
        self.type = message.type
        self._program = program_of(message)
        self._rows = RowReader(descriptor, message)
        self._rescues = rescues
        self._names = {at: _Names(each) for at, each in self._program.enums.items()}
        self._defaults = {
            at: pa.scalar(each.enum.text(each.default) if each.enum else each.default, each.type)
            for at, each in self._program.defaults.items()
        }
        self._cells = GrowingCells(self._program.layout)

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        status = np.zeros(len(payloads), np.uint8)
        others = np.zeros(len(payloads), np.bool_)
        cells = self._cells.filled(
            payloads, lambda cells: self._run(payloads, cells, status, others)
        )
        parts = {each.name: getattr(cells, each.name) for each in fields(cells)}
        named = _Cells(**parts, names=self._names, defaults=self._defaults)
        column = named.column(self._program.layout.root)
        rescued = others if self._rescues else None
        return with_slow_rows(column, payloads, status == kernels.SLOW, self._read_row, rescued)

    def _read_row(self, payload: bytes) -> tuple[Any, str | None]:
        return self._rows.read(payload, rescues=self._rescues)

    def _run(self, payloads: Payloads, cells: Cells, status: _Array, others: _Array) -> int:
        program = self._program
        steps, table, nodes = program.for_cells(cells)
        full: int = kernels.read_rows(
            payloads.data,
            payloads.starts,
            payloads.ends,
            payloads.present,
            steps,
            program.messages,
            program.lookup,
            table,
            nodes,
            cells.room,
            cells.counts,
            cells.flags,
            cells.slots,
            status,
            others,
            np.zeros(len(cells.counts), np.int64),
            np.zeros((kernels.DEPTH_MAX, 4), np.int64),
        )
        return full
