"""The columns of the commit table that hold states: one row for each piece of each partition.

Column `pending` lists the pending records of a piece, in the order of offsets. `lo`, `scanned` and
it are the state; the other columns of a piece follow from them, for SQL. A row says them once more
so that what was changed by hand or by a disk is noticed: they have to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.state_columns import (
    DELIVERIES,
    LEADER_EPOCH,
    OFFSET,
    SINCE_MS,
    Bools,
    Ints,
    StateColumns,
    begins_of_runs,
)
from keyrange.model.offsets import TopicPartition

TIME: Final = pa.timestamp("us", tz="UTC")
# In the order of the rows of `StateColumns.pending`.
_RECORD: Final = pa.struct(
    [
        ("offset", pa.int64()),
        ("key_hash", pa.int64()),
        ("deliveries", pa.int32()),
        ("due_ms", pa.int64()),
        ("since_ms", pa.int64()),
        ("cause", pa.int8()),
        ("late", pa.bool_()),
    ]
)
_OF_PIECE: Final = (
    ("lo", pa.int64()),
    ("hi", pa.int64()),
    ("committed", pa.int64()),
    ("scanned", pa.int64()),
    ("pending_count", pa.int64()),
    ("n_ranges", pa.int64()),
    ("oldest_pending", pa.int64()),
    ("oldest_pending_at", TIME),
    ("deliveries_max", pa.int32()),
)
FIELDS: Final = (
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("partition", pa.int32()),
    ("position", pa.int64()),
    ("leader_epoch", pa.int32()),
    *_OF_PIECE,
    ("pending", pa.list_(_RECORD)),
)
_INT64: Final = pa.int64()
_NULLABLE: Final = ("leader_epoch", "oldest_pending", "oldest_pending_at")

# The last millisecond of the year 9999, and the first of the year 1: what SQL engines can show.
MS_MAX: Final = 253_402_300_799_999
MS_MIN: Final = -62_135_596_800_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Faults:
    """Says where something in rows of a commit table contradicts itself."""

    source_id: str
    table: str

    def damaged(self, message: str, **where: Any) -> KeyrangeError:
        table = {"table": self.table} if self.table else {}
        return error("COMMITS_DAMAGED", message, **table, source_id=self.source_id, **where)

    def parsed(self, read: Callable[[Any], _T], value: Any, **where: Any) -> _T:
        try:
            return read(value)
        except (TypeError, ValueError) as fault:
            raise self.damaged(str(fault), **where) from None


def write_states(states: StateColumns) -> list[pa.Array]:
    """The columns of `FIELDS`, by partition and `lo`. Raises ValueError where a record is pending
    since no time that SQL can show."""
    part = arrow(states.places.part)
    topics = pa.array([each.topic for each in states], pa.string()).take(part)
    topic_ids = pa.array(states.topic_ids, pa.string()).take(part)
    return [topics, topic_ids, *_numeric(states)]


def _numeric(states: StateColumns) -> list[pa.Array]:
    """The columns behind the two of texts."""
    part, since_ms = states.places.part, states.pending[SINCE_MS]
    if ((since_ms < MS_MIN) | (since_ms > MS_MAX)).any():
        raise ValueError("a record is pending since milliseconds that are no time")
    numbers = np.array([each.partition for each in states], np.int64)
    epochs = states.of_partitions[LEADER_EPOCH][part]
    records = [arrow(*each) for each in zip(states.pending, (f.type for f in _RECORD), strict=True)]
    structs = pa.StructArray.from_arrays(records, fields=list(_RECORD))
    return [
        arrow(numbers[part], pa.int32()),
        arrow(states.positions[part]),
        arrow(epochs, pa.int32(), epochs < 0),
        *(_column(name, kind, states) for name, kind in _OF_PIECE),
        pa.ListArray.from_arrays(arrow(states.first_pending, pa.int32()), structs),
    ]


def in_order(rows: pa.Table, faults: Faults, **where: Any) -> pa.Table:
    """The rows of one commit by partition and `lo`. Raises COMMITS_DAMAGED where they have none."""
    if any(rows.column(name).null_count for name, _ in FIELDS if name not in _NULLABLE):
        raise faults.damaged("a column of a row is null", **where)
    topics = rows.column("topic").combine_chunks().dictionary_encode()
    ranks = np.argsort(np.argsort(topics.dictionary.to_pylist()))
    codes = ranks[numbers_of(topics.indices)]
    order = np.lexsort((*(numbers_of(rows.column(name)) for name in ("lo", "partition")), codes))
    if (np.diff(order) == 1).all():
        return rows
    return rows.take(arrow(order))


def read_states(rows: pa.Table, faults: Faults, **where: Any) -> StateColumns:
    """The states in the rows of one commit, which are in order. Raises COMMITS_DAMAGED where they
    are not as they were written."""
    topics = rows.column("topic").combine_chunks()
    numbers, positions, lows, scanned = (
        numbers_of(rows.column(name)) for name in ("partition", "position", "lo", "scanned")
    )
    epochs = np.full(len(lows), -1)
    epochs[numbers_of(pc.is_valid(rows.column("leader_epoch"))) == 1] = numbers_of(
        rows.column("leader_epoch")
    )
    lists = rows.column("pending").combine_chunks()
    records = [numbers_of(each) for each in lists.flatten().flatten()]
    counts = numbers_of(pc.list_value_length(lists))
    if any(len(each) != counts.sum() for each in records):
        raise faults.damaged("a pending record is null", **where)
    codes = numbers_of(topics.dictionary_encode().indices)
    firsts = np.flatnonzero(begins_of_runs(codes, numbers))
    names, ids = (
        column.take(arrow(firsts)).to_pylist() for column in (topics, rows.column("topic_id"))
    )
    states = StateColumns(
        list(map(TopicPartition, names, numbers[firsts].tolist())),
        ids,
        np.stack((positions[firsts], epochs[firsts], np.diff(firsts, append=len(lows)))),
        np.stack((lows, scanned, counts)),
        np.stack(records),
    )
    wrong = _fault(rows, states)
    if wrong:
        raise faults.damaged(wrong, **where)
    return states


def _fault(rows: pa.Table, states: StateColumns) -> str:
    """What contradicts itself in rows that were read as these states, or ""."""
    if (fault := states.fault()) is not None:
        return f"partition {fault[0]}: {fault[1]}"
    if min(each.partition for each in states) < 0:
        return "a partition below zero"
    try:
        expected = _numeric(states)
    except ValueError as failure:
        return str(failure)
    names = [name for name, _ in FIELDS[2:]]
    differ = [
        name
        for name, column in zip(names, expected, strict=True)
        if rows.column(name) != pa.chunked_array([column])
    ]
    own = states.first_piece[:-1][states.places.part]
    if rows.column("topic_id") != rows.column("topic_id").take(arrow(own)):
        differ.append("topic_id")
    return f"columns {', '.join(differ)} do not agree with the others" if differ else ""


# `pa.array` of numpy and `to_numpy` would import pandas, which takes longer than all else here.
def numbers_of(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Without nulls, which the caller looks for."""
    found = [np.empty(0, np.int64)]
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        values = chunk.drop_null() if chunk.null_count else chunk
        values = values if values.type == _INT64 else values.cast(_INT64)
        if len(values):
            data = np.frombuffer(values.buffers()[1], np.int64)
            found.append(data[values.offset :][: len(values)])
    return np.concatenate(found)


def arrow(
    values: np.ndarray[Any, Any], kind: pa.DataType = _INT64, nulls: Bools | None = None
) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(values, np.int64))
    column = pa.Array.from_buffers(_INT64, len(values), [None, data])
    # Most are of this type, and a cast to it costs as much as another.
    column = column if kind == _INT64 else column.cast(kind)
    if nulls is None:
        return column
    return pc.if_else(arrow(~nulls, pa.bool_()), column, pa.NA)


def plain_rows(table: pa.Table, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Rows with times as microseconds since 1970."""
    columns = {name: plain(table.column(name)) for name in names}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def plain(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, times as microseconds since 1970."""
    if column.type != TIME:
        return list(column.to_pylist())
    # `cast` would import Arrow's compute.
    chunks = (chunk.view(pa.int64()) for chunk in column.chunks)
    return [value for chunk in chunks for value in chunk.to_pylist()]


def common_rows(
    table: pa.Table, names: Iterable[str], begins: Ints
) -> tuple[list[dict[str, Any]], Ints]:
    """The rows of a table at some places, as `plain_rows` has them, and where else one of the
    columns has another value than just before."""
    columns, found = {}, [begins]
    for name in names:
        runs = pc.run_end_encode(table.column(name).combine_chunks(), run_end_type=_INT64)
        ends, values = numbers_of(runs.run_ends), plain(pa.chunked_array([runs.values]))
        columns[name] = [values[at] for at in np.searchsorted(ends, begins, "right").tolist()]
        found.append(ends)
    rows = [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    # Sets of numpy's would import its masked arrays.
    is_other = np.zeros(len(table) + 1, bool)
    is_other[np.concatenate(found)] = True
    is_other[[*begins, len(table)]] = False
    return rows, np.flatnonzero(is_other)


def is_same(column: pa.ChunkedArray) -> bool:
    """Whether all values are one, or all are null."""
    if column.null_count:
        return bool(column.null_count == len(column))
    same = pa.chunked_array([pa.repeat(column[0], len(column))], column.type)
    return len(column) == 1 or bool(column.equals(same))


def _column(name: str, kind: pa.DataType, states: StateColumns) -> pa.Array:
    """What a column says of the pieces, for SQL."""
    lows, scanned, counts = states.of_pieces
    some, offsets = counts > 0, states.pending[OFFSET]
    if name in ("oldest_pending", "oldest_pending_at"):
        order = np.lexsort((offsets, states.pending[SINCE_MS], states.piece_of_pending))
        oldest = np.zeros(len(lows), np.int64)
        what = offsets if name == "oldest_pending" else states.pending[SINCE_MS] * 1000
        oldest[some] = what[order][states.first_pending[:-1][some]]
        return arrow(oldest, kind, ~some)
    if name == "n_ranges":
        # What lies between two pending records, and behind the last one, is a done range.
        nexts = np.append(offsets[1:], 0)
        lasts = states.first_pending[1:][some] - 1
        nexts[lasts] = scanned[some]
        values = np.bincount(states.piece_of_pending[nexts > offsets + 1], minlength=len(lows))
    elif name == "deliveries_max":
        values = np.zeros(len(lows), np.int64)
        np.maximum.at(values, states.piece_of_pending, states.pending[DELIVERIES])
    else:
        values = {
            "lo": lows,
            "hi": states.last_hashes,
            "committed": states.committed_of_pieces,
            "scanned": scanned,
            "pending_count": counts,
        }[name]
    return arrow(values, kind)
