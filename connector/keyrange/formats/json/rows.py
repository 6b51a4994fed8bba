"""One JSON value to Python values of a schema's types: what JSON values mean, said once.

`keyrange.formats.json.decoder` reads most rows by compiled passes, and every row or cell that those
do not read by this module. Meant is what Spark's `from_json` makes of the same value.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.formats.column_kinds import where
from keyrange.formats.json.kernels import NUMBER_BYTES_MAX
from keyrange.formats.slow_rows import BadValue
from keyrange.formats.time_zones import instants, zone_of

_TIME = re.compile(
    r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)"
    r"(?:[T ](?:(\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?)?)?"
    r" ?(Z|UTC|GMT|(?:UTC|GMT)?[+-]\d\d?(?::?\d\d)?)?)?)?)?)?",
    re.ASCII,
)
_DATE = re.compile(r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[T ].*)?)?)?", re.ASCII | re.DOTALL)
_NOT_FINITE = {
    "NaN": "NaN",
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), "Infinity"),
    **dict.fromkeys(("-Infinity", "-INF"), "-Infinity"),
}
_TOO_DEEP = "not JSON: it is nested too deeply"
# The path of a field, and its value as JSON.
Misfit = tuple[tuple[str, ...], str]
_INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


class _Members(list[tuple[str, Any]]):
    """An object as it is written: names may come twice."""


class _Float(str):
    """A number that is no integer, by its text."""

    __slots__ = ()


def _limited(text: str) -> str:
    if len(text) > NUMBER_BYTES_MAX:
        raise BadValue("not JSON: a number is too long")
    return text


_decoder = json.JSONDecoder(
    object_pairs_hook=_Members,
    parse_int=lambda text: int(_limited(text)),
    parse_float=lambda text: _Float(_limited(text)),
    parse_constant=_Float,
)


def read_row(value: bytes, root: pa.DataType) -> dict[str, Any] | None:
    """The fields of one value: None where the value is blank. Raises BadValue."""
    text = _decoded(value)
    return None if text is None else read_cell(text, root)


def rescue_row(value: bytes, root: pa.StructType) -> tuple[dict[str, Any] | None, str | None]:
    """As `read_row`, and as JSON text what the type has no place for: members that it lacks, and
    those that do not fit, which are null then. Raises BadValue for what is no object."""
    text = _decoded(value)
    if text is None:
        return None, None
    try:
        members = _parsed(text)
        if type(members) is not _Members:
            raise _misfit(members, root, "")
        row, left = _rescued(members, root, "")
        return row, None if left is None else _exactly(left)
    except RecursionError as failure:
        raise BadValue(_TOO_DEEP) from failure


def with_misfits(left: str | None, misfits: Sequence[Misfit]) -> str:
    """What is left over of a row, with values that have no place after all."""
    whole = _Members() if left is None else _parsed(left)
    for path, text in misfits:
        inner = whole
        for name in path[:-1]:
            found = next((each for key, each in inner if key == name), None)
            if type(found) is not _Members:
                found = _Members()
                inner.append((name, found))
            inner = found
        inner.append((path[-1], _parsed(text)))
    return _exactly(whole)


def member(left: str | None, name: str) -> str | None:
    """What is left over of one member of a row."""
    if left is None:
        return None
    found = next((each for key, each in _parsed(left) if key == name), None)
    return None if found is None else _exactly(found)


def _decoded(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError as failure:
        raise BadValue("not UTF-8") from failure
    return text if text.strip(" \t\r\n") else None


def read_cell(text: str, kind: pa.DataType) -> Any:
    """One field that was found in a row. Raises BadValue."""
    try:
        return _read(_parsed(text), kind, "")
    except RecursionError as failure:
        raise BadValue(_TOO_DEEP) from failure


def _parsed(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as failure:
        raise BadValue("not JSON") from failure


def _read(value: Any, kind: pa.DataType, path: str) -> Any:
    if value is None and path:
        return None
    if pa.types.is_struct(kind):
        return _read_struct(value, kind, path)
    if value is None:
        return None
    if pa.types.is_list(kind):
        if type(value) is not list:
            raise _misfit(value, kind, path)
        return [_read(each, kind.value_type, f"{path}[]") for each in value]
    if pa.types.is_map(kind):
        if type(value) is not _Members:
            raise _misfit(value, kind, path)
        return [(_text(key), _read(each, kind.item_type, f"{path}{{}}")) for key, each in value]
    if pa.types.is_large_string(kind):
        return _exactly(value)
    if pa.types.is_string(kind):
        return _text(value if type(value) is str else _json(value, _as_double))
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    read = _from_text if pa.types.is_temporal(kind) or pa.types.is_binary(kind) else _number
    try:
        return read(value, kind)
    except (ArithmeticError, ValueError) as failure:
        raise _misfit(value, kind, path) from failure


def _read_struct(value: Any, kind: pa.StructType, path: str) -> dict[str, Any]:
    if type(value) is not _Members:
        raise _misfit(value, kind, path)
    found: dict[str, Any] = dict.fromkeys(field.name for field in kind)
    for name, each in value:
        if name in found:
            found[name] = _read(each, kind.field(name).type, f"{path}.{name}" if path else name)
    return found


def _rescued(value: Any, kind: pa.DataType, path: str) -> tuple[Any, Any]:
    """A value, and what of it the type has no place for; None where it has for all of it."""
    if pa.types.is_struct(kind) and type(value) is _Members:
        row: dict[str, Any] = dict.fromkeys(field.name for field in kind)
        left: dict[str, Any] = {}
        for name, each in value:
            rest = each
            if name in row:
                at = f"{path}.{name}" if path else name
                row[name], rest = _rescued(each, kind.field(name).type, at)
            if rest is not None:
                left[name] = rest
            else:
                left.pop(name, None)
        return row, _Members(left.items()) if left else None
    if pa.types.is_list(kind) and type(value) is list:
        pairs = [_rescued(each, kind.value_type, f"{path}[]") for each in value]
        rests = [rest for _, rest in pairs]
        return [each for each, _ in pairs], None if rests.count(None) == len(rests) else rests
    try:
        return _read(value, kind, path or "value"), None
    except BadValue:
        return None, value


def _exactly(value: Any) -> str:
    """JSON as it was written, without the blanks: numbers digit for digit."""
    return _text(_json(value, str))


def _json(value: Any, of_float: Callable[[_Float], str]) -> str:
    if type(value) is _Members:
        members = (f"{_json(name, of_float)}:{_json(each, of_float)}" for name, each in value)
        return f"{{{','.join(members)}}}"
    if type(value) is list:
        return f"[{','.join(map(_json, value, repeat(of_float)))}]"
    if type(value) is _Float:
        return f'"{value}"' if value in _NOT_FINITE else of_float(value)
    return json.dumps(value, ensure_ascii=False)


def _number(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) and type(value) in (int, _Float, str):
        return _decimal(value, kind)
    if pa.types.is_integer(kind) and type(value) is int:
        if -(limit := 1 << (_INTEGER_BITS[kind] - 1)) <= value < limit:
            return value
    elif pa.types.is_floating(kind):
        if type(value) is str:
            return float(_NOT_FINITE.get(value, "no number"))
        if type(value) in (int, _Float):
            # Arrow rounds the text once, to the type itself.
            return _rounded(str(value), kind)
    raise ValueError


def _rounded(text: str, kind: pa.DataType) -> float:
    try:
        return float(pa.scalar(text).cast(kind).as_py())
    except pa.ArrowInvalid:
        return float(text)  # too large or too small


def _decimal(value: Any, kind: pa.Decimal128Type) -> Decimal:
    text = value.replace(",", "") if type(value) is str else str(value)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII):
        raise ValueError
    with localcontext(prec=2 * NUMBER_BYTES_MAX):
        exact = Decimal(text)
        if exact.adjusted() > kind.precision:
            raise ValueError
        rounded = exact.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        if abs(rounded) >= Decimal(1).scaleb(kind.precision - kind.scale):
            raise ValueError
        return rounded


def _from_text(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind) and kind.tz is not None and type(value) is int:
        return _within(value * 1_000_000)
    if type(value) is not str:
        raise ValueError
    if pa.types.is_binary(kind):
        return base64.b64decode(value.rstrip("\r\n"), validate=True)
    found = (_DATE if pa.types.is_date(kind) else _TIME).fullmatch(value.strip())
    if found is None:
        raise ValueError
    day = f"{found[1]}-{found[2] or 1:0>2}-{found[3] or 1:0>2}"
    if found[1] == "0000":
        raise ValueError
    if pa.types.is_date(kind):
        return int(np.datetime64(day, "D").astype(np.int64))
    if not pa.types.is_timestamp(kind):
        raise ValueError
    if found[8] and kind.tz is None:
        raise ValueError
    hour, minute, second = (found[n] or "" for n in (4, 5, 6))
    micros = (found[7] or "").ljust(6, "0")[:6]
    time = np.datetime64(f"{day}T{hour:0>2}:{minute:0>2}:{second:0>2}.{micros}", "us")
    if kind.tz is None:
        return int(time.astype(np.int64))
    zone = zone_of(kind.tz if found[8] is None else found[8])
    return int(instants(time.astype(np.int64).reshape(1), zone)[0])


def _within(micros: int) -> int:
    if not -(2**63) <= micros < 2**63:
        raise ValueError
    return micros


def _text(value: str) -> str:
    """Half of a surrogate pair, which UTF-8 does not have, becomes a question mark."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _as_double(text: str) -> str:
    """As the JVM, and so Spark, writes a double: 1000.0, 1.0E7, 1.5E-5."""
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = format(Decimal(repr(value)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{int(exponent) + len(digits) - 1}"


def _misfit(value: Any, kind: pa.DataType, path: str) -> BadValue:
    found = {
        _Members: "an object", list: "an array", bool: "a boolean", int: "an integer",
        _Float: "a number", str: "a string", type(None): "null",
    }[type(value)]  # fmt: skip
    return BadValue(f"{where(path)}{found} is no {str(kind)[:60]}, or out of its range")
