"""Aggregates: what is kept of the rows of a window, how it is put together, and what comes of it.

What is kept are accumulators, some columns of a row each: of one record, of some, of a window. Rows
come in the order of their arrival, those that were kept before in front.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.keyed_state.exact_columns import cast_exactly
from keyrange.keyed_state.list_offsets import offsets_of
from keyrange.windowing.operators import Numbers, RecordColumn
from keyrange.windowing.slots import Slots
from keyrange.windowing.sums import extremes, quotients, summed
from keyrange.work.event_times import EVENT_TIME, MICROSECONDS

Columns = list[pa.Array]
_PRECISION_MAX: Final = 38


class Aggregate(ABC):
    """`fields` are those of its accumulators, `output` of what comes of them."""

    fields: tuple[pa.DataType, ...]
    # What stands behind the aggregate's name in those of its accumulators.
    suffixes: tuple[str, ...] = ("",)
    output: tuple[pa.Field, ...]

    @abstractmethod
    def of_records(self, records: pa.RecordBatch, times: Numbers) -> Columns:
        """The accumulator of each record."""

    @abstractmethod
    def merged(self, columns: Columns, slots: Slots) -> Columns:
        """The accumulator of each slot. Raises ValueError for one that does not fit its type."""

    def results(self, columns: Columns, _windows: pa.RecordBatch) -> Columns:
        """What comes of accumulators of windows, with columns key, window_start, window_end."""
        return columns


class Count(Aggregate):
    """How many rows there are, or values of a column that are not null."""

    fields = (pa.int64(),)

    def __init__(self, name: str, column: RecordColumn | None) -> None:
        self._column = column
        self.output = (pa.field(name, pa.int64()),)

    def of_records(self, records: pa.RecordBatch, times: Numbers) -> Columns:
        if self._column is None:
            return [pa.array(np.ones(len(times), np.int64))]
        return [self._column.of(records).is_valid().cast(pa.int64())]

    def merged(self, columns: Columns, slots: Slots) -> Columns:
        return [pc.fill_null(summed(columns[0], slots, pa.int64()), 0)]


class Sum(Aggregate):
    """A long for integers, a double for floats, for decimals one with ten digits more."""

    def __init__(self, name: str, column: RecordColumn) -> None:
        self._column = column
        self.fields = (_sum_type(column, "sum"),)
        self.output = (pa.field(name, self.fields[0]),)

    def of_records(self, records: pa.RecordBatch, _times: Numbers) -> Columns:
        return [self._column.of(records).cast(self.fields[0])]

    def merged(self, columns: Columns, slots: Slots) -> Columns:
        return [summed(columns[0], slots, self.fields[0])]


class Average(Aggregate):
    """A double, of decimals one with four digits more behind the point."""

    suffixes = ("_sum", "_count")

    def __init__(self, name: str, column: RecordColumn) -> None:
        self._column = column
        kind = _sum_type(column, "avg")
        result = pa.float64()
        if pa.types.is_decimal(kind):
            precision, scale = column.type.precision + 4, column.type.scale + 4
            result = pa.decimal128(min(precision, _PRECISION_MAX), min(scale, _PRECISION_MAX))
        else:
            kind = pa.float64()
        self.fields = (kind, pa.int64())
        self.output = (pa.field(name, result),)

    def of_records(self, records: pa.RecordBatch, _times: Numbers) -> Columns:
        values = self._column.of(records)
        return [_cast(values, self.fields[0]), values.is_valid().cast(pa.int64())]

    def merged(self, columns: Columns, slots: Slots) -> Columns:
        return [summed(column, slots, kind) for column, kind in _pairs(columns, self.fields)]

    def results(self, columns: Columns, _windows: pa.RecordBatch) -> Columns:
        sums, counts = columns
        # Where there is none the sum is null.
        counts = pc.max_element_wise(counts, 1)
        return [quotients(sums, counts, self.output[0].type)]


class Extreme(Aggregate):
    """The least value, or the greatest; NaN is greater than all numbers."""

    def __init__(self, name: str, column: RecordColumn, is_greatest: bool) -> None:
        if pa.types.is_nested(column.type):
            raise ValueError(f"the column of {name!r} is {column.type}, which has no order")
        self._column, self._is_greatest = column, is_greatest
        self.fields = (column.type,)
        self.output = (pa.field(name, column.type),)

    def of_records(self, records: pa.RecordBatch, _times: Numbers) -> Columns:
        return [self._column.of(records)]

    def merged(self, columns: Columns, slots: Slots) -> Columns:
        [values] = columns
        if _has_numbers(values.type):
            return [extremes(values, slots, self._is_greatest)]
        order = pc.array_sort_indices(values).to_numpy().astype(np.int64)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return [values.take(slots.chosen(order, self._is_greatest, valid))]


class Outermost(Aggregate):
    """The value of the record with the earliest time, or the latest; of records of one time that of
    the first one that came, or of the last. Records without a value do not count."""

    suffixes = ("", "_at")

    def __init__(self, name: str, column: RecordColumn, is_last: bool) -> None:
        self._column, self._is_last = column, is_last
        self.fields = (column.type, MICROSECONDS)
        self.output = (pa.field(name, column.type),)

    def of_records(self, records: pa.RecordBatch, times: Numbers) -> Columns:
        return [self._column.of(records), pa.array(times).view(MICROSECONDS)]

    def merged(self, columns: Columns, slots: Slots) -> Columns:
        values, times = columns
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        at = pc.fill_null(times.view(pa.int64()), 0).to_numpy()
        rows = slots.chosen(np.argsort(at, kind="stable"), self._is_last, valid)
        return [column.take(rows) for column in columns]

    def results(self, columns: Columns, _windows: pa.RecordBatch) -> Columns:
        return columns[:1]


class _Rows(Aggregate):
    """Keeps some columns of all records, in the order of their times, and of their arrival."""

    def __init__(self, columns: Sequence[tuple[str, RecordColumn]]) -> None:
        self._columns = [column for _, column in columns]
        self._row = pa.struct(
            [(EVENT_TIME, MICROSECONDS), *((name, each.type) for name, each in columns)]
        )
        self.fields = (pa.list_(self._row),)

    def _wanted(self, columns: Columns) -> Numbers:
        """Which records are kept."""
        return np.arange(len(columns[0]))

    def of_records(self, records: pa.RecordBatch, times: Numbers) -> Columns:
        columns = [pa.array(times).view(MICROSECONDS)]
        columns += [each.of(records) for each in self._columns]
        rows = self._wanted(columns)
        kept = [each.take(pa.array(rows)) for each in columns]
        items = pa.StructArray.from_arrays(kept, fields=list(self._row))
        return [self._lists(rows, items, len(times))]

    def merged(self, columns: Columns, slots: Slots) -> Columns:
        [lists] = columns
        owners = slots.of[pc.list_parent_indices(lists).to_numpy()]
        items = lists.flatten()
        at = items.field(EVENT_TIME).view(pa.int64()).to_numpy()
        order = np.lexsort((at, owners))
        return [self._lists(owners[order], items.take(pa.array(order)), slots.count)]

    def _lists(self, owners: Numbers, items: pa.Array, count: int) -> pa.Array:
        return pa.ListArray.from_arrays(offsets_of(owners, count), items, type=self.fields[0])


class Collect(_Rows):
    """All values that are not null, in the order of their times."""

    def __init__(self, name: str, column: RecordColumn) -> None:
        super().__init__([("value", column)])
        self.output = (pa.field(name, pa.list_(pa.field("element", column.type))),)

    def _wanted(self, columns: Columns) -> Numbers:
        return np.flatnonzero(columns[1].is_valid().to_numpy(zero_copy_only=False))

    def results(self, columns: Columns, _windows: pa.RecordBatch) -> Columns:
        [lists] = columns
        owners = pc.list_parent_indices(lists).to_numpy()
        ends = np.searchsorted(owners, np.arange(len(lists) + 1)).astype(np.int32)
        values = lists.flatten().field("value")
        return [pa.ListArray.from_arrays(pa.array(ends), values, type=self.output[0].type)]


class Applied(_Rows):
    """A function of the user's, of all rows of some windows."""

    def __init__(
        self,
        function: Callable[..., Any],
        output: pa.Schema,
        columns: Sequence[tuple[str, RecordColumn]],
    ) -> None:
        if EVENT_TIME in dict(columns):
            raise ValueError(f"column {EVENT_TIME!r} is among the rows of apply: leave it out")
        super().__init__(columns)
        self._function = function
        self.output = tuple(output)

    def results(self, columns: Columns, windows: pa.RecordBatch) -> Columns:
        [lists] = columns
        times, *columns = lists.flatten().flatten()
        _, *names = self._row.names
        rows = pa.RecordBatch.from_arrays([*columns, times], names=[*names, EVENT_TIME])
        groups = pc.list_parent_indices(lists).cast(pa.int32())
        found = self._function(rows, groups, windows)
        names = [each.name for each in self.output]
        if not isinstance(found, pa.RecordBatch) or found.schema.names != names:
            raise TypeError(f"a function of windows answers with a RecordBatch of {names}")
        if found.num_rows != windows.num_rows:
            text = f"with {found.num_rows} rows for {windows.num_rows} windows"
            raise TypeError(f"a function of windows answered {text}")
        return [cast_exactly(each.name, found.column(each.name), each.type) for each in self.output]


def _has_numbers(kind: pa.DataType) -> bool:
    """Whether values are numbers of numpy's, in the order that they have."""
    is_time = pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    return is_time or pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64())


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Integers that a double does not hold are rounded, as Spark does.
    return values.cast(kind, safe=False) if pa.types.is_floating(kind) else values.cast(kind)


def _sum_type(column: RecordColumn, name: str) -> pa.DataType:
    kind = column.type
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision + 10, _PRECISION_MAX), kind.scale)
    raise ValueError(f"{name} is of numbers, and column {'.'.join(column.path)!r} is {kind}")


def _pairs(columns: Columns, kinds: Sequence[pa.DataType]) -> zip[tuple[pa.Array, pa.DataType]]:
    return zip(columns, kinds, strict=True)
