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

from keyrange.formats.cells import Cells, Node, replaced
from keyrange.formats.payloads import BadValues, Payloads, ReadValues
from keyrange.formats.protobuf import kernels
from keyrange.formats.protobuf.messages import Enum, Message
from keyrange.formats.protobuf.program import program_of
from keyrange.formats.protobuf.rows import BadValue, RowReader

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
        # By scope of lists and maps, the places that the last batch took for each row.
        self._places = [1.0] * (len(self._program.layout.scopes) - 1)

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        status, others = (np.zeros(len(payloads), kind) for kind in (np.uint8, np.bool_))
        column = self._cells(payloads, status, others).column(self._program.layout.root)
        slow = status == kernels.SLOW
        rescued: dict[int, str | None] = {}
        good: dict[int, Any] = {}
        bad: list[int] = []
        errors: list[str] = []
        for row in np.flatnonzero(slow | others if self._rescues else slow).tolist():
            try:
                value, rescued[row] = self._rows.read(
                    payloads.row(row) or b"", rescues=self._rescues
                )
            except BadValue as failure:
                bad.append(row)
                errors.append(str(failure))
                continue
            if slow[row]:
                good[row] = value
        if good:
            values = pa.array(good.values(), self.type)
            column = replaced(column, list(good), values)
        left = None
        if self._rescues:
            left = pa.array(map(rescued.get, range(len(payloads))), pa.string())
        return ReadValues(column, BadValues(np.array(bad, np.int64), errors), left)

    def _cells(self, payloads: Payloads, status: _Array, others: _Array) -> Cells:
        count = len(payloads)
        sizes = np.where(payloads.present, payloads.ends - payloads.starts, 0)
        most = int(sizes.sum(dtype=np.int64))  # a value of a list takes a byte at least
        room = [count, *(min(int(1.5 * count * each) + 16, most) for each in self._places)]
        while True:
            cells = self._program.layout.cells(payloads.data, room)
            full = self._run(payloads, cells, status, others)
            if full < 0:
                break
            room[full] = min(2 * room[full] + 16, most)
        if count:
            self._places = (cells.counts[1:] / count).tolist()
        parts = {each.name: getattr(cells, each.name) for each in fields(cells)}
        return _Cells(**parts, names=self._names, defaults=self._defaults)

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
