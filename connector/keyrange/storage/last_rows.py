"""The last row of each key among rows that were made of records.

Which row of a key is the last one: of rows of one partition that of the greatest offset, as Kafka
orders the records of a key; of those of several partitions that with the latest timestamp of its
record, of two with the same timestamp that of the later topic and partition. So the answer does not
depend on which task had which rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Column of such rows, a struct: `topic`, `partition` and `offset` of the record, `row`, its place
# among the rows of the record, `timestamp_ms` of the record, and whether the row is `deleted`.
CHANGE: Final = "_keyrange"
_OFFSETS: Final = ("topic", "partition", "offset", "row")
_TIMES: Final = ("timestamp_ms", "topic", "partition")


def last_rows(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in no order."""
    change = rows.column(CHANGE)
    told = {name: pc.struct_field(change, name) for name in {*_OFFSETS, *_TIMES}}
    # A key may be called as one of these.
    own = {f"key {at}": rows.column(name) for at, name in enumerate(keys)}
    found = pa.table({**own, **told, "at": pa.array(np.arange(rows.num_rows))})
    found = _last_of(found, [*own, "topic", "partition"], _OFFSETS)
    found = _last_of(found, [*own], _TIMES)
    return rows.take(found.column("at"))


def _last_of(rows: pa.Table, groups: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Of each group the last row in an order."""
    sort_keys: list[Any] = [(name, "ascending") for name in order]
    rows = rows.take(pc.sort_indices(rows, sort_keys=sort_keys))
    place = pa.array(np.arange(rows.num_rows))
    last = rows.append_column("place", place).group_by(groups).aggregate([("place", "max")])
    return rows.take(last.column("place_max"))
