"""Whether it is the type of a value that a column does not take, or this value alone.

A function that answers with text for a column of numbers is wrong whatever the record. A number
that is too large is the fault of one record.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.exact_values import converter_of

# What each type has that fits wherever any value of it does.
_EXAMPLES: Final[dict[type, Any]] = {
    bool: False,
    int: 0,
    float: 0.0,
    Decimal: Decimal(0),
    str: "",
    bytes: b"",
    bytearray: bytearray(),
    datetime: datetime(2000, 1, 1),
    date: date(2000, 1, 1),
    time: time(),
    timedelta: timedelta(),
    list: [],
    tuple: (),
    set: set(),
    dict: {},
}


def is_of_wrong_type(value: Any, kind: pa.DataType) -> bool:
    """Whether a column of `kind` does not take `value`, nor any other value of its type. Of lists,
    structs and maps, whether that is so of a value in them."""
    if value is None or _fits(value, kind):
        return False
    if pa.types.is_list(kind) and isinstance(value, (list, tuple, set)):
        return any(is_of_wrong_type(each, kind.value_type) for each in value)
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return any(is_of_wrong_type(value.get(field.name), field.type) for field in kind)
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        # One that is too long or too short is a value of the right type.
        return any(is_of_wrong_type(*each) for each in zip(value, _types(kind), strict=False))
    if pa.types.is_map(kind) and isinstance(value, dict):
        of_keys = any(is_of_wrong_type(each, kind.key_type) for each in value)
        return of_keys or any(is_of_wrong_type(each, kind.item_type) for each in value.values())
    return not _fits(_example(value), kind)


def _types(kind: pa.StructType) -> list[pa.DataType]:
    return [field.type for field in kind]


def _example(value: Any) -> Any:
    """A value of the same type that fits if any does; the value itself of a type that is not
    known."""
    if isinstance(value, np.generic):
        return type(value)()
    return next((_EXAMPLES[each] for each in type(value).__mro__ if each in _EXAMPLES), value)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        converter_of(kind)(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
