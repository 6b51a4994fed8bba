"""What numbers and texts of a change mean, by the names that Debezium and Kafka Connect give
them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.json import rows as json_rows
from keyrange.formats.slow_rows import BadValue

_DATE: Final = frozenset(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"))
# How many of them a microsecond is worth, or how many microseconds they are.
_TIMES: Final = {
    "io.debezium.time.Timestamp": 1000,
    "org.apache.kafka.connect.data.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
    "io.debezium.time.NanoTimestamp": -1000,
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_DIGITS: Final = r"^-?\d{1,18}$"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The semantic type of a column, "" for the plain one, and the scale of a decimal."""

    name: str
    scale: int = 0


class _Unclear(ValueError):
    """A value that could mean several things, or does not fit. The text quotes nothing."""


def read_column(
    written: pa.Array, kind: pa.DataType, meaning: Meaning | None
) -> tuple[pa.Array, dict[int, str]]:
    """A column of JSON texts as a type, and which rows are bad and why. `meaning` is None where no
    schema says it."""
    numbers = pc.match_substring_regex(written, _DIGITS)
    if (written.null_count == len(written)) or pc.all(numbers, min_count=0).as_py():
        fast = _of_integers(written, kind, meaning)
        if fast is not None:
            return fast, {}
    read = _reader(kind, meaning)
    found: list[Any] = []
    bad: dict[int, str] = {}
    for row, text in enumerate(written.to_pylist()):
        try:
            found.append(None if text is None else read(text))
        except _Unclear as failure:
            bad[row] = str(failure)
            found.append(None)
        except (ValueError, ArithmeticError, TypeError, LookupError):
            bad[row] = f"it is no {kind}, or out of its range"
            found.append(None)
    return pa.array(found, kind), bad


def _of_integers(written: pa.Array, kind: pa.DataType, meaning: Meaning | None) -> pa.Array | None:
    """The usual case of dates and times, all rows at once; None where it is another."""
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


def _reader(kind: pa.DataType, meaning: Meaning | None) -> Callable[[str], Any]:
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind, meaning)
    if pa.types.is_date(kind):
        return lambda text: _date(text, kind)
    return lambda text: _time(text, kind, meaning)


def _date(text: str, kind: pa.DataType) -> int:
    if text.startswith('"'):
        return int(json_rows.read_cell(text, kind))
    days = int(text)
    if not -(2**31) <= days < 2**31:
        raise ValueError
    return days


def _time(text: str, kind: pa.DataType, meaning: Meaning | None) -> int:
    if text.startswith('"'):
        return int(json_rows.read_cell(text, kind))
    unit = _TIMES.get(meaning.name if meaning else "")
    if unit is None:
        raise _Unclear(
            "a number for a time, and no schema says of what: let the connector write schemas, or "
            "declare the column as bigint"
        )
    micros = int(text) * unit if unit > 0 else int(text) // -unit
    if not -(2**63) <= micros < 2**63:
        raise ValueError
    return micros


def _decimal(text: str, kind: pa.Decimal128Type, meaning: Meaning | None) -> Decimal:
    name = meaning.name if meaning else ""
    if name == _DECIMAL and meaning is not None:
        return _fitted(_unscaled(json.loads(text)).scaleb(-meaning.scale), kind)
    if name == _VARIABLE:
        parts = json.loads(text)
        return _fitted(_unscaled(parts["value"]).scaleb(-int(parts["scale"])), kind)
    try:
        return json_rows.read_cell(text, kind)  # type: ignore[no-any-return]
    except BadValue:
        if not text.startswith('"'):
            raise
        raise _Unclear(
            "a text that is no number, and no schema says its scale: let the connector write "
            "schemas, or set its decimal.handling.mode=string"
        ) from None


def _unscaled(text: str) -> Decimal:
    return Decimal(int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True))


def _fitted(value: Decimal, kind: pa.Decimal128Type) -> Decimal:
    """Raises ArithmeticError or ValueError where digits would be lost."""
    return pa.scalar(value).cast(kind).as_py()  # type: ignore[no-any-return]
