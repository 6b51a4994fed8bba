"""Avro values to typed Arrow columns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.formats.avro import kernels
from keyrange.formats.avro import rows as slow_rows
from keyrange.formats.avro.program import Program, program_of
from keyrange.formats.avro.resolution import (
    Action,
    Branches,
    Member,
    Record,
    Repeat,
    Skip,
    resolve,
)
from keyrange.formats.avro.schemas import AvroType
from keyrange.formats.avro.types import arrow_type
from keyrange.formats.cells import Cells, node_of, replaced
from keyrange.formats.payloads import BadValues, Payloads, ReadValues

_Array = np.ndarray[Any, Any]


class AvroDecoder:
    """Reads what one schema wrote into the column of another. A value is bad where bytes are left
    over behind it, and where a text is not UTF-8."""

    def __init__(self, writer: AvroType, reader: AvroType, *, rescues: bool) -> None:
        self.type = arrow_type(reader)
        self._root = node_of(self.type)
        self.action = resolve(writer, reader, self._root)
        self._program: Program = program_of(self.action, self._root)
        self._rescues = rescues
        self._leaves = rescues and _leaves(self.action)
        # By scope of lists and maps, the places that the last batch took for each row.
        self._places = [1.0] * (len(self._program.layout.scopes) - 1)

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        cells, status = self._found(payloads)
        column = cells.column(self._root)
        bad: list[int] = []
        errors: list[str] = []
        good: dict[int, Any] = {}
        rest: dict[int, str] = {}
        slow = np.flatnonzero(payloads.present if self._leaves else status == kernels.SLOW)
        for row in slow.tolist():
            try:
                value, left = slow_rows.read_row(
                    payloads.row(row) or b"", self.action, rescues=self._leaves
                )
            except slow_rows.BadValue as failure:
                bad.append(row)
                errors.append(str(failure))
                continue
            if status[row] == kernels.SLOW:
                good[row] = value
            if left is not None:
                rest[row] = json.dumps(left, ensure_ascii=False)
        if good:
            values = pa.array(good.values(), self.type)
            column = replaced(column, list(good), values)
        found = BadValues(np.array(bad, np.int64), errors)
        return ReadValues(column, found, self._rescued(rest, len(payloads)))

    def _rescued(self, rest: dict[int, str], count: int) -> pa.StringArray | None:
        if not self._rescues:
            return None
        return pa.array([rest.get(row) for row in range(count)], pa.string())

    def _found(self, payloads: Payloads) -> tuple[Cells, _Array]:
        """The cells, and by row whether it is read slowly."""
        count = len(payloads)
        status = np.zeros(count, np.uint8)
        sizes = np.where(payloads.present, payloads.ends - payloads.starts, 0)
        most = int(sizes.sum(dtype=np.int64))  # an element takes a byte at least
        room = [count, *(min(int(1.5 * count * each) + 16, most) for each in self._places)]
        while True:
            cells = self._program.layout.cells(payloads.data, room)
            full = self._run(payloads, cells, status)
            if full < 0:
                break
            room[full] = min(2 * room[full], most)
        if count:
            self._places = (cells.counts[1:] / count).tolist()
        return cells, status

    def _run(self, payloads: Payloads, cells: Cells, status: _Array) -> int:
        steps, nodes = self._program.for_cells(cells)
        bits = np.zeros(1, np.int32)
        full: int = kernels.read_rows(
            payloads.data,
            payloads.starts,
            payloads.ends,
            payloads.present,
            steps,
            self._program.table,
            nodes,
            cells.room,
            cells.counts,
            cells.flags,
            cells.slots,
            cells.slots.view(np.float64),
            bits,
            bits.view(np.float32),
            status,
            np.zeros(len(cells.counts), np.int64),
            np.zeros((kernels.DEPTH_MAX, 3), np.int64),
        )
        return full


def _leaves(action: Action) -> bool:
    """Whether the writer has fields that the reader has not."""
    match action:
        case Skip():
            return True
        case Record():
            return any(_leaves(each) for _, each in action.steps)
        case Repeat():
            return _leaves(action.element)
        case Member():
            return _leaves(action.action)
        case Branches():
            return any(_leaves(each) for each in action.actions)
    return False
