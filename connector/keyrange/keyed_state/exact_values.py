"""A Python value as a column keeps it: what is read back later is what a function sees at once.

Arrow takes more than a column holds: it truncates 1.5 for a `long`, reads a number as microseconds
for a timestamp, and leaves out fields of a dictionary that a struct lacks. So a value is made what
Arrow gives back when it is handed over, and one that would lose something is refused. The result
shares nothing with what the function goes on using.

| column | takes | is then |
|---|---|---|
| integers | int; float and Decimal without a fraction | int |
| float, double | float; int that it holds | float, of a `float` column rounded to 32 bits |
| decimal | Decimal and int within scale and precision | Decimal of the column's scale |
| string, binary | str; bytes, bytearray and memoryview | str; bytes |
| date | date that is no datetime | date |
| timestamp | datetime; without a zone it counts as UTC | datetime in UTC |
| timestamp_ntz | datetime without a zone | datetime without a zone |
| array | list, tuple, set, numpy array | list; tuple in the key of a map |
| struct | tuple, list, Row, dict without other fields | dict; tuple in the key of a map |
| map | dict, list of pairs | dict; list of pairs where a key is no scalar |

numpy's scalars count as the Python values that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import numpy as np
import pyarrow as pa

Convert = Callable[[Any], Any]

# What a row of a key may take: a file's column of a block has 2 GiB.
VALUE_BYTES_MAX: Final = 16 << 20
_INT_BITS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
_BYTES: Final = (bytes, bytearray, memoryview)


def converter_of(kind: pa.DataType, is_key: bool = False) -> Convert:
    """Makes of a value what a column of `kind` keeps; with `is_key` a value that can be hashed and
    is equal to itself. Raises TypeError, ValueError, OverflowError or an error of Arrow for one
    that the column does not hold."""
    if pa.types.is_struct(kind):
        return _struct(kind, is_key)
    if pa.types.is_list(kind):
        return _list(kind, is_key)
    if pa.types.is_map(kind):
        return _map(kind, is_key)
    exact, is_plain = _scalar(kind, is_key), plain_of(kind, is_key)

    def convert(value: Any) -> Any:
        return value if value is None or is_plain(value) else exact(value)

    return convert


def row_converter_of(kinds: Sequence[pa.DataType], is_key: bool = False) -> Convert:
    """As `converter_of`, for a tuple of a value for each of some columns."""
    plain = [plain_of(kind, is_key) for kind in kinds]
    converters = [converter_of(kind, is_key) for kind in kinds]

    def convert(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(each(value) for each, value in zip(converters, row, strict=True))

    # Most rows are short and plain, and this is done for each record.
    if len(kinds) == 1:
        [first] = plain
        return lambda row: row if first(row[0]) else convert(row)
    if len(kinds) == 2:
        first, second = plain
        return lambda row: row if first(row[0]) and second(row[1]) else convert(row)
    return convert


def plain_of(kind: pa.DataType, is_key: bool = False) -> Callable[[Any], bool]:
    """Whether a value is at first sight what the column keeps. Raises ValueError for one that is
    too large."""
    if kind in _INT_BITS:
        most = 1 << _INT_BITS[kind]
        return lambda value: type(value) is int and -most <= value < most
    if pa.types.is_float64(kind) and not is_key:
        return lambda value: type(value) is float
    if pa.types.is_boolean(kind):
        return lambda value: type(value) is bool
    if pa.types.is_string(kind):
        return lambda value: type(value) is str and value.isascii() and _is_small(value)
    if pa.types.is_binary(kind):
        return lambda value: type(value) is bytes and _is_small(value)
    return lambda _: False


def _is_small(value: str | bytes) -> bool:
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"a value of {len(value):,} bytes is larger than a state takes")
    return True


def _scalar(kind: pa.DataType, is_key: bool) -> Convert:
    takes = _python_types(kind)
    is_float = pa.types.is_floating(kind)

    def convert(value: Any) -> Any:
        given = value.item() if isinstance(value, np.generic) else value
        wrong = isinstance(given, bool) and not pa.types.is_boolean(kind)
        if wrong or not isinstance(given, takes) or not _of_kind(given, kind):
            raise TypeError(f"a value of type {type(value).__name__}, and the column is {kind}")
        if isinstance(given, str):
            _is_small(given.encode())
        if isinstance(given, _BYTES):
            given = bytes(given)
            _is_small(given)
        found = pa.array([given], kind)[0].as_py()
        if is_float and isinstance(given, float):
            if isfinite(given) and not isfinite(found):
                raise ValueError(f"a number that is too large for a column of {kind}")
            if is_key and found != found:
                raise ValueError("NaN cannot be a key: it is not equal to itself")
        elif isinstance(given, (int, float, Decimal)) and found != given:
            raise ValueError(f"a value of type {type(value).__name__} that {kind} cannot hold")
        return found

    return convert


def _python_types(kind: pa.DataType) -> tuple[type, ...]:
    """The types of values that a column takes; of others none fits."""
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_integer(kind):
        return (int, float, Decimal)
    if pa.types.is_floating(kind):
        return (int, float)
    if pa.types.is_decimal(kind):
        return (int, Decimal)
    if pa.types.is_string(kind):
        return (str,)
    if pa.types.is_binary(kind):
        return _BYTES
    if pa.types.is_date(kind):
        return (date,)
    if pa.types.is_timestamp(kind):
        return (datetime,)
    return (object,)


def _of_kind(value: Any, kind: pa.DataType) -> bool:
    """What `isinstance` does not tell: a datetime is a date, and has a zone or none."""
    if pa.types.is_date(kind):
        return not isinstance(value, datetime)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return value.tzinfo is None
    return True


def _struct(kind: pa.StructType, is_key: bool) -> Convert:
    names = tuple(kind.names)
    convert_row = row_converter_of([field.type for field in kind], is_key)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        row = convert_row(row_of(value, names))
        return row if is_key else dict(zip(names, row, strict=True))

    return convert


def row_of(value: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """A row by the order of its columns. Raises TypeError for what is none of these columns."""
    if isinstance(value, tuple) and hasattr(value, "__fields__"):
        value = dict(zip(value.__fields__, value, strict=True))
    if isinstance(value, dict):
        unknown = sorted(map(str, value.keys() - {*names}))
        if unknown:
            raise TypeError(f"a row with field {unknown[0][:100]!r}")
        return tuple(map(value.get, names))
    if not isinstance(value, (tuple, list)) or len(value) != len(names):
        raise TypeError(f"a row is a tuple or dict of {', '.join(names)}")
    return tuple(value)


def _list(kind: pa.ListType, is_key: bool) -> Convert:
    convert_item, made = converter_of(kind.value_type, is_key), tuple if is_key else list

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
            raise TypeError(f"a value of type {type(value).__name__}, and the column is an array")
        return made(map(convert_item, value))

    return convert


def _map(kind: pa.MapType, is_key: bool) -> Convert:
    convert_key = converter_of(kind.key_type, is_key=True)
    convert_item = converter_of(kind.item_type, is_key)
    is_pairs = is_key or pa.types.is_nested(kind.key_type)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (dict, list, tuple)):
            raise TypeError(f"a value of type {type(value).__name__}, and the column is a map")
        pairs = value.items() if isinstance(value, dict) else value
        found = {convert_key(key): convert_item(item) for key, item in pairs}
        if None in found:
            raise TypeError("a key of a map cannot be None")
        if len(found) < len(pairs):
            raise ValueError("two entries of a map have the same key")
        if is_key:
            return tuple(found.items())
        return list(found.items()) if is_pairs else found

    return convert
