"""Columns of a function of Arrow batches, as a schema keeps them: the rule of `exact_values`.

Arrow's cast is safe for numbers. It takes other things too: bytes for text, a number for a time,
noon for a date; it makes 1e40 infinite in 32 bits and leaves out fields that a struct lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.keyed_state.exact_values import form_of

# What a text or bytes within a row of state may take: a file's column of a block has 2 GiB.
VALUE_BYTES_MAX: Final = 16 << 20
_WIDEST_PRECISION: Final = 76
_Is = Callable[[pa.DataType], bool]
_types: Final[Any] = pa.types
# Of which types columns of a type are made. Of a list_view Arrow 26 makes empty lists.
_SOURCES: Final[Sequence[tuple[_Is, tuple[_Is, ...]]]] = (
    (_types.is_integer, (_types.is_integer, _types.is_floating, _types.is_decimal)),
    (_types.is_floating, (_types.is_integer, _types.is_floating)),
    (_types.is_decimal, (_types.is_integer, _types.is_decimal)),
    (_types.is_string, (_types.is_large_string, _types.is_string_view)),
    (
        _types.is_binary,
        (_types.is_large_binary, _types.is_binary_view, _types.is_fixed_size_binary),
    ),
    (_types.is_date, (_types.is_date,)),
    (_types.is_timestamp, (_types.is_timestamp,)),
    (_types.is_struct, (_types.is_struct,)),
    (_types.is_list, (_types.is_list, _types.is_large_list, _types.is_fixed_size_list)),
    (_types.is_map, (_types.is_map,)),
)


def cast_exactly(name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises TypeError for a column whose type does not become `kind`, whatever its values, and
    ValueError for a value that would lose something, or that no function of records could give."""
    given = column.type
    if given != kind:
        if not becomes(given, kind):
            raise TypeError(f"a column {name!r} of {given}, which is to be {kind}")
        try:
            found = column
            if pa.types.is_decimal(kind) and pa.types.is_integer(given):
                # Arrow makes decimals only of integers of which each would fit.
                found = column.cast(pa.decimal256(_WIDEST_PRECISION, kind.scale))
            found = found.cast(kind)
        except pa.ArrowInvalid:
            # Its text may quote a value.
            text = f"column {name!r}: a value of {given} that {kind} cannot hold"
            raise ValueError(text) from None
        if _infinite_count(found) > _infinite_count(column):
            raise ValueError(f"column {name!r}: a number that is too large for {kind}")
        column = found
    if holds(kind, _types.is_map):
        _check_maps(name, column)
    return column


def becomes(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether some value of a type is taken for another one, by the types alone."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given) or given == kind:
        return True
    sources = next((sources for is_kind, sources in _SOURCES if is_kind(kind)), ())
    if not any(is_source(given) for is_source in sources):
        return False
    if pa.types.is_timestamp(kind):
        return kind.tz is not None or given.tz is None
    if pa.types.is_struct(kind):
        return all(
            kind.get_field_index(each.name) >= 0 and becomes(each.type, kind.field(each.name).type)
            for each in given
        )
    return not pa.types.is_nested(kind) or all(
        becomes(given.field(at).type, kind.field(at).type) for at in range(kind.num_fields)
    )


def _infinite_count(values: pa.Array) -> int:
    floats = (each for each in _all_in(values) if pa.types.is_floating(each.type))
    return sum(pc.sum(pc.is_inf(each)).as_py() or 0 for each in floats)


def holds(kind: pa.DataType, *wanted: _Is) -> bool:
    """Whether a type is, or has within it, one of some."""
    return any(each(kind) for each in wanted) or (
        pa.types.is_nested(kind)
        and any(holds(kind.field(at).type, *wanted) for at in range(kind.num_fields))
    )


def _children(values: pa.Array) -> list[pa.Array]:
    """The columns within: fields, items, or keys and items, without what is below a null."""
    if pa.types.is_struct(values.type):
        return list(values.flatten())
    if not pa.types.is_map(values.type):
        return [values.flatten()] if pa.types.is_nested(values.type) else []
    there = values.drop_null()
    first, last = (there.offsets[0].as_py(), there.offsets[-1].as_py()) if len(there) else (0, 0)
    return [there.keys[first:last], there.items[first:last]]


def _all_in(values: pa.Array) -> Iterator[pa.Array]:
    """A column, and all columns within it at any depth."""
    yield values
    for child in _children(values):
        yield from _all_in(child)


def _check_maps(name: str, column: pa.Array) -> None:
    """Raises ValueError for a map that has a key twice or a NaN as key."""
    for values in _all_in(column):
        if not pa.types.is_map(values.type):
            continue
        keys = _children(values)[0]
        if any(map(_has_nan, _all_in(keys))):
            raise ValueError(f"column {name!r}: NaN cannot be a key: it is not equal to itself")
        form = form_of(keys.type, is_key=True)
        of_python = keys.to_pylist()
        counts = np.diff(values.drop_null().offsets.to_numpy())
        maps = np.repeat(np.arange(len(counts)), counts).tolist()
        found = of_python if form is None else map(form, of_python)
        if len({*zip(maps, found, strict=True)}) < len(of_python):
            raise ValueError(f"column {name!r}: two entries of a map have the same key")


def _has_nan(values: pa.Array) -> bool:
    return bool(pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def check_state(name: str, column: pa.Array) -> None:
    """Raises ValueError for a value that a function of single records could not have kept: a text
    or bytes that are too large, or a time that is none for Python."""
    for values in _all_in(column):
        kind = values.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            most = pc.max(pc.binary_length(values)).as_py() or 0
            if most > VALUE_BYTES_MAX:
                raise ValueError(f"column {name!r}: {most:,} bytes are more than a state takes")
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            try:
                pc.min_max(values).as_py()
            except (ValueError, OverflowError):
                text = f"column {name!r}: a time that is not in the years 1 to 9999"
                raise ValueError(text) from None
