"""Columns to JSON objects, one for each row, by Arrow's own kernels.

As Spark's `to_json`: a field that is null is left out, an element of a list that is null is `null`,
bytes are base64, a number that is none is a text (`"NaN"`, `"Infinity"`), a map is an object. Times
are ISO 8601 with microseconds, in UTC where the column has a zone. What is read back by valueFormat
json is what was written.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from keyrange.formats.column_kinds import is_bytes, is_list, is_text, part_at
from keyrange.formats.json.written_times import quoted_times
from keyrange.formats.payloads import WrittenValues
from keyrange.model.value_forms import UnfitSchema

_TEXT: Final = pa.large_string()
_ESCAPED: Final = r'["\\\x00-\x1f]'


class JsonEncoder:
    """An `Encoder` of columns whose every value is JSON."""

    def __init__(self, kind: pa.DataType) -> None:
        """Raises UnfitSchema with the first column whose type no JSON is made of."""
        parts = kind if kinds.is_struct(kind) else [pa.field("", kind)]
        for each in parts:
            if not _is_writable(each.type):
                raise UnfitSchema(f"{part_at(each.name)} is {each.type}, of which no JSON is made")

    def write(self, column: pa.Array) -> WrittenValues:
        return WrittenValues(json_values(column), {})


def _is_writable(kind: pa.DataType) -> bool:
    if kinds.is_struct(kind):
        return all(_is_writable(field.type) for field in kind)
    if kinds.is_map(kind):
        return is_text(kind.key_type) and _is_writable(kind.item_type)
    if is_list(kind):
        return _is_writable(kind.value_type)
    tests = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    others = (kinds.is_date, kinds.is_timestamp, kinds.is_null, is_text, is_bytes)
    return any(test(kind) for test in (*tests, *others))


def _object(names: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
    """Fields that are null are left out."""
    if not names:
        return pa.array(["{}"] * rows, _TEXT)
    fields = [
        _joined(f",{json.dumps(name, ensure_ascii=False)}:", json_values(column))
        for name, column in zip(names, columns, strict=True)
    ]
    # With null_handling="skip" Arrow 26 leaves rows out of which all are null.
    inner = pc.binary_join_element_wise(*fields, _text(""), null_handling="replace")
    return _joined("{", pc.utf8_ltrim(inner, ","), "}")


def json_values(column: pa.Array) -> pa.Array:
    """The JSON of each value; null where it is null."""
    kind = column.type
    if kinds.is_struct(kind):
        names = [field.name for field in kind]
        found = _object(names, column.flatten(), len(column))
        return pc.if_else(column.is_valid(), found, pa.scalar(None, _TEXT))
    if kinds.is_map(kind):
        keys, items = json_values(column.keys), pc.fill_null(json_values(column.items), "null")
        entries = pc.binary_join_element_wise(keys, items, _text(":"))
        return _lists(column, entries, "{", "}")
    if is_list(kind):
        return _lists(column, pc.fill_null(json_values(column.values), "null"), "[", "]")
    return _plain(column).cast(_TEXT)


def _lists(column: pa.Array, values: pa.Array, opened: str, closed: str) -> pa.Array:
    """Those of a column, with other values in the places of its own."""
    ends = column.offsets.cast(pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(ends, values), _text(","))
    found = _joined(opened, joined, closed)
    return pc.if_else(column.is_valid(), found, pa.scalar(None, _TEXT))


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if is_text(kind):
        return _quoted(_escaped(column))
    if kinds.is_boolean(kind):
        return pc.if_else(column, "true", "false")
    if kinds.is_floating(kind):
        return _numbers(column)
    if kinds.is_timestamp(kind):
        return quoted_times(column)
    if kinds.is_date(kind):
        return _quoted(column.cast(pa.string()))
    if is_bytes(kind):
        texts = [each and f'"{b64encode(each).decode()}"' for each in column.to_pylist()]
        return pa.array(['""' if each == b"" else each for each in texts], _TEXT)
    if kinds.is_null(kind):
        return column.cast(_TEXT)
    return column.cast(pa.string())


def _numbers(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is not False:
        return texts
    infinite = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    others = pc.if_else(pc.is_nan(column), '"NaN"', infinite)
    return pc.if_else(finite, texts, others)


def _escaped(column: pa.Array) -> pa.Array:
    """Texts as they stand between quotes."""
    texts = column.cast(_TEXT)
    found = pc.match_substring_regex(texts, _ESCAPED)
    if not pc.any(found).as_py():
        return texts
    # Few of them, in most columns.
    at = np.flatnonzero(np.asarray(pc.fill_null(found, False)))
    mended = [json.dumps(each, ensure_ascii=False)[1:-1] for each in texts.take(at).to_pylist()]
    return pc.replace_with_mask(texts, pc.fill_null(found, False), pa.array(mended, _TEXT))


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


def _joined(*parts: Any) -> pa.Array:
    """Texts one behind the other; null where one is."""
    made = [_text(each) if isinstance(each, str) else each.cast(_TEXT) for each in parts]
    return pc.binary_join_element_wise(*made, _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, _TEXT)
