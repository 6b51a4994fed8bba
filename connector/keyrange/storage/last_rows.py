"""The last row of each key among rows that were made of records.

Which row of a key is the last one: of rows of one partition that of the greatest offset, as Kafka
orders the records of a key; of those of several partitions that with the latest timestamp of its
record, of two with the same timestamp that of the later topic and partition. So the answer does not
depend on which task had which rows, as long as each keeps the last row of each partition.

Partitions of one number whose topics share the state of keys are worked on by the same task, topic
by topic: there the last row is the one that was made last.

A row may leave columns as they are: it has what the latest row before it has that says them. If no
row among these says one, the table does. A row that deletes leaves none as it is, and behind it
nothing is left to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Column of such rows, a struct: `topic`, `partition` and `offset` of the record, `row`, its place
# among the rows of the record, `timestamp_ms` of the record, whether the row is `deleted`, and the
# names of the columns that are `kept` as they are, null for none. A row of a timer that fired
# before all records of the batch has no offset.
CHANGE: Final = "_keyrange"
_OFFSETS: Final = ("offset", "row")
_TIMES: Final = ("timestamp_ms", "topic", "partition")
_PARTITION: Final = ("topic", "partition")
_NUMBER: Final = ("partition",)
_MADE: Final = ("row",)
_Flags = np.ndarray[Any, np.dtype[np.bool_]]


def last_rows(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in no order."""
    return _last_of(last_of_partitions(rows, keys), keys, (), _TIMES)


def last_of_partitions(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key in each partition: whoever has rows of one key in other partitions
    chooses among these."""
    return _last_of(rows, keys, _PARTITION, _OFFSETS)


def last_made(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The row of each key that one task made last, in partitions of each number."""
    return _last_of(rows, keys, _NUMBER, _MADE)


def not_before(rows: pa.RecordBatch, from_ms: int) -> pa.RecordBatch:
    """Rows that stand behind all whose records are older than `from_ms`."""
    place = rows.schema.names.index(CHANGE)
    change = rows.column(place)
    fields = list(change.type)
    columns = [
        pc.max_element_wise(each, from_ms) if field.name == "timestamp_ms" else each
        for field, each in zip(fields, change.flatten(), strict=True)
    ]
    raised = pa.StructArray.from_arrays(columns, fields=fields)
    return rows.set_column(place, rows.schema.field(place), raised)


def kept_columns(rows: pa.Table) -> dict[str, _Flags]:
    """The columns that some rows leave as they are, and which rows these are."""
    kept = pc.struct_field(rows.column(CHANGE), "kept").combine_chunks()
    if kept.null_count == len(kept):
        return {}
    names = kept.flatten()
    owners = pc.list_parent_indices(kept).to_numpy()
    found = {}
    for name in sorted(names.unique().to_pylist()):
        flags = np.zeros(len(kept), np.bool_)
        flags[owners[np.asarray(pc.equal(names, name))]] = True
        found[name] = flags
    return found


def _last_of(
    rows: pa.Table, keys: Sequence[str], within: Sequence[str], order: Sequence[str]
) -> pa.Table:
    """Of each group of rows the last one in an order."""
    change = rows.column(CHANGE)
    # A key may be called as one of these.
    own = {f"key {at}": rows.column(name) for at, name in enumerate(keys)}
    told = {name: pc.struct_field(change, name) for name in {*within, *order}}
    if "offset" in told:
        # A row without one stands before all others.
        told["offset"] = pc.fill_null(told["offset"], -1)
    found = pa.table({**own, **told, "at": pa.array(np.arange(rows.num_rows))})
    sort_keys: list[Any] = [(name, "ascending") for name in order]
    in_order = pc.sort_indices(found, sort_keys=sort_keys)
    found = found.take(in_order)
    at, places = found.column("at").to_numpy(), np.arange(rows.num_rows)
    kept = kept_columns(rows)
    found = found.append_column("place", pa.array(places))
    for number, flags in enumerate(kept.values()):
        # Where a row says the column.
        found = found.append_column(f"place {number}", pa.array(places, mask=flags[at]))
    wanted = [name for name in found.column_names if name.startswith("place")]
    last = found.group_by([*own, *within]).aggregate([(name, "max") for name in wanted])
    chosen = at[last.column("place_max").to_numpy()]
    result = rows.take(pa.array(chosen))
    if not kept:
        return result
    said = {
        name: last.column(f"place {number}_max").combine_chunks()
        for number, name in enumerate(kept)
    }
    return _completed(
        rows, result, chosen, kept, {name: _at(at, each) for name, each in said.items()}
    )


def _at(at: np.ndarray[Any, Any], places: pa.Array) -> np.ndarray[Any, Any]:
    """The rows at places, -1 for none."""
    there = places.is_valid().to_numpy(zero_copy_only=False)
    return np.where(there, at[places.fill_null(0).to_numpy()], -1)


def _completed(
    rows: pa.Table,
    result: pa.Table,
    chosen: np.ndarray[Any, Any],
    kept: dict[str, _Flags],
    said: dict[str, np.ndarray[Any, Any]],
) -> pa.Table:
    """The `chosen` rows with what the rows `said` have in columns that they leave as they are."""
    deleted = np.asarray(pc.struct_field(rows.column(CHANGE), "deleted"))
    left: list[list[str] | None] = [None] * len(chosen)
    for name, flags in kept.items():
        asks = flags[chosen]
        answers = asks & (said[name] >= 0)
        source = np.where(answers & ~deleted[said[name]], said[name], chosen)
        place = result.column_names.index(name)
        field = result.schema.field(name)
        result = result.set_column(place, field, rows.column(name).take(pa.array(source)))
        for row in np.flatnonzero(asks & ~answers).tolist():
            left[row] = [*(left[row] or ()), name]
    change = result.column(CHANGE).combine_chunks()
    fields = list(change.type)
    columns = [
        pa.array(left, each.type) if each.name == "kept" else pc.struct_field(change, each.name)
        for each in fields
    ]
    whole = pa.StructArray.from_arrays(columns, fields=fields)
    return result.set_column(result.column_names.index(CHANGE), result.schema.field(CHANGE), whole)
