"""The compiled pass over JSON values: find the fields of a schema.

The rules of `keyrange.wire.record_kernels` hold here too. A kernel judges nothing: whatever it does
not read itself makes a row SLOW, and `keyrange.formats.json.rows` reads that row again. It never
takes a value that is not exactly one JSON object.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from keyrange.wire.compiling import compiled_when_called, inlined

# One row per field, the root first; the fields of a struct stand behind each other.
FIELD = np.dtype(
    [
        ("name_at", np.int32),
        ("name_bytes", np.int32),
        ("first", np.int32),  # of the struct's fields
        ("count", np.int32),  # of the struct's fields; -1 where the field is no struct
        ("is_plain", np.int32),  # the name is written in JSON as it is
    ],
    align=True,
)

# What a cell holds.
MISSING, NULL, STRING, ESCAPED, INTEGER, FLOAT, TRUE, FALSE, OBJECT, ARRAY = range(10)

FAST = 0
SLOW = 1

DEPTH_MAX = 200
NUMBER_BYTES_MAX = 1000

# What stands in the stack of open containers in the place of the number of a struct's field.
_OTHER_OBJECT = -1
_ARRAY = -2

_READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)
_I32_READ = types.Array(types.int32, 1, "C", readonly=True)
_FIELDS = types.Array(numba.from_dtype(FIELD), 1, "C")
_I32 = types.int32[::1]


@inlined
def _blank(data, at, end):
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@inlined
def _string(data, at, end):
    """(the position of the closing quote or -1, whether there are escapes)."""
    escaped = False
    while at < end:
        byte = data[at]
        if byte == 34:
            return at, escaped
        if byte < 32:
            return -1, escaped
        if byte == 92:
            escaped = True
            at += 1
            if at >= end:
                return -1, escaped
            byte = data[at]
            if byte == 117:  # u
                if end - at < 5:
                    return -1, escaped
                for digit in range(at + 1, at + 5):
                    if not _is_hex(data[digit]):
                        return -1, escaped
                at += 4
            elif not (
                byte == 34 or byte == 92 or byte == 47 or byte == 98
                or byte == 102 or byte == 110 or byte == 114 or byte == 116
            ):  # fmt: skip
                return -1, escaped
        at += 1
    return -1, escaped


@inlined
def _is_hex(byte):
    return 48 <= byte <= 57 or 97 <= byte <= 102 or 65 <= byte <= 70


@inlined
def _digits(data, at, end):
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at


@inlined
def _number(data, at, end):
    """(the position behind the number or -1, its kind)."""
    start = at
    if data[at] == 45:
        at += 1
    whole = _digits(data, at, end)
    if whole == at or (data[at] == 48 and whole - at > 1):
        return -1, INTEGER
    at = whole
    kind = INTEGER
    if at < end and data[at] == 46:
        kind = FLOAT
        fraction = _digits(data, at + 1, end)
        if fraction == at + 1:
            return -1, kind
        at = fraction
    if at < end and (data[at] == 101 or data[at] == 69):
        kind = FLOAT
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        exponent = _digits(data, at, end)
        if exponent == at:
            return -1, kind
        at = exponent
    if at - start > NUMBER_BYTES_MAX or (kind == INTEGER and at - start == 2 and data[start] == 45
                                         and data[start + 1] == 48):  # fmt: skip
        return -1, kind  # -0 is 0 as a number, which its text does not say
    return at, kind


@inlined
def _scalar(data, at, end):
    """(the position behind the value or -1, its kind); neither an object nor an array."""
    byte = data[at]
    if byte == 34:
        close, escaped = _string(data, at + 1, end)
        return (close + 1 if close >= 0 else -1), (ESCAPED if escaped else STRING)
    if byte == 45 or 48 <= byte <= 57:
        return _number(data, at, end)
    if end - at >= 4 and byte == 116:
        if data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
            return at + 4, TRUE
    elif end - at >= 4 and byte == 110:
        if data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
            return at + 4, NULL
    elif (
        end - at >= 5 and byte == 102 and data[at + 1] == 97 and data[at + 2] == 108
        and data[at + 3] == 115 and data[at + 4] == 101
    ):  # fmt: skip
        return at + 5, FALSE
    return -1, MISSING


@inlined
def _named(data, at, size, names, fields, first, count, likely):
    """The field of this name among those of a struct, or -1. Producers keep an order: `likely`."""
    for step in range(count):
        field = likely + step
        if field >= first + count:
            field -= count
        if fields[field].name_bytes == size:
            name_at = fields[field].name_at
            same = 0
            while same < size and names[name_at + same] == data[at + same]:
                same += 1
            if same == size:
                return field
    return -1


@inlined
def _likely_close(data, at, end, names, fields, likely):
    """Where the quote stands behind the name that is expected here, or -1: producers keep an order,
    and to compare a name takes less than to look for its end."""
    name_at, size = fields[likely].name_at, fields[likely].name_bytes
    if not fields[likely].is_plain or end - at <= size or data[at + size] != 34:
        return -1
    for step in range(size):
        if data[at + step] != names[name_at + step]:
            return -1
    return at + size


@inlined
def _member(data, at, end, parent, likely, row, names, fields, kinds, others):
    """A member's name and colon: (the position of its value or -1, its field or -1)."""
    if data[at] != 34:
        return -1, -1
    field = -1
    close = -1
    if parent >= 0 and fields[parent].count > 0:
        close = _likely_close(data, at + 1, end, names, fields, likely)
    if close >= 0:
        field = likely
    else:
        close, escaped = _string(data, at + 1, end)
        if close < 0 or (escaped and parent >= 0):
            return -1, -1
    if parent >= 0:
        if field < 0:
            field = _named(data, at + 1, close - at - 1, names, fields,
                           fields[parent].first, fields[parent].count, likely)  # fmt: skip
        if field < 0:
            others[row] = True
        elif kinds[field, row] != MISSING:
            return -1, -1  # twice: the last one counts
    at = _blank(data, close + 1, end)
    if at >= end or data[at] != 58:
        return -1, -1
    at = _blank(data, at + 1, end)
    return (at if at < end else -1), field


@inlined
def _document(data, at, end, row, names, fields, kinds, starts, sizes, others, stack):
    """Whether this is one JSON object, and where the cells of its row stand."""
    at = _blank(data, at, end)
    if at >= end or data[at] != 123:
        return SLOW
    kinds[0, row] = OBJECT
    stack[0] = 0
    depth, likely, outer, outer_depth, opened = 0, fields[0].first, -1, -1, True
    at += 1
    while True:
        at = _blank(data, at, end)
        if at >= end:
            return SLOW
        closing = 93 if stack[depth] == _ARRAY else 125
        if not (opened and data[at] == closing):
            field = -1
            if closing == 125:
                at, field = _member(data, at, end, stack[depth], likely, row, names, fields, kinds,
                                    others)  # fmt: skip
                if at < 0:
                    return SLOW
            if data[at] == 123 or data[at] == 91:
                depth += 1
                if depth >= DEPTH_MAX:
                    return SLOW
                is_object = data[at] == 123
                stack[depth] = _OTHER_OBJECT if is_object else _ARRAY
                if field >= 0:
                    kinds[field, row] = OBJECT if is_object else ARRAY
                    starts[field, row] = at
                    if is_object and fields[field].count >= 0:
                        stack[depth] = field
                        likely = fields[field].first
                    else:
                        outer, outer_depth = field, depth
                opened = True
                at += 1
                continue
            start = at
            at, kind = _scalar(data, at, end)
            if at < 0:
                return SLOW
            if field >= 0:
                quotes = 1 if kind in (STRING, ESCAPED) else 0
                kinds[field, row] = kind
                starts[field, row] = start + quotes
                sizes[field, row] = at - start - 2 * quotes
                likely = _after(fields, stack[depth], field)
        opened = False
        while True:
            at = _blank(data, at, end)
            if at >= end:
                return SLOW
            if data[at] == 44:
                at += 1
                break
            if data[at] != (93 if stack[depth] == _ARRAY else 125):
                return SLOW
            at += 1
            closed = stack[depth]
            if depth == outer_depth:
                sizes[outer, row] = at - starts[outer, row]
                closed, outer_depth = outer, -1
            depth -= 1
            if depth < 0:
                return FAST if _blank(data, at, end) == end else SLOW
            if closed >= 0 and stack[depth] >= 0:
                likely = _after(fields, stack[depth], closed)


@inlined
def _after(fields, parent, field):
    """The field behind this one, in a circle."""
    last = fields[parent].first + fields[parent].count - 1
    return field + 1 if field < last else fields[parent].first


@compiled_when_called(
    types.void(
        _READ_ONLY, _I32_READ, _I32_READ, types.boolean[::1], _READ_ONLY, _FIELDS,
        types.uint8[:, ::1], types.int32[:, ::1], types.int32[:, ::1], types.uint8[::1],
        types.boolean[::1], _I32,
    ),
    allocates=False,
)  # fmt: skip
def find_fields(data, begins, ends, present, names, fields, kinds, starts, sizes, status, others,
                stack):  # fmt: skip
    """Row r is `data[begins[r]:ends[r]]`: fill the cells of each row, all MISSING before. `others`:
    whether an object that is read has members that the schema lacks. `stack`: DEPTH_MAX places."""
    for row in range(len(present)):
        if present[row]:
            status[row] = _document(data, begins[row], ends[row], row, names, fields, kinds,
                                    starts, sizes, others, stack)  # fmt: skip


@inlined
def _sound_value(data, at, end):
    """(the position behind a value, its kind), of JSON that `find_fields` has read."""
    opening = data[at]
    if opening != 123 and opening != 91:
        return _scalar(data, at, end)
    depth = 0
    while True:
        byte = data[at]
        if byte == 34:
            at, _ = _string(data, at + 1, end)
        elif byte == 123 or byte == 91:
            depth += 1
        elif byte == 125 or byte == 93:
            depth -= 1
            if depth == 0:
                return at + 1, OBJECT if opening == 123 else ARRAY
        at += 1


@compiled_when_called(
    types.void(
        _READ_ONLY, types.uint8[::1], _I32, _I32, types.uint8, _I32, types.uint8[:, ::1],
        types.int32[:, ::1], types.int32[:, ::1],
    ),
    allocates=False,
)  # fmt: skip
def find_items(data, kinds, starts, sizes, wanted, ends, item_kinds, item_starts, item_sizes):
    """What is in the cells that are `wanted`, ARRAY or OBJECT: the items of a row end at
    `ends[row + 1]`. The first cells are the items', and those behind them the names of an object's
    members."""
    to = 0
    ends[0] = 0
    for row in range(len(kinds)):
        if kinds[row] == wanted:
            end = starts[row] + sizes[row]
            at = _blank(data, starts[row] + 1, end)
            while data[at] != 93 and data[at] != 125:
                if wanted == OBJECT:
                    close, escaped = _string(data, at + 1, end)
                    item_kinds[1, to] = ESCAPED if escaped else STRING
                    item_starts[1, to] = at + 1
                    item_sizes[1, to] = close - at - 1
                    at = _blank(data, _blank(data, close + 1, end) + 1, end)
                behind, kind = _sound_value(data, at, end)
                quotes = 1 if kind in (STRING, ESCAPED) else 0
                item_kinds[0, to] = kind
                item_starts[0, to] = at + quotes
                item_sizes[0, to] = behind - at - 2 * quotes
                to += 1
                at = _blank(data, behind, end)
                if data[at] == 44:
                    at = _blank(data, at + 1, end)
        ends[row + 1] = to
