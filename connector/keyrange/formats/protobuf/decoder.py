"""Protobuf values to typed Arrow columns.

Meant is what Spark's `from_protobuf` makes of the same payload by default: a field without presence
is null where it is zero or not there, a proto2 default takes the place of what is not there, an
unknown number of an open enum has a name that Spark makes too. `messages` says where types differ.
A text that is not UTF-8 is bad, also where proto2 lets it be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keyrange.formats.cells import Cells, GrowingCells
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.formats.protobuf import kernels
from keyrange.formats.protobuf.messages import Message
from keyrange.formats.protobuf.program import program_of
from keyrange.formats.protobuf.rows import RowReader
from keyrange.formats.slow_rows import with_slow_rows

_Array = np.ndarray[Any, Any]


class ProtobufDecoder:
    """Reads payloads of one message."""

    def __init__(self, descriptor: Any, message: Message, *, rescues: bool) -> None:
        self.type = message.type
        self._program = program_of(message)
        self._rows = RowReader(descriptor, message)
        self._rescues = rescues
        self._cells = GrowingCells(self._program.layout)

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        status = np.zeros(len(payloads), np.uint8)
        others = np.zeros(len(payloads), np.bool_)
        cells = self._cells.filled(
            payloads, lambda cells: self._run(payloads, cells, status, others)
        )
        column = cells.column(self._program.layout.root)
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
