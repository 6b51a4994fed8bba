"""Typed columns as values of Python: a struct as a row whose fields are attributes.

Columns are converted one by one, so a row costs one tuple and not a dictionary.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, NoReturn
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_AWARE: Final = pa.timestamp("us", "UTC")
# Arrow's own, so that all times of a program are of one zone.
_UTC: Final = ZoneInfo("UTC")
# Times: what they are numbers of, and numpy's name for that.
_TIMES: Final[Mapping[pa.DataType, tuple[pa.DataType, str]]] = {
    _AWARE: (pa.int64(), "us"),
    pa.timestamp("us"): (pa.int64(), "us"),
    pa.date32(): (pa.int32(), "D"),
}
_LEAST, _GREATEST = np.datetime64(datetime.min), np.datetime64(datetime.max)

# So many characters of the names of its fields an error shows.
_NAMES_SHOWN: Final = 500


class ValueRow(tuple[Any, ...]):
    """Fields by name: `row.price`, `row["price"]`; in their order as a tuple has them. A function
    may answer with one as a row of its output. Its text shows names alone, as a log may get it."""

    __slots__ = ()
    __fields__: tuple[str, ...] = ()
    _places: dict[str, int] = {}  # noqa: RUF012 each class has its own

    def __getitem__(self, field: Any) -> Any:
        if type(field) is str:
            return tuple.__getitem__(self, self._places[field])
        return tuple.__getitem__(self, field)

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is no field."""
        if name.startswith("__"):
            raise AttributeError(name)
        has = ", ".join(self.__fields__)[:_NAMES_SHOWN]
        # What stands before the name is a schema's alone, and the name may be what a record says.
        raise AttributeError(f"'ValueRow' object, with {has}, has no attribute {name!r}")

    def asDict(self) -> dict[str, Any]:
        """The fields by name, as of Spark's Row; rows in them stay rows."""
        return dict(zip(self.__fields__, self, strict=True))

    def __repr__(self) -> str:
        return f"ValueRow({', '.join(self.__fields__)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.__fields__, tuple(self))


def _made(fields: tuple[str, ...], values: tuple[Any, ...]) -> ValueRow:
    return row_class(fields)(values)


@cache
def row_class(fields: tuple[str, ...]) -> type[ValueRow]:
    """The class of rows with these fields. A name that begins with an underscore, or one that is
    twice there, is no attribute."""
    # Of these a field is read in C.
    make: Any = namedtuple
    readers = make("Readers", [f"f{at}" for at in range(len(fields))])
    members: dict[str, Any] = {"__slots__": (), "__fields__": fields}
    members["_places"] = {name: at for at, name in enumerate(fields)}
    for at, name in enumerate(fields):
        if not name.startswith("_"):
            members[name] = getattr(readers, f"f{at}")
    return type("ValueRow", (ValueRow,), members)


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column. Raises ValueError or OverflowError for one that Python has none for,
    such as a time beyond the year 9999."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [python_values(column.field(at)) for at in range(kind.num_fields)]
        make = row_class(tuple(field.name for field in kind))
        rows = map(make, zip(*fields, strict=True)) if fields else (make() for _ in column)
        return _where_valid(column, rows)
    if pa.types.is_list(kind):
        items = python_values(_within(column, column.values))
        return _where_valid(column, (items[span] for span in _spans(column)))
    if pa.types.is_map(kind):
        keys = python_values(_within(column, column.keys))
        items = python_values(_within(column, column.items))
        spans = _spans(column)
        return _where_valid(column, (dict(zip(keys[at], items[at], strict=True)) for at in spans))
    return plain_values(column)


def plain_values(column: pa.Array) -> list[Any]:
    """The same with Arrow's own values of structs, lists and maps."""
    if column.type not in _TIMES:
        found: list[Any] = column.to_pylist()
        return found
    # For each of these Arrow's own list takes some microseconds.
    numbers, name = _TIMES[column.type]
    plain = pc.fill_null(column.view(numbers), 0).to_numpy().astype(np.int64, copy=False)
    times = plain.view(f"datetime64[{name}]")
    if len(times) and not (times.min() >= _LEAST and times.max() <= _GREATEST):
        raise ValueError("a time is beyond the years that Python has")
    values = times.tolist()
    if column.type == _AWARE:
        values = (each.replace(tzinfo=_UTC) for each in values)
    return _where_valid(column, iter(values))


def _within(column: pa.Array, items: pa.Array) -> pa.Array:
    """The items of a column's own rows: a slice shares them with the whole."""
    first, until = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return items.slice(first, until - first)


def _spans(column: pa.Array) -> Iterator[slice]:
    offsets = column.offsets.to_pylist()
    return (slice(a - offsets[0], b - offsets[0]) for a, b in itertools.pairwise(offsets))


def _where_valid(column: pa.Array, values: Iterator[Any]) -> list[Any]:
    if not column.null_count:
        return list(values)
    valid = column.is_valid().to_pylist()
    return [each if there else None for each, there in zip(values, valid, strict=True)]
