"""What numbers and texts of a field mean, by the names that Kafka Connect and Debezium give
them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.json import rows as json_rows
from keyrange.formats.payloads import Payloads
from keyrange.formats.slow_rows import BadValue

_DATE: Final = frozenset(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"))
# How many of them a microsecond is worth, or how many microseconds they are.
_TIMES: Final = {
    "io.debezium.time.Timestamp": 1000,
    "org.apache.kafka.connect.data.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
    "io.debezium.time.NanoTimestamp": -1000,
}
# Whose names say what a number means; what others mean nobody can tell, and it counts as unnamed.
_CONNECTORS: Final = ("io.debezium.", "org.apache.kafka.connect.")
_DAY_US: Final = 86_400_000_000
# The most digits that a database which Debezium reads has behind the point (PostgreSQL). A scale of
# Java's may be anything up to 2^31, and digits without end would be made of a few bytes.
SCALE_MAX: Final = 16_383
_ARROWS_SCALE_MAX: Final = 38
_ARROWS_DIGITS_MAX: Final = 76
_EXACTLY: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
_QUOTE: Final = 34
_DIGITS: Final = r"^-?\d{1,18}$"
_DATE_ZONE: Final = re.compile(r'(?<=\d\d-\d\d)(Z|[+-]\d\d:\d\d)"$')
_TIME: Final = r'^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?'
_ZONED: Final = _TIME + r'(Z|[+-]\d\d:\d\d)"$'
_IN_UTC: Final = _TIME + r'Z"$'
# What reading a value of a hostile form raises.
_UNREADABLE: Final = (ValueError, ArithmeticError, TypeError, LookupError, RecursionError)
# The type of a decimal of any size, whose column is the text of its digits.
DIGITS: Final = pa.large_binary()


@dataclass(frozen=True, slots=True)
class Meaning:
    """The semantic type of a field, "" for the plain one, the scale of a decimal, None where there
    is none that could be one, and what the fields of a struct mean."""

    name: str
    scale: int | None = None
    fields: Mapping[str, Meaning] = field(default_factory=dict)


class _Unclear(ValueError):
    """A value that could mean several things, or does not fit. The text quotes nothing."""


def read_column(
    written: pa.Array, kind: pa.DataType, meaning: Meaning | None
) -> tuple[pa.Array, dict[int, str]]:
    """A column of JSON texts as a type, and which rows are bad and why. `meaning` is None where no
    schema says it."""
    if written.null_count == len(written):
        return pa.nulls(len(written), _shown(kind)), {}
    for fast in (_of_integers, _of_texts, _of_decimals):
        if (found := fast(written, kind, meaning)) is not None:
            return found, {}
    read = _reader(kind, meaning)
    values: list[Any] = []
    bad: dict[int, str] = {}
    for row, text in enumerate(written.to_pylist()):
        try:
            values.append(None if text is None else read(text))
        except _Unclear as failure:
            bad[row] = str(failure)
            values.append(None)
        except _UNREADABLE:
            bad[row] = f"it is no {_shown(kind)}, or out of its range"
            values.append(None)
    return pa.array(values, _shown(kind)), bad


def _shown(kind: pa.DataType) -> pa.DataType:
    return pa.string() if kind == DIGITS else kind


def _of_integers(written: pa.Array, kind: pa.DataType, meaning: Meaning | None) -> pa.Array | None:
    """The usual case of dates and times, all rows at once; None where it is another."""
    if not pc.all(pc.match_substring_regex(written, _DIGITS), min_count=0).as_py():
        return None
    name = meaning.name if meaning else ""
    if pa.types.is_date(kind) and (meaning is None or name in _DATE or not name):
        try:
            return written.cast(pa.string()).cast(pa.int32()).view(kind)
        except pa.ArrowInvalid:
            return None
    if pa.types.is_timestamp(kind) and name in _TIMES:
        values = written.cast(pa.string()).cast(pa.int64())
        unit = _TIMES[name]
        plain = values.fill_null(0).to_numpy()
        if unit > 0 and len(plain) and np.abs(plain).max() > (2**63 - 1) // unit:
            return None
        micros = plain * unit if unit > 0 else plain // -unit
        return pa.array(micros, mask=values.is_null().to_numpy(zero_copy_only=False)).view(kind)
    return None


def _of_texts(written: pa.Array, kind: pa.DataType, _: Meaning | None) -> pa.Array | None:
    """Times with their zones as ISO 8601 has them; None where a row has another text."""
    if not pa.types.is_timestamp(kind):
        return None
    pattern = _ZONED if kind.tz else _IN_UTC
    if not pc.all(pc.match_substring_regex(written, pattern), min_count=0).as_py():
        return None
    texts = pc.utf8_trim(written.cast(pa.string()), '"')
    try:
        return texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).view(kind)
    except pa.ArrowInvalid:
        return None


def _of_decimals(written: pa.Array, kind: pa.DataType, meaning: Meaning | None) -> pa.Array | None:
    """Decimals that are written as bytes; None where a row has none that fits."""
    if not pa.types.is_decimal(kind) or meaning is None:
        return None
    try:
        # Arrow takes any scale of a type, and reads past its table of powers.
        scale = meaning.scale
        if meaning.name == _DECIMAL and scale is not None and 0 <= scale <= _ARROWS_SCALE_MAX:
            return _of_scale(written, kind, scale)
        if meaning.name == VARIABLE_DECIMAL:
            texts = written.to_pylist()
            found = [None if text is None else _of_bytes(text, meaning) for text in texts]
            return pa.array([_holdable(each) for each in found], kind)
    except _UNREADABLE:
        pass
    return None


def _of_scale(written: pa.Array, kind: pa.DataType, scale: int) -> pa.Array | None:
    """Decimals as Base64; None where a row has another text, or more digits than Arrow holds."""
    # It brings numba, which those who only ask for types do without.
    from keyrange.formats.cell_kernels import decode_base64, read_unscaled

    rows, there = len(written), written.is_valid().to_numpy(zero_copy_only=False)
    texts = Payloads.of(written.cast(pa.string()).cast(pa.binary())).contiguous()
    if not (texts.data[texts.starts[there]] == _QUOTE).all():
        return None
    starts = (texts.starts + there).astype(np.int32)
    sizes = (texts.ends - texts.starts - 2 * there).astype(np.int32)
    unscaled = np.empty(int((sizes[there] // 4 * 3).sum(dtype=np.int64)), np.uint8)
    ends, bad = np.empty(rows + 1, np.int32), np.zeros(rows, np.bool_)
    halves = np.zeros((rows, 2), np.int64)
    decode_base64(texts.data, starts, sizes, there, ends, unscaled, bad)
    read_unscaled(unscaled, ends, there & ~bad, halves, bad)
    if bad.any():
        return None
    buffers = [pa.array(there).buffers()[1], pa.py_buffer(halves)]
    exact = pa.Array.from_buffers(pa.decimal128(38, scale), rows, buffers)
    exact.validate(full=True)
    return exact.cast(kind)


def _reader(kind: pa.DataType, meaning: Meaning | None) -> Callable[[str], Any]:
    if kind == DIGITS:
        return lambda text: _digits(text, meaning)
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind, meaning)
    if pa.types.is_date(kind):
        return lambda text: _date(text, kind, meaning)
    return lambda text: _time(text, kind, meaning)


def _date(text: str, kind: pa.DataType, meaning: Meaning | None) -> int:
    if text.startswith('"'):
        # An io.debezium.time.IsoDate names a zone.
        return int(json_rows.read_cell(_DATE_ZONE.sub('"', text), kind))
    days, name = int(text), meaning.name if meaning else ""
    if name in _TIMES:
        days = _micros(days, name) // _DAY_US
    elif name.startswith(_CONNECTORS) and name not in _DATE:
        raise _Unclear("a number that is no date, by its schema: declare the column as bigint")
    if not -(2**31) <= days < 2**31:
        raise ValueError
    return days


def _time(text: str, kind: pa.DataType, meaning: Meaning | None) -> int:
    if text.startswith('"'):
        # An io.debezium.time.IsoTimestamp of a column without zones names UTC.
        text = text if kind.tz else text.removesuffix('Z"') + '"' * text.endswith('Z"')
        return int(json_rows.read_cell(text, kind))
    name = meaning.name if meaning else ""
    if name in _DATE:
        micros = int(text) * _DAY_US
    elif name in _TIMES:
        micros = _micros(int(text), name)
    elif name:
        raise _Unclear("a number that is no timestamp, by its schema: declare the column as bigint")
    else:
        raise _Unclear(
            "a number for a time, and no schema says of what: let the connector write schemas, or "
            "declare the column as bigint"
        )
    if not -(2**63) <= micros < 2**63:
        raise ValueError
    return micros


def _micros(value: int, name: str) -> int:
    """Of a time that has one of these names."""
    unit = _TIMES[name]
    return value * unit if unit > 0 else value // -unit


def _decimal(text: str, kind: pa.Decimal128Type, meaning: Meaning | None) -> Decimal:
    if (found := _of_bytes(text, meaning)) is not None:
        return _fitted(found, kind)
    try:
        return json_rows.read_cell(text, kind)  # type: ignore[no-any-return]
    except BadValue:
        if not text.startswith('"'):
            raise
        raise _Unclear(
            "a text that is no number, and no schema says its scale: let the connector write "
            "schemas, or set its decimal.handling.mode=string"
        ) from None


def _digits(text: str, meaning: Meaning | None) -> str:
    found = _of_bytes(text, meaning)
    # Without a meaning the connector writes it as a text or a number.
    if found is not None:
        return f"{found:f}"
    # Half of a surrogate pair, which UTF-8 does not have, becomes a question mark.
    return str(json.loads(text, parse_float=str)).encode("utf-8", "replace").decode()


def _of_bytes(text: str, meaning: Meaning | None) -> Decimal | None:
    """A decimal that is written as the bytes of a number; None where it is not. Of its own decimals
    a converter writes numbers with decimal.format=NUMERIC."""
    if meaning is not None and meaning.name == _DECIMAL:
        if not text.startswith('"'):
            return None
        return scaled(base64.b64decode(json.loads(text), validate=True), meaning.scale)
    if meaning is not None and meaning.name == VARIABLE_DECIMAL:
        parts = json.loads(text)
        return scaled(base64.b64decode(parts["value"], validate=True), parts["scale"])
    return None


def scaled(unscaled: bytes, scale: Any) -> Decimal:
    """A decimal of any size, exactly. Raises ValueError where there is no byte of it, as Java, and
    where the scale is none, or no database's."""
    if not unscaled or type(scale) is not int or abs(scale) > SCALE_MAX:
        raise ValueError
    number = int.from_bytes(unscaled, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _fitted(value: Decimal, kind: pa.Decimal128Type) -> Decimal:
    """Raises ArithmeticError or ValueError where digits would be lost."""
    return pa.scalar(_holdable(value)).cast(kind).as_py()  # type: ignore[no-any-return]


def _holdable(value: Decimal | None) -> Decimal | None:
    """A decimal that Arrow can be asked to hold: it crashes at the exponents of others. Raises
    ValueError for one that it cannot hold."""
    if value is None:
        return None
    if abs(_exponent(value)) <= _ARROWS_DIGITS_MAX:
        return value
    # Zeros at the end are no digits.
    shorter = value.normalize(_EXACTLY)
    if abs(_exponent(shorter)) > _ARROWS_DIGITS_MAX:
        raise ValueError
    return shorter


def _exponent(value: Decimal) -> int:
    return int(value.as_tuple().exponent)
