"""Avro values to typed Arrow columns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from keyrange.formats.avro import kernels
from keyrange.formats.avro import rows as slow_rows
from keyrange.formats.avro.program import Program, program_of
from keyrange.formats.avro.resolution import Skip, parts, resolve
from keyrange.formats.avro.schemas import AvroType
from keyrange.formats.avro.types import arrow_type
from keyrange.formats.cells import Cells, GrowingCells, node_of
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.formats.slow_rows import with_slow_rows

_Array = np.ndarray[Any, Any]


class AvroDecoder:
    """Reads what one schema wrote into the column of another. A value is bad where bytes are left
    over behind it, and where a text is not UTF-8."""

    def __init__(self, writer: AvroType, reader: AvroType, *, rescues: bool) -> None:
        self.type = arrow_type(reader)
        self._root = node_of(self.type)
        self.action = resolve(writer, reader, self._root, rescues=rescues)
        self._program: Program = program_of(self.action, self._root)
        self._rescues = rescues
        # Whether the writer has fields that the reader has not.
        self._leaves = rescues and any(isinstance(each, Skip) for each in parts(self.action))
        self._cells = GrowingCells(self._program.layout)

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        status = np.zeros(len(payloads), np.uint8)
        cells = self._cells.filled(payloads, lambda cells: self._run(payloads, cells, status))
        rescued = None
        if self._rescues:
            rescued = payloads.present if self._leaves else np.zeros(len(payloads), np.bool_)
        column = cells.column(self._root)
        return with_slow_rows(column, payloads, status == kernels.SLOW, self._read_row, rescued)

    def _read_row(self, payload: bytes) -> tuple[Any, str | None]:
        value, left = slow_rows.read_row(payload, self.action, rescues=self._rescues)
        return value, None if left is None else json.dumps(left, ensure_ascii=False)

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
