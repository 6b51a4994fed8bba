"""What a compiled pass found in a batch of payloads, by columns, and how Arrow's columns are made
of it.

A pass of any format writes into two arrays, and knows nothing of Arrow. Each node of a type has a
region in both, with a place for each value that may be there:

- `flags`, uint8: 1 where the node has a value. All are 0 before.
- `slots`, int64: an integer, a boolean, days, microseconds; the bits of a double, or of a float in
  the lower half; where a text or bytes stand in the batch's data (`span`: the start in the upper
  half, the size in the lower one); the number of a symbol; the count of a list's or map's
  elements. A decimal has two, the lower half first.

Places are counted by scope. Scope 0 has one place for each row. What is in a list or map is of a
scope of its own, whose places are taken one after the other: the elements of a row's list, then
those of the next row's. So the counts say where each list begins. A struct has no slot, and a
node with a constant neither flag nor slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.cell_kernels import gather_spans
from keyrange.formats.payloads import Payloads

_Array = np.ndarray[Any, Any]
UNSET: Final = object()


@dataclass(slots=True, eq=False)
class Node:
    """A column, or a part of one. `Layout` numbers it and says in which scope it is."""

    type: pa.DataType
    children: tuple[Node, ...] = ()
    # Of a text whose slots are numbers: the texts of these, where there are some.
    texts: Callable[[_Array, _Array], pa.StringArray] | None = None
    # What stands where there is no value.
    default: pa.Scalar | None = None
    # Of a list or a map: it is there, empty, where nothing was read of it.
    is_always: bool = False
    # The value in all places, in a form that Arrow takes.
    constant: Any = UNSET
    number: int = -1
    scope: int = 0

    @property
    def opens(self) -> bool:
        """Whether its children are in a scope of their own."""
        return bool(pa.types.is_list(self.type) or pa.types.is_map(self.type))

    @property
    def width(self) -> int:
        """The slots of a place."""
        if pa.types.is_struct(self.type) or pa.types.is_null(self.type):
            return 0
        return 2 if pa.types.is_decimal(self.type) else 1


def node_of(kind: pa.DataType) -> Node:
    """A type and all that is in it. A list has one child, a map its key and its value."""
    inner: Sequence[pa.DataType] = ()
    if pa.types.is_struct(kind):
        inner = [each.type for each in kind]
    elif pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    elif pa.types.is_list(kind):
        inner = [kind.value_type]
    return Node(kind, tuple(node_of(each) for each in inner))


@dataclass(slots=True, eq=False)
class Layout:
    """The nodes that have cells, numbered, and the scopes: by scope the node that opens it."""

    root: Node
    nodes: list[Node] = field(default_factory=list)
    scopes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scopes.append(self.root)
        self._number(self.root, 0)

    def _number(self, node: Node, scope: int) -> None:
        node.scope = scope
        if node.constant is not UNSET:
            return
        node.number = len(self.nodes)
        self.nodes.append(node)
        if node.opens:
            scope = len(self.scopes)
            self.scopes.append(node)
        for each in node.children:
            self._number(each, scope)

    def scope_in(self, node: Node) -> int:
        """The scope that a list or a map opens."""
        return self.scopes.index(node, 1)

    def nodes_in(self, cells: Cells) -> _Array:
        """The nodes as kernels take them: of each its scope, where its flags begin, and of lists
        and maps where their counts begin, else -1."""
        scopes = np.array([each.scope for each in self.nodes], np.int64)
        counts = np.where([each.opens for each in self.nodes], cells.slot_at, -1)
        return np.stack([scopes, cells.flag_at, counts], axis=1)

    def cells(self, data: _Array, room: Sequence[int]) -> Cells:
        """Empty ones, with so many places by scope; scope 0 has the rows."""
        flags = np.array([room[each.scope] for each in self.nodes], np.int64)
        slots = flags * [each.width for each in self.nodes]
        return Cells(
            data,
            np.array(room, np.int64),
            np.zeros(len(room), np.int64),
            flags.cumsum() - flags,
            slots.cumsum() - slots,
            np.zeros(int(flags.sum()), np.uint8),
            np.zeros(int(slots.sum()), np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of one batch whose bytes are `data`. By scope: `room`, how many places there are,
    and `counts`, how many are taken. By node: where its flags and its slots begin."""

    data: _Array
    room: _Array
    counts: _Array
    flag_at: _Array
    slot_at: _Array
    flags: _Array
    slots: _Array

    def there(self, node: Node) -> _Array:
        """Where the node has a value, by place."""
        if node.is_always:
            return np.ones(int(self.counts[node.scope]), np.bool_)
        start = self.flag_at[node.number]
        found: _Array = self.flags[start : start + self.counts[node.scope]].view(np.bool_)
        return found

    def _slots(self, node: Node) -> _Array:
        start = self.slot_at[node.number]
        return self.slots[start : start + node.width * self.counts[node.scope]]

    def column(self, node: Node, inside: _Array | None = None) -> pa.Array:
        """The node's values by place, where the struct that it is `inside` of has one."""
        found = self._column(node, inside)
        return found if node.default is None else pc.fill_null(found, node.default)

    def _column(self, node: Node, inside: _Array | None) -> pa.Array:
        kind, count = node.type, int(self.counts[node.scope])
        if node.constant is not UNSET:
            places = np.zeros(count, np.int8)
            at = pa.array(places, mask=None if inside is None else ~inside)
            return pa.array([node.constant], kind).take(at)
        if pa.types.is_null(kind):
            return pa.nulls(count)
        there = self.there(node)
        valid = bitmap(there)
        children: list[pa.Array] = []
        if pa.types.is_struct(kind):
            children = [self.column(each, there) for each in node.children]
            return pa.Array.from_buffers(kind, count, [valid], children=children)
        if node.opens:
            ends = np.zeros(count + 1, np.int32)
            np.cumsum(np.where(there, self._slots(node), 0), out=ends[1:])
            children = [self.column(each) for each in node.children]
            if pa.types.is_map(kind):
                fields = [kind.key_field, kind.item_field]
                children = [pa.StructArray.from_arrays(children, fields=fields)]
            return pa.Array.from_buffers(
                kind, count, [valid, pa.py_buffer(ends)], children=children
            )
        return pa.Array.from_buffers(kind, count, [valid, *self._values(node, there)])

    def _values(self, node: Node, there: _Array) -> Iterator[pa.Buffer]:
        """The buffers of a node without children behind that of its validity."""
        kind, slots = node.type, self._slots(node)
        if node.texts is not None:
            yield from node.texts(slots, there).buffers()[1:]
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            ends = np.empty(len(there) + 1, np.int32)
            sizes = np.where(there, slots & 0xFFFF_FFFF, 0)
            # Arrow keeps the memory of the last batch; numpy asks the system for each array.
            target = pa.allocate_buffer(int(sizes.sum()))
            gather_spans(self.data, slots, there, ends, np.frombuffer(target, np.uint8))
            yield from (pa.py_buffer(ends), target)
        elif pa.types.is_boolean(kind):
            yield bitmap(slots == 1) or pa.py_buffer(np.full(len(slots) // 8 + 1, 255, np.uint8))
        else:
            # Copied: a column is not to keep the cells of all others in memory.
            numbers = pa.allocate_buffer(len(there) * kind.bit_width // 8)
            np.frombuffer(numbers, f"i{min(kind.bit_width, 64) // 8}")[:] = slots
            yield numbers


class GrowingCells:
    """Cells for batch after batch: as much room as the last one took, and more where it is full."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        # By scope of lists and maps, the places that the last batch took for each row.
        self._places = [1.0] * (len(layout.scopes) - 1)

    def filled(self, payloads: Payloads, run: Callable[[Cells], int]) -> Cells:
        """What `run` has filled. It answers with the number of a scope that is full, or -1."""
        count = len(payloads)
        sizes = np.where(payloads.present, payloads.ends - payloads.starts, 0)
        most = int(sizes.sum(dtype=np.int64))  # an element takes a byte at least
        room = [count, *(min(int(1.5 * count * each) + 16, most) for each in self._places)]
        while True:
            cells = self._layout.cells(payloads.data, room)
            full = run(cells)
            if full < 0:
                break
            room[full] = min(2 * room[full] + 16, most)
        if count:
            self._places = (cells.counts[1:] / count).tolist()
        return cells


def bitmap(flags: _Array) -> pa.Buffer | None:
    """As Arrow says where values are; None where all are."""
    if flags.all():
        return None
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
