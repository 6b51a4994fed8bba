"""Cells that are filled value by value become the column that Arrow makes of the same values."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange.formats.cells import Cells, Layout, Node, node_of
from keyrange.formats.slow_rows import replaced

LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=4),
    pa.binary(): st.binary(max_size=4),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(20, 2): st.integers(-(10**20) + 1, 10**20 - 1).map(
        lambda unscaled: Decimal(unscaled).scaleb(-2)
    ),
}
leaves = st.sampled_from(list(LEAVES))


def _deeper(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(inner, max_size=3).map(
        lambda kinds: pa.struct([(f"f{at}", kind) for at, kind in enumerate(kinds)])
    )
    return structs | inner.map(pa.list_) | inner.map(lambda kind: pa.map_(pa.string(), kind))


types = st.recursive(leaves, _deeper, max_leaves=5)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({each.name: values_of(each.type) for each in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        return st.none() | st.lists(
            st.tuples(st.text(max_size=3), values_of(kind.item_type)), max_size=3
        )
    return st.none() | LEAVES[kind]


class Filler:
    """Writes values as the text of `keyrange.formats.cells` says."""

    def __init__(self, layout: Layout, room: int) -> None:
        self.layout = layout
        self.data = bytearray()
        self.cells: Cells = layout.cells(np.zeros(0, np.uint8), [room] * len(layout.scopes))

    def fill(self, node: Node, value: Any) -> None:
        if value is None:
            return
        place = int(self.cells.counts[node.scope])
        self.cells.flags[self.cells.flag_at[node.number] + place] = 1
        if pa.types.is_struct(node.type):
            for child, each in zip(node.children, node.type, strict=True):
                self.fill(child, value[each.name])
            return
        slot = self.cells.slot_at[node.number] + node.width * place
        if not node.opens:
            self.cells.slots[slot : slot + node.width] = self.slots(node.type, value)
            return
        scope = self.layout.scope_in(node)
        for each in value:
            parts = each if pa.types.is_map(node.type) else (each,)
            for child, part in zip(node.children, parts, strict=True):
                self.fill(child, part)
            self.cells.counts[scope] += 1
        self.cells.slots[slot] = len(value)

    def slots(self, kind: pa.DataType, value: Any) -> list[int]:
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            text = value.encode() if isinstance(value, str) else value
            self.data += b"?" + text
            return [(len(self.data) - len(text)) << 32 | len(text)]
        if pa.types.is_decimal(kind):
            return list(
                struct.unpack("<2q", pa.array([value], kind).buffers()[1].to_pybytes()[:16])
            )
        if pa.types.is_boolean(kind):
            return [int(value)]
        bits = pa.array([value], kind).view(f"int{kind.bit_width}")[0].as_py()
        return [bits]


@given(st.data())
def test_filled_cells_are_the_column_of_their_values(data: st.DataObject) -> None:
    kind = data.draw(types)
    values = data.draw(st.lists(values_of(kind), max_size=5))
    root = node_of(kind)
    filler = Filler(Layout(root), room=200)
    for row, value in enumerate(values):
        filler.cells.counts[0] = row
        filler.fill(root, value)
    filler.cells.counts[0] = len(values)
    cells = filler.cells
    found = Cells(
        np.frombuffer(bytes(filler.data) or b"\0", np.uint8), cells.room, cells.counts,
        cells.flag_at, cells.slot_at, cells.flags, cells.slots,
    ).column(root)  # fmt: skip
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))
    if len(values) > 1:
        other = replaced(found, [0], found.slice(1, 1))
        assert (
            other.to_pylist()
            == [values[1], *values[1:]]
            == pa.array([values[1], *values[1:]], kind).to_pylist()
        )


def test_constants_and_texts_of_numbers() -> None:
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))])
    root = node_of(kind)
    root.children[0].texts = lambda slots, there: pa.array(
        ["xy"[number] if is_there else "" for number, is_there in zip(slots, there, strict=True)]
    )
    root.children[1].constant = [1, None]
    layout = Layout(root)
    assert [each.type for each in layout.nodes] == [kind, pa.string()]
    cells = layout.cells(np.zeros(1, np.uint8), [3])
    cells.counts[0] = 3
    cells.flags[:] = [1, 0, 1, 1, 0, 0]
    cells.slots[:] = [1, 99, 99]
    assert cells.column(root).to_pylist() == [
        {"a": "y", "b": [1, None]},
        None,
        {"a": None, "b": [1, None]},
    ]
