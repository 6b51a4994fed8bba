"""State as a function of single records sees it: `state.total.get()`, `state.total.update(...)`.

An entry is what is kept of one key: a list with a value for each variable, ABSENT where there is
none, and behind them until when each is there. A function changes it in place; how to take that
back is noted until the record is done.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.exact_values import converter_of, row_converter_of, row_of
from keyrange.keyed_state.variables import StateForm, Variable

ABSENT: Final = object()
Entry = list[Any]


class Rows:
    """Rows of a variable's columns, as functions write and read them: the value where there is one
    column, else a tuple; a dictionary by names is taken too. With `is_key` rows are keys of a map,
    which can be hashed."""

    def __init__(self, kind: pa.StructType, is_key: bool = False) -> None:
        self._kind = kind
        self._names = tuple(kind.names)
        types = [field.type for field in kind]
        self.is_bare = len(self._names) == 1
        self._convert_value = converter_of(types[0], is_key)
        self._convert_row = row_converter_of(types, is_key)
        # A list or map within a row could be changed by who has it. Entries have their own, so that
        # what a record that failed did to it leaves nothing.
        self._is_nested = any(map(pa.types.is_nested, types))
        # Arrow gives these back in another form than functions have them.
        self._is_formed = is_key or any(map(_has_map, types))

    def taken(self, row: Any) -> Any:
        """A row as entries hold it, as it is read back later. Raises one of `UNFIT`."""
        if self.is_bare:
            return self._convert_value(row)
        return self._convert_row(row_of(row, self._names) if type(row) is not tuple else row)

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
        columns = [each.to_pylist() for each in values.flatten()]
        rows: list[Any] = columns[0]
        if not self.is_bare:
            rows = list(zip(*columns, strict=True))
        if self._is_formed:
            rows = list(map(self._convert_value if self.is_bare else self._convert_row, rows))
        if values.null_count:
            there = values.is_valid().to_pylist()
            rows = [row if is_there else ABSENT for row, is_there in zip(rows, there, strict=True)]
        return rows


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(
        _has_map(kind.field(at).type) for at in range(kind.num_fields)
    )


class ValueForm:
    def __init__(self, variable: Variable) -> None:
        self._kind = variable.type
        self.rows = Rows(self._kind)

    def read(self, values: pa.Array) -> list[Any]:
        return self.rows.read(values)

    def array(self, values: Sequence[Any]) -> pa.Array:
        return self.rows.array(values)


class ListForm:
    def __init__(self, variable: Variable) -> None:
        self._kind = variable.type
        self.rows = Rows(self._kind.value_type)

    def read(self, values: pa.Array) -> list[Any]:
        items = self.rows.read(values.values)
        ends, there = values.offsets.to_pylist(), values.is_valid().to_pylist()
        return [
            items[start:stop] if is_there else ABSENT
            for start, stop, is_there in zip(ends, ends[1:], there, strict=False)
        ]

    def array(self, values: Sequence[Any]) -> pa.Array:
        ends: list[int | None] = []
        items: list[Any] = []
        for each in values:
            ends.append(None if each is ABSENT else len(items))
            items += () if each is ABSENT else each
        ends.append(len(items))
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), self.rows.array(items), type=self._kind
        )


class MapForm:
    def __init__(self, variable: Variable) -> None:
        self._kind = variable.type
        self.keys = Rows(self._kind.key_type, is_key=True)
        self.rows = Rows(self._kind.item_type)

    def read(self, values: pa.Array) -> list[Any]:
        pairs = list(zip(self.keys.read(values.keys), self.rows.read(values.items), strict=True))
        ends, there = values.offsets.to_pylist(), values.is_valid().to_pylist()
        return [
            dict(pairs[start:stop]) if is_there else ABSENT
            for start, stop, is_there in zip(ends, ends[1:], there, strict=False)
        ]

    def array(self, values: Sequence[Any]) -> pa.Array:
        ends: list[int | None] = []
        keys: list[Any] = []
        items: list[Any] = []
        for each in values:
            ends.append(None if each is ABSENT else len(keys))
            if each is not ABSENT:
                keys += each.keys()
                items += each.values()
        ends.append(len(keys))
        return pa.MapArray.from_arrays(
            pa.array(ends, pa.int32()), self.keys.array(keys), self.rows.array(items), self._kind
        )


def normalized(values: pa.Array) -> pa.Array:
    """A variable of many keys as functions of single records would have left it: a list or map
    without rows is none, and a row in one is there, though each of its columns may be null."""
    if pa.types.is_struct(values.type):
        return values
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


_FORMS: Final[Mapping[str, Any]] = {"value": ValueForm, "list": ListForm, "map": MapForm}


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


class Current:
    """The entry of the key whose record the function has, and what it was before: `before` of one
    that was changed, and `undo` for what was changed within a list or a map."""

    __slots__ = ("before", "entry", "time_ms", "undo")

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.entry: Entry = []
        self.before: Entry | None = None
        self.undo: list[Callable[[], object]] = []

    def take_back(self) -> None:
        for each in reversed(self.undo):
            each()
        self.undo.clear()
        if self.before is not None:
            self.entry[:] = self.before
            self.before = None


class _Handle:
    """A variable, of the key of the record that the function has."""

    __slots__ = ("_at", "_current", "_end", "_rows", "_ttl_ms")

    def __init__(self, current: Current, at: int, count: int, form: Any, ttl_ms: int) -> None:
        self._current = current
        self._at = at
        self._end = at + count
        self._rows: Rows = form.rows
        self._ttl_ms = ttl_ms

    def exists(self) -> bool:
        """Whether the key has a value."""
        return self._current.entry[self._at] is not ABSENT

    def clear(self) -> None:
        """Let the key have none."""
        self._set(ABSENT)

    def _set(self, value: Any) -> None:
        current = self._current
        entry = current.entry
        if current.before is None:
            current.before = entry[:]
        entry[self._at] = value
        if self._ttl_ms:
            entry[self._end] = None if value is ABSENT else current.time_ms + self._ttl_ms


class ValueHandle(_Handle):
    """A ValueState."""

    __slots__ = ()

    def get(self, default: Any = None) -> Any:
        """The value, `default` where there is none."""
        value = self._current.entry[self._at]
        return default if value is ABSENT else self._rows.given(value)

    def update(self, value: Any) -> None:
        """Raises TypeError or ValueError for what the variable's schema does not take."""
        self._set(self._rows.taken(value))


class ListHandle(_Handle):
    """A ListState. A list without rows is none."""

    __slots__ = ()

    def get(self) -> Iterator[Any]:
        """The rows, in the order in which they were appended."""
        value = self._current.entry[self._at]
        return iter(()) if value is ABSENT else map(self._rows.given, tuple(value))

    def put(self, rows: Iterable[Any]) -> None:
        """Let these be the list."""
        found = [self._rows.taken(row) for row in rows]
        self._set(found or ABSENT)

    def append(self, row: Any) -> None:
        """Add a row behind the others."""
        self.extend((row,))

    def extend(self, rows: Iterable[Any]) -> None:
        """Add rows behind the others."""
        found = [self._rows.taken(row) for row in rows]
        value = self._current.entry[self._at]
        if value is ABSENT or not found:
            if found:
                self._set(found)
            return
        count = len(value)
        self._set(value)
        self._current.undo.append(lambda: value.__delitem__(slice(count, None)))
        value += found


class MapHandle(_Handle):
    """A MapState. A map without entries is none."""

    __slots__ = ("_keys",)

    def __init__(self, current: Current, at: int, count: int, form: Any, ttl_ms: int) -> None:
        super().__init__(current, at, count, form, ttl_ms)
        self._keys: Rows = form.keys

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key of the map, `default` where there is none."""
        value = self._current.entry[self._at]
        row = ABSENT if value is ABSENT else value.get(self._keys.taken(key), ABSENT)
        return default if row is ABSENT else self._rows.given(row)

    def contains(self, key: Any) -> bool:
        value = self._current.entry[self._at]
        return value is not ABSENT and self._keys.taken(key) in value

    def update(self, key: Any, row: Any) -> None:
        """Set the value of a key of the map. Raises TypeError or ValueError for what the schemas do
        not take."""
        if key is None:
            raise TypeError("a key of a map cannot be None")
        key, row = self._keys.taken(key), self._rows.taken(row)
        value = self._current.entry[self._at]
        if value is ABSENT:
            self._set({key: row})
            return
        self._set(value)
        was = value.get(key, ABSENT)

        def undo() -> None:
            if was is ABSENT:
                del value[key]
            else:
                value[key] = was

        self._current.undo.append(undo)
        value[key] = row

    def remove(self, key: Any) -> None:
        """Remove a key of the map, if it is there."""
        value = self._current.entry[self._at]
        key = self._keys.taken(key)
        if value is not ABSENT and key in value:
            left = {each: row for each, row in value.items() if each != key}
            self._set(left or ABSENT)

    def keys(self) -> Iterator[Any]:
        value = self._current.entry[self._at]
        return iter(()) if value is ABSENT else iter(tuple(value))

    def values(self) -> Iterator[Any]:
        return iter([each for _, each in self.items()])

    def items(self) -> Iterator[tuple[Any, Any]]:
        value = self._current.entry[self._at]
        items = () if value is ABSENT else tuple(value.items())
        return ((key, self._rows.given(row)) for key, row in items)


_HANDLES: Final[Mapping[str, type[_Handle]]] = {
    "value": ValueHandle,
    "list": ListHandle,
    "map": MapHandle,
}


class KeyState:
    """What a function is given beside a record: its key's variables, as attributes."""

    def __init__(self, current: Current, entries: Entries) -> None:
        variables = entries.form.variables
        for at, (variable, form) in enumerate(zip(variables, entries.forms, strict=True)):
            handle = _HANDLES[variable.kind](current, at, len(variables), form, variable.ttl_ms)
            object.__setattr__(self, variable.name, handle)

    def __setattr__(self, name: str, value: object) -> None:
        """An attribute that is set would be state of no key, and be there for the next one."""
        raise AttributeError(f"state.{name} cannot be set: call its update, put or append")
