"""The checksum of a commit: column `checksum` is in all of its rows the CRC-32 of what they hold.

The columns of states contradict one another where one is changed. Nothing follows from a count, a
time, a run of state files or the terms of a commit: what a disk or a hand changes in them is seen
here alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.individual_commits.table.state_rows import is_same, plain_rows

CHECKSUM: Final = "checksum"


def sealed(rows: pa.Table, same: Sequence[str]) -> pa.Table:
    """The rows of a commit in their order, with their checksum. `same`: the columns that have one
    value in all of them."""
    found = pa.array([_checksum(rows, next(plain_rows(rows.slice(0, 1), same)))], pa.int64())
    at = rows.column_names.index(CHECKSUM)
    return rows.set_column(at, rows.field(at), pa.repeat(found[0], len(rows)))


def is_sealed(rows: pa.Table, first: Mapping[str, Any]) -> bool:
    """Whether rows in the same order hold what they were sealed with; `first`: what is the same in
    all of them, as `plain_rows` has it."""
    stored = rows.column(CHECKSUM)
    return is_same(stored) and stored[0].as_py() == _checksum(rows, first)


def _checksum(rows: pa.Table, first: Mapping[str, Any]) -> int:
    """A column of nulls counts as one that is not there."""
    told = {name: value for name, value in first.items() if value is not None}
    found = zlib.crc32(json.dumps([len(rows), told]).encode())
    for name, column in zip(rows.column_names, rows.itercolumns(), strict=True):
        if name != CHECKSUM and name not in first and column.null_count < len(column):
            found = _crc(column.combine_chunks(), zlib.crc32(name.encode(), found))
    return found


def _crc(column: pa.Array, found: int) -> int:
    """The CRC-32 of a column of values; what lies under nulls does not count."""
    found = zlib.crc32(b"%d/%d" % (len(column), column.null_count), found)
    if column.null_count:
        found = _crc(column.is_valid(), found)
        column = column.drop_null()
    kind = column.type
    if not len(column):
        return found
    if pa.types.is_struct(kind):
        for each in column.flatten():
            found = _crc(each, found)
        return found
    if pa.types.is_list(kind):
        return _crc(column.flatten(), _crc(pc.list_value_length(column), found))
    if pa.types.is_string(kind):
        _, ends, text = column.buffers()
        cuts = np.frombuffer(ends, np.int32)[column.offset :][: len(column) + 1]
        found = zlib.crc32((cuts - cuts[0]).data, found)
        # Texts that are all empty have no buffer.
        return zlib.crc32(text[cuts[0] : cuts[-1]], found) if text else found
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    size = kind.bit_width // 8
    return zlib.crc32(column.buffers()[1].slice(column.offset * size, len(column) * size), found)
