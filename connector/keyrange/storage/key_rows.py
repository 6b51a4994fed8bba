"""Which row of some has the key of another row, where a key is several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class KeyRows:
    """Rows by their keys, each of which is there once and without a null. A value has a number
    among those of its column, and so has, with each further column, each beginning of a key that
    is there."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        count = len(columns[0])
        number = np.zeros(count, np.int64)
        self._steps: list[tuple[pa.Array, NDArray[np.int64]]] = []
        for column in columns:
            values = column.unique()
            own = pc.index_in(column, value_set=values).to_numpy()
            begun, number = np.unique(number * len(values) + own, return_inverse=True)
            self._steps.append((values, begun))
        self._rows = np.zeros(count, np.int64)
        self._rows[number] = np.arange(count)

    def rows_of(self, columns: Sequence[Any]) -> NDArray[np.int64]:
        """The row with each of other keys, -1 where there is none. A null is no value's."""
        number = np.zeros(len(columns[0]), np.int64)
        is_there = np.ones(len(number), np.bool_)
        for column, (values, begun) in zip(columns, self._steps, strict=True):
            found = pc.index_in(column, value_set=values)
            is_there &= np.asarray(found.is_valid())
            wanted = number * len(values) + np.asarray(found.fill_null(0))
            number = np.minimum(np.searchsorted(begun, wanted), max(len(begun) - 1, 0))
            is_there &= (begun[number] == wanted) if len(begun) else False
        return np.where(is_there, self._rows[number] if len(self._rows) else -1, -1)
