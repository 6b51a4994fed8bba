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
from struct import Struct
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

Convert = Callable[[Any], Any]

_INT_BITS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
_SINGLE: Final = Struct("f")


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
    (types, exact), is_plain = _scalar(kind, is_key), plain_of(kind, is_key)

    def convert(value: Any) -> Any:
        if value is None or is_plain(value):
            return value
        given = value.item() if isinstance(value, np.generic) else value
        if isinstance(given, bool) and not pa.types.is_boolean(kind):
            raise _not_of(value, kind)
        if not isinstance(given, types):
            raise _not_of(given, kind)
        return exact(given)

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
    """Whether a value is at first sight what the column keeps."""
    if kind in _INT_BITS:
        most = 1 << _INT_BITS[kind]
        return lambda value: type(value) is int and -most <= value < most
    if pa.types.is_float64(kind):
        return lambda value: type(value) is float and (value == value or not is_key)
    if pa.types.is_boolean(kind):
        return lambda value: type(value) is bool
    if pa.types.is_string(kind):
        return lambda value: type(value) is str and value.isascii()
    if pa.types.is_binary(kind):
        return lambda value: type(value) is bytes
    if pa.types.is_date(kind):
        return lambda value: type(value) is date
    if pa.types.is_timestamp(kind):
        zone = _zone(kind)
        return lambda value: type(value) is datetime and value.tzinfo is zone
    if pa.types.is_decimal(kind):
        return lambda value: type(value) is Decimal and bool(value) and _is_of_scale(value, kind)
    return lambda _: False


def form_of(kind: pa.DataType, is_key: bool = False) -> Convert | None:
    """Makes of a value as Arrow gives it back what `converter_of` had made of it; None where Arrow
    gives that already. It refuses nothing: what is stored is there, whoever wrote it."""
    if pa.types.is_struct(kind):
        forms = {field.name: form_of(field.type, is_key) for field in kind}
        if is_key:
            return lambda value: (
                value and tuple(_formed(forms[name], value[name]) for name in forms)
            )
        if not any(forms.values()):
            return None
        return lambda value: value and {n: _formed(forms[n], each) for n, each in value.items()}
    if pa.types.is_list(kind):
        form, made = form_of(kind.value_type, is_key), tuple if is_key else list
        if form is None and not is_key:
            return None
        return lambda value: None if value is None else made(_formed(form, each) for each in value)
    if pa.types.is_map(kind):
        key_form, form = form_of(kind.key_type, True), form_of(kind.item_type, is_key)
        pairs = _pairs_made(kind, is_key)
        return lambda value: (
            None
            if value is None
            else pairs({_formed(key_form, key): _formed(form, each) for key, each in value})
        )
    return None


def _formed(form: Convert | None, value: Any) -> Any:
    return value if form is None else form(value)


def _zone(kind: pa.TimestampType) -> ZoneInfo | None:
    """The zone as Arrow gives it."""
    return None if kind.tz is None else ZoneInfo(kind.tz)


def _is_of_scale(value: Decimal, kind: pa.Decimal128Type) -> bool:
    exponent = value.as_tuple().exponent
    return bool(exponent == -kind.scale and value.adjusted() < kind.precision - kind.scale)


def _not_of(value: Any, kind: pa.DataType) -> TypeError:
    return TypeError(f"a value of type {type(value).__name__}, and the column is {kind}")


def _lossy(value: Any, kind: pa.DataType) -> ValueError:
    return ValueError(f"a value of type {type(value).__name__} that {kind} cannot hold")


def _scalar(kind: pa.DataType, is_key: bool) -> tuple[Any, Convert]:
    """Of which types values are taken that are neither plain nor of numpy, and what becomes of
    one."""
    if pa.types.is_integer(kind):
        return (int, float, Decimal), _integer(kind)
    if pa.types.is_floating(kind):
        return (int, float), _floating(kind, is_key)
    if pa.types.is_decimal(kind):
        return (int, Decimal), _decimal(kind)
    if pa.types.is_timestamp(kind):
        return datetime, _timestamp(kind)
    if pa.types.is_date(kind):
        return date, _date
    if pa.types.is_string(kind):
        return str, _text
    if pa.types.is_binary(kind):
        return (bytes, bytearray, memoryview), bytes
    if pa.types.is_boolean(kind):
        return bool, bool
    return object, lambda value: pa.array([value], kind)[0].as_py()


def _integer(kind: pa.DataType) -> Convert:
    most = 1 << _INT_BITS[kind]

    def convert(value: Any) -> int:
        # NaN cannot be compared if it is a Decimal, and 1E+1000000 should not become an int.
        is_number = not isinstance(value, Decimal) or value.is_finite()
        if not is_number or not -most <= value < most or int(value) != value:
            raise _lossy(value, kind)
        return int(value)

    return convert


def _floating(kind: pa.DataType, is_key: bool) -> Convert:
    is_single = pa.types.is_float32(kind)

    def convert(value: Any) -> float:
        found = float(value)
        if is_single:
            [found] = _SINGLE.unpack(_SINGLE.pack(found))
        if isinstance(value, int) and found != value:
            raise _lossy(value, kind)
        if is_key and found != found:
            raise ValueError("NaN cannot be a key: it is not equal to itself")
        return found

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    def convert(value: Any) -> Decimal:
        try:
            found: Decimal = pa.array([value], kind)[0].as_py()
        except pa.ArrowInvalid:
            raise _lossy(value, kind) from None
        if found != value:
            raise _lossy(value, kind)
        return found

    return convert


def _timestamp(kind: pa.TimestampType) -> Convert:
    zone = _zone(kind)

    def convert(value: Any) -> datetime:
        if zone is None and value.tzinfo is not None:
            raise _not_of(value, kind)
        if getattr(value, "nanosecond", 0):
            raise _lossy(value, kind)
        if type(value) is not datetime:
            value = datetime.combine(value.date(), value.timetz())
        is_naive = zone is None or value.tzinfo is None
        found: datetime = value.replace(tzinfo=zone, fold=0) if is_naive else value.astimezone(zone)
        return found

    return convert


def _date(value: date) -> date:
    if isinstance(value, datetime):
        raise _not_of(value, pa.date32())
    return date(value.year, value.month, value.day)


def _text(value: str) -> str:
    value.encode()
    return str.__str__(value)


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
    made = _pairs_made(kind, is_key)

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
        return made(found)

    return convert


def _pairs_made(kind: pa.MapType, is_key: bool) -> Convert:
    if is_key:
        return lambda found: tuple(found.items())
    return (lambda found: [*found.items()]) if pa.types.is_nested(kind.key_type) else dict
