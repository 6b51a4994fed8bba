"""The compiled passes that read what `keyrange.formats.json.kernels` found in JSON values.

The rules of `keyrange.wire.record_kernels` hold here too. A cell that a pass does not read itself
makes its row SLOW.
"""

from __future__ import annotations

import numpy as np
from numba import types

from keyrange.formats.json.kernels import ESCAPED, INTEGER, NULL, SLOW, STRING
from keyrange.wire.compiling import compiled_when_called, inlined
from keyrange.wire.kernel_helpers import copy_bytes

_NO_DATE = -(2**40)
_NO_TIME = -(2**63)
# By month.
_LAST_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

# By a byte: what it is worth as a digit of 16; what it means behind a backslash.
_HEX = np.full(256, -1, np.int64)
_HEX[list(b"0123456789abcdef")] = range(16)
_HEX[list(b"ABCDEF")] = range(10, 16)
_MEANT = np.arange(256)
_MEANT[list(b"ntrbf")] = list(b"\n\t\r\b\f")

_BYTES = types.uint8[::1]
_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)
_I32 = types.int32[::1]
_I64 = types.int64[::1]


@inlined
def _escape(data, at):
    """The character of an escape whose backslash is at `at`, and the position behind it."""
    byte = data[at + 1]
    if byte == 117:
        code = np.int64(0)
        for digit in range(at + 2, at + 6):
            code = code * 16 + _HEX[data[digit]]
        return code, at + 6
    return _MEANT[byte], at + 2


@inlined
def _utf8(target, to, code):
    if code < 0x80:
        target[to] = code
        return to + 1
    if code < 0x800:
        target[to] = 0xC0 | (code >> 6)
    elif code < 0x10000:
        target[to] = 0xE0 | (code >> 12)
        to += 1
        target[to] = 0x80 | ((code >> 6) & 0x3F)
    else:
        target[to] = 0xF0 | (code >> 18)
        target[to + 1] = 0x80 | ((code >> 12) & 0x3F)
        to += 2
        target[to] = 0x80 | ((code >> 6) & 0x3F)
    target[to + 1] = 0x80 | (code & 0x3F)
    return to + 2


@inlined
def _unescaped(data, at, end, target, to):
    """Copy a string without its escapes; half of a surrogate pair becomes a question mark."""
    while at < end:
        if data[at] != 92:
            target[to] = data[at]
            to += 1
            at += 1
            continue
        code, at = _escape(data, at)
        if 0xD800 <= code < 0xE000:
            low, behind = np.int64(0), at
            if code < 0xDC00 and end - at >= 6 and data[at] == 92 and data[at + 1] == 117:
                low, behind = _escape(data, at)
            if 0xDC00 <= low < 0xE000:
                code, at = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), behind
            else:
                code = np.int64(63)
        to = _utf8(target, to, code)
    return to


@compiled_when_called(
    types.void(
        _READ_ONLY, types.uint8[::1], _I32, _I32, types.boolean[::1], _I32, _BYTES
    ),
    allocates=False,
)  # fmt: skip
def gather_texts(data, kinds, starts, sizes, taken, ends, target):
    """The texts of the cells taken, one after the other; `target` has the sum of their sizes."""
    to = 0
    ends[0] = 0
    for row in range(len(kinds)):
        if taken[row]:
            at, end = starts[row], starts[row] + sizes[row]
            if kinds[row] == ESCAPED:
                to = _unescaped(data, at, end, target, to)
            else:
                copy_bytes(target, to, data, at, end - at)
                to += end - at
        ends[row + 1] = to


@compiled_when_called(
    types.void(
        _READ_ONLY, types.uint8[::1], _I32, _I32, types.int64, types.int64, _I64, types.uint8[::1]
    ),
    allocates=False,
)  # fmt: skip
def read_integers(data, kinds, starts, sizes, low, high, values, status):
    """Integers from `low` to `high`; a row with anything else but null becomes SLOW."""
    for row in range(len(kinds)):
        if kinds[row] <= NULL:
            continue
        at, end = starts[row], starts[row] + sizes[row]
        negative = kinds[row] == INTEGER and data[at] == 45
        if negative:
            at += 1
        if kinds[row] != INTEGER or end - at > 19:
            status[row] = SLOW
            continue
        value = np.int64(0)
        while at < end:
            value = value * 10 + (data[at] - 48)
            at += 1
        # 19 digits that are too many for 63 bits come out below 0, in each case.
        fits = value >= 0
        if negative:
            value = -value
        if fits and low <= value <= high:
            values[row] = value
        else:
            status[row] = SLOW


@inlined
def _two(data, at):
    """Two digits, or a number that no field of a time has."""
    tens, ones = np.int64(data[at]) - 48, np.int64(data[at + 1]) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else np.int64(10_000)


@inlined
def _days(data, at):
    """The days from 1970-01-01 to YYYY-MM-DD, years from 1 on; or a number that no date has."""
    year, month, day = (
        _two(data, at) * 100 + _two(data, at + 2),
        _two(data, at + 5),
        _two(data, at + 8),
    )
    if not (1 <= year <= 9999 and 1 <= month <= 12 and data[at + 4] == 45 and data[at + 7] == 45):
        return _NO_DATE
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _LAST_DAYS[month] + (leap and month == 2):
        return _NO_DATE
    # Years that begin in March, as is usual: the leap day is the last one.
    if month <= 2:
        year -= 1
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719468


@inlined
def _instant(data, at, size, zoned):
    """Microseconds of `YYYY-MM-DD[T ]hh:mm:ss[.digits][Z|+hh:mm]`, or _NO_TIME."""
    end = at + size
    if size < 19:
        return _NO_TIME
    days = _days(data, at)
    hour, minute, second = _two(data, at + 11), _two(data, at + 14), _two(data, at + 17)
    if days == _NO_DATE or hour > 23 or minute > 59 or second > 59:
        return _NO_TIME
    if not ((data[at + 10] == 84 or data[at + 10] == 32) and data[at + 13] == data[at + 16] == 58):
        return _NO_TIME
    micros = np.int64(0)
    at += 19
    if at < end and data[at] == 46:
        unit = 100_000
        at += 1
        while at < end and 48 <= data[at] <= 57:
            micros += unit * (data[at] - 48)
            unit //= 10
            at += 1
    if at < end and not zoned:
        return _NO_TIME
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    if end - at == 6 and (data[at] == 43 or data[at] == 45) and data[at + 3] == 58:
        hours, minutes = _two(data, at + 1), _two(data, at + 4)
        if hours > 17 or minutes > 59:
            return _NO_TIME
        shift = hours * 3600 + minutes * 60
        seconds += -shift if data[at] == 43 else shift
    elif not (at == end or (end - at == 1 and data[at] == 90)):
        return _NO_TIME
    return seconds * 1_000_000 + micros


@inlined
def _is_local(data, at, size):
    """Whether a time that `_instant` has read ends without a zone."""
    end = at + size
    return data[end - 1] != 90 and data[end - 6] != 43 and data[end - 6] != 45


@compiled_when_called(
    types.void(
        _READ_ONLY, types.uint8[::1], _I32, _I32, types.boolean, types.boolean, _I64,
        types.boolean[::1], types.uint8[::1],
    ),
    allocates=False,
)  # fmt: skip
def read_times(data, kinds, starts, sizes, dates, zoned, values, local, status):
    """Days or microseconds, which are `local` where a time has no zone; a row with anything else
    but null becomes SLOW."""
    for row in range(len(kinds)):
        if kinds[row] <= NULL:
            continue
        value = _NO_TIME
        if kinds[row] == STRING and not dates:
            value = _instant(data, starts[row], sizes[row], zoned)
        elif kinds[row] == STRING and sizes[row] == 10:
            days = _days(data, starts[row])
            value = _NO_TIME if days == _NO_DATE else days
        if value == _NO_TIME:
            status[row] = SLOW
        else:
            values[row] = value
            local[row] = zoned and _is_local(data, starts[row], sizes[row])
