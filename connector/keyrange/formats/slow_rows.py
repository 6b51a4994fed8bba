"""The rows that a compiled pass has left: read one by one, exactly, by a reader that says why a row
is bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.formats.payloads import Payloads, ReadValues

_Flags = np.ndarray[Any, np.dtype[np.bool_]]
# A value in the form that Arrow takes, and as JSON text what it has no place for, if that is asked.
ReadRow = Callable[[bytes], tuple[Any, str | None]]


class BadValue(ValueError):
    """A payload that the schema cannot hold. The text names fields and kinds, and nothing else."""


def with_slow_rows(
    column: pa.Array,
    payloads: Payloads,
    slow: _Flags,
    read: ReadRow,
    rescued: _Flags | None = None,
) -> ReadValues:
    """The column with the rows that are `slow`. With `rescued` rows, those too are read for what is
    left over of them, and the answer says it. `read` raises BadValue."""
    looked_at = slow if rescued is None else slow | rescued
    values: dict[int, Any] = {}
    left: dict[int, str | None] = {}
    why: dict[int, str] = {}
    for row in np.flatnonzero(looked_at).tolist():
        try:
            value, left[row] = read(payloads.row(row) or b"")
        except BadValue as failure:
            value, why[row] = None, str(failure)
        if slow[row]:
            values[row] = value
    if values:
        column = replaced(column, list(values), pa.array(values.values(), column.type))
    if rescued is None:
        return ReadValues(column, why)
    return ReadValues(column, why, pa.array(map(left.get, range(len(payloads))), pa.string()))


def replaced(column: pa.Array, rows: Sequence[int], values: pa.Array) -> pa.Array:
    """The column with other values in some of its rows."""
    places = np.arange(len(column))
    places[list(rows)] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, values]).take(pa.array(places))
