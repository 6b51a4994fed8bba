"""Times as JSON has them, digit by digit for all rows at once: Arrow's own strftime takes a
microsecond for each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_Array = np.ndarray[Any, Any]

_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
_DAY_US: Final = 86_400_000_000
# Of the years 0 to 9999, which have four digits.
_FIRST_US: Final = -62_167_219_200_000_000
_UNTIL_US: Final = 253_402_300_800_000_000
_PICTURE: Final = b'"0000-00-00T00:00:00.000000Z"'


def quoted_times(column: pa.TimestampArray) -> pa.Array:
    """ISO 8601 between quotes, in UTC where the column has a zone; null where a time is."""
    kind, zone = column.type, "Z" if column.type.tz else ""
    numbers = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if kind.unit == "us" and ((numbers >= _FIRST_US) & (numbers < _UNTIL_US)).all():
        return _fixed(_digits(numbers, bool(zone)), column)
    at = column.cast(pa.timestamp(kind.unit, "UTC" if zone else None))
    texts = pc.strftime(at, format=_FORMAT).cast(pa.large_string())
    ends = [pa.scalar(each, pa.large_string()) for each in ('"', f'{zone}"', "")]
    return pc.binary_join_element_wise(ends[0], texts, ends[1], ends[2])


def _digits(numbers: _Array, zoned: bool) -> _Array:
    """A row of bytes for each time."""
    days, micros = np.divmod(numbers, _DAY_US)
    months = days.view("M8[D]").astype("M8[M]")
    day = (days - months.astype("M8[D]").view(np.int64) + 1).astype(np.int32)
    years, month = np.divmod(months.view(np.int64).astype(np.int32), 12)
    seconds, micros = (each.astype(np.int32) for each in np.divmod(micros, 1_000_000))
    minutes, second = np.divmod(seconds, 60)
    picture = _PICTURE if zoned else _PICTURE.replace(b"Z", b"")
    found: _Array = np.tile(np.frombuffer(picture, np.uint8), (len(numbers), 1))
    # Each number, and where its last digit is.
    for value, last, count in (
        *((years + 1970, 4, 4), (month + 1, 7, 2), (day, 10, 2)),
        *((minutes // 60, 13, 2), (minutes % 60, 16, 2), (second, 19, 2), (micros, 26, 6)),
    ):
        left = value
        for place in range(last, last - count, -1):
            left, digit = np.divmod(left, 10)
            found[:, place] += digit.astype(np.uint8)
    return found


def _fixed(rows: _Array, column: pa.Array) -> pa.Array:
    """Texts of one size each, where the column has values."""
    ends = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    there = column.is_valid().buffers()[1] if column.null_count else None
    buffers = [there, pa.py_buffer(ends), pa.py_buffer(rows)]
    return pa.Array.from_buffers(pa.large_string(), len(rows), buffers)
