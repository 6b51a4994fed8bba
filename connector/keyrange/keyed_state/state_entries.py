"""States between Arrow, as files have them, and Python, as functions of single records do.

An entry is what is kept of one key: a list with a value for each variable, ABSENT where there is
none, and behind them until when each is there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.keyed_state.exact_columns import VALUE_BYTES_MAX, holds
from keyrange.keyed_state.exact_values import converter_of, form_of, row_converter_of, row_of
from keyrange.keyed_state.list_offsets import offsets_of
from keyrange.keyed_state.variables import StateForm, Variable
from keyrange.values.python_rows import plain_values

ABSENT: Final = object()
Entry = list[Any]


class Rows:
    """Rows of a variable's columns, as functions write and read them: the value where there is one
    column, else a tuple; a dictionary by names is taken too. With `is_key` rows are keys of a map,
    which can be hashed."""

    def __init__(self, name: str, kind: pa.StructType, is_key: bool = False) -> None:
        self._name = name
        self._kind = kind
        self._names = tuple(kind.names)
        types = [field.type for field in kind]
        self.is_bare = len(self._names) == 1
        self._convert_value = converter_of(types[0], is_key)
        self._convert_row = row_converter_of(types, is_key)
        # A list or map within a row could be changed by who has it. Entries have their own, so that
        # what a record that failed did to it leaves nothing.
        self._is_nested = any(map(pa.types.is_nested, types))
        self._may_be_large = holds(kind, pa.types.is_string, pa.types.is_binary)
        self._forms = [form_of(kind, is_key) for kind in types]

    def taken(self, row: Any) -> Any:
        """A row as entries hold it, as it is read back later. Raises TypeError for one of another
        type, ValueError for one that would lose something."""
        try:
            if self.is_bare:
                found = self._convert_value(row)
            else:
                row = row if type(row) is tuple else row_of(row, self._names)
                found = self._convert_row(row)
            if self._may_be_large:
                _check_size(found)
        except TypeError as failure:
            raise TypeError(f"state.{self._name}: {failure}") from None
        except (ValueError, OverflowError) as failure:
            raise ValueError(f"state.{self._name}: {failure}") from None
        return found

    def given(self, row: Any) -> Any:
        """A row as functions get it, to change it as they like."""
        return copy.deepcopy(row) if self._is_nested else row

    def array(self, rows: Sequence[Any]) -> pa.Array:
        """Rows as Arrow has them, null where they are ABSENT."""
        missing = [row is ABSENT for row in rows] if ABSENT in rows else None
        if missing is not None:
            empty = None if self.is_bare else (None,) * len(self._names)
            rows = [empty if row is ABSENT else row for row in rows]
        columns: Sequence[Any] = [rows]
        if not self.is_bare:
            columns = list(zip(*rows, strict=True)) if rows else [[]] * len(self._names)
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, self._kind, strict=True)
        ]
        return pa.StructArray.from_arrays(
            arrays, fields=list(self._kind), mask=None if missing is None else pa.array(missing)
        )

    def read(self, values: pa.StructArray) -> list[Any]:
        """What `array` was given."""
        columns = list(map(plain_values, values.flatten()))
        for at, form in enumerate(self._forms):
            if form is not None:
                columns[at] = list(map(form, columns[at]))
        rows: list[Any] = columns[0] if self.is_bare else list(zip(*columns, strict=True))
        if values.null_count:
            there = values.is_valid().to_pylist()
            rows = [row if is_there else ABSENT for row, is_there in zip(rows, there, strict=True)]
        return rows


def _check_size(value: Any) -> None:
    """Raises ValueError for a row with a text or bytes that are too large."""
    if isinstance(value, (str, bytes)):
        count = len(value)
        if isinstance(value, str) and VALUE_BYTES_MAX // 4 < count <= VALUE_BYTES_MAX:
            count = len(value.encode())
        if count > VALUE_BYTES_MAX:
            raise ValueError(f"a value of {count:,} bytes is larger than a state takes")
    elif isinstance(value, (list, tuple)):
        for each in value:
            _check_size(each)
    elif isinstance(value, dict):
        for item in value.items():
            _check_size(item)


class ValueForm:
    def __init__(self, variable: Variable) -> None:
        self.rows = Rows(variable.name, variable.type)
        self.read, self.array = self.rows.read, self.rows.array


class ListForm:
    def __init__(self, variable: Variable) -> None:
        self._kind = variable.type
        self.rows = Rows(variable.name, self._kind.value_type)

    def read(self, values: pa.Array) -> list[Any]:
        return list(_cut(values, self.rows.read(values.values)))

    def array(self, values: Sequence[Any]) -> pa.Array:
        there = [each for each in values if each is not ABSENT]
        items = self.rows.array(list(chain.from_iterable(there)))
        return pa.ListArray.from_arrays(_offsets(values), items, type=self._kind)


class MapForm:
    def __init__(self, variable: Variable) -> None:
        self._kind = variable.type
        self.keys = Rows(variable.name, self._kind.key_type, is_key=True)
        self.rows = Rows(variable.name, self._kind.item_type)

    def read(self, values: pa.Array) -> list[Any]:
        pairs = list(zip(self.keys.read(values.keys), self.rows.read(values.items), strict=True))
        return [each if each is ABSENT else dict(each) for each in _cut(values, pairs)]

    def array(self, values: Sequence[Any]) -> pa.Array:
        there = [each for each in values if each is not ABSENT]
        keys = self.keys.array(list(chain.from_iterable(there)))
        items = self.rows.array(list(chain.from_iterable(map(dict.values, there))))
        return pa.MapArray.from_arrays(_offsets(values), keys, items, self._kind)


class TimersForm:
    """When timers are due: a list in microseconds since 1970, ascending, each time once."""

    def __init__(self, variable: Variable) -> None:
        self._kind = variable.type

    def read(self, values: pa.Array) -> list[Any]:
        return list(_cut(values, values.values.cast(pa.int64()).to_pylist()))

    def array(self, values: Sequence[Any]) -> pa.Array:
        there = [each for each in values if each is not ABSENT]
        items = pa.array(chain.from_iterable(there), pa.int64()).cast(self._kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items, type=self._kind)


def _cut(values: pa.Array, items: list[Any]) -> Iterator[Any]:
    """What each list or map has of the items of all, ABSENT for one that is null."""
    ends, there = values.offsets.to_pylist(), values.is_valid().to_pylist()
    for start, stop, is_there in zip(ends, ends[1:], there, strict=False):
        yield items[start:stop] if is_there else ABSENT


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where each list or map begins among the items of all, null for one that is ABSENT."""
    ends = [0, *accumulate(0 if each is ABSENT else len(each) for each in values)]
    missing = [*(each is ABSENT for each in values), False]
    return pa.array(ends, pa.int32(), mask=np.array(missing, bool))


def normalized(values: pa.Array) -> pa.Array:
    """A variable of many keys as functions of single records would have left it: a list or map
    without rows is none, and a row in one is there, though each of its columns may be null."""
    if pa.types.is_struct(values.type):
        return values
    if not (pa.types.is_map(values.type) or pa.types.is_struct(values.type.value_type)):
        return _timers(values)
    is_map = pa.types.is_map(values.type)
    offsets = values.offsets.to_numpy()
    rows = values.items if is_map else values.values
    if rows.null_count:
        rows = pa.StructArray.from_arrays(rows.flatten(), fields=list(rows.type))
    if is_map:
        found = pa.MapArray.from_arrays(values.offsets, values.keys, rows, values.type)
    else:
        found = pa.ListArray.from_arrays(values.offsets, rows, type=values.type)
    is_none = values.is_null().to_numpy(zero_copy_only=False) | (offsets[1:] == offsets[:-1])
    return found.take(pa.array(np.arange(len(values)), mask=is_none))


def _timers(values: pa.ListArray) -> pa.Array:
    """Lists of times as `TimersForm` makes them. Raises ValueError for a time that is null."""
    flat = values.flatten()
    if flat.null_count:
        raise ValueError("a time of a timer is null")
    owners = pc.list_parent_indices(values).to_numpy()
    times = flat.cast(pa.int64()).to_numpy()
    order = np.lexsort((times, owners))
    owners, times = owners[order], times[order]
    is_new = np.ones(len(times), bool)
    is_new[1:] = (owners[1:] != owners[:-1]) | (times[1:] != times[:-1])
    items = pa.array(times[is_new]).cast(values.type.value_type)
    offsets = offsets_of(owners[is_new], len(values))
    return pa.ListArray.from_arrays(offsets, items, type=values.type)


_FORMS: Final[Mapping[str, Any]] = {
    "value": ValueForm,
    "list": ListForm,
    "map": MapForm,
    "timers": TimersForm,
}


class Entries:
    """States between Arrow and Python."""

    def __init__(self, form: StateForm) -> None:
        self.form = form
        self.forms = [_FORMS[each.kind](each) for each in form.variables]

    def read(self, batch: pa.RecordBatch) -> list[Entry]:
        columns = [
            each.read(batch.column(variable.name))
            for each, variable in zip(self.forms, self.form.variables, strict=True)
        ]
        for variable in self.form.variables:
            ends = batch.column(variable.expires).to_pylist() if variable.ttl_ms else None
            columns.append(ends or [None] * batch.num_rows)
        return [list(each) for each in zip(*columns, strict=True)]

    def columns(self, entries: Sequence[Entry]) -> list[pa.Array]:
        """The columns behind hash and key."""
        count, found = len(self.forms), []
        for at, (form, variable) in enumerate(zip(self.forms, self.form.variables, strict=True)):
            found.append(form.array([entry[at] for entry in entries]))
            if variable.ttl_ms:
                found.append(pa.array([entry[count + at] for entry in entries], pa.int64()))
        return found
