"""Rows by the partition that they belong to, and what Delta's log and directories call it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.storage.model.partition_columns import PartitionColumn, Unit

# The values of the partition columns as the log has them, in the order of the columns.
Values = tuple[str | None, ...]

_NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
# Filesystems take names of 255 bytes, stores of objects paths of 1,024.
_SEGMENT_MAX: Final = 128
# Java writes numbers between these without an exponent.
_JAVA_PLAIN_MIN, _JAVA_PLAIN_MAX = 1e-3, 1e7
_UNIT_TYPES: Final = {Unit.DATE: pa.date32(), Unit.HOUR: pa.int32()}


def computes(column: PartitionColumn, schema: pa.Schema) -> bool:
    """Whether rows of a schema have what a column is computed of."""
    if schema.get_field_index(column.source) < 0:
        return False
    kind = schema.field(column.source).type
    return pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and column.unit is Unit.DATE)


def table_schema(schema: pa.Schema, columns: Sequence[PartitionColumn]) -> pa.Schema:
    """The columns of a table that takes rows of `schema`. Raises INVALID_OPTIONS."""
    whole = schema
    for each in columns:
        there = schema.get_field_index(each.name) >= 0
        if each.unit is None and not there:
            raise invalid_options(f"partition_by: rows have no column {each.name}")
        if each.unit is None:
            kind = schema.field(each.name).type
            if pa.types.is_nested(kind) or pa.types.is_binary(kind):
                text = "partition columns are text, numbers, booleans, dates or timestamps"
                raise invalid_options(f"partition_by: column {each.name} is {kind}, and {text}")
        else:
            if there:
                raise invalid_options(f"partition_by: rows have a column {each.name} already")
            if not computes(each, schema):
                raise invalid_options(f"partition_by: {each.source} is no timestamp of the rows")
            whole = whole.append(pa.field(each.name, _UNIT_TYPES[each.unit]))
    if columns and len(whole) == len(columns):
        raise invalid_options("partition_by names all columns, and files need one")
    return whole


def with_computed(rows: pa.RecordBatch, columns: Sequence[PartitionColumn]) -> pa.RecordBatch:
    """Rows with the columns that are computed of others, as `table_schema` has them."""
    for each in columns:
        if each.unit is not None:
            rows = rows.append_column(each.name, _column(rows, each))
    return rows


def split(
    rows: pa.RecordBatch, columns: Sequence[PartitionColumn]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each partition, in their order, without the partition columns."""
    plain = {each.name for each in columns if each.unit is None}
    kept = rows.select([name for name in rows.schema.names if name not in plain])
    texts: list[list[str | None]] = [[]]
    code = np.zeros(rows.num_rows, np.int64)
    for each in columns:
        encoded = _column(rows, each).dictionary_encode(null_encoding="encode")
        # Two values may have one text, as null and "" do.
        numbers: dict[str | None, int] = {}
        told = [numbers.setdefault(text, len(numbers)) for text in _texts(encoded.dictionary)]
        number_of = np.array(told, np.int64)
        own = list(numbers)
        # Codes are dense again after each column, so that their product cannot overflow.
        wide = code * len(own) + number_of[encoded.indices.to_numpy()]
        found, code = np.unique(wide, return_inverse=True)
        texts = [[*texts[at // len(own)], own[at % len(own)]] for at in found.tolist()]
    if len(texts) == 1:
        yield tuple(texts[0]), kept
        return
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code, minlength=len(texts))).tolist()
    for at, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        # Each takes rows of its own: a slice of all would hold all of them in memory.
        yield tuple(texts[at]), kept.take(pa.array(order[start:end]))


def directory_of(columns: Sequence[PartitionColumn], values: Values) -> str:
    """The directory of a partition, with a slash at its end; "" where there are no columns.

    Escaped are all characters that URIs escape, as delta-rs does it. The log escapes the path once
    more, which delta-rs does when it writes the log. Readers take values from the log and not from
    the path, so what is too long for the name of a directory ends in a hash of it."""
    names = (quote(each.name, safe="") for each in columns)
    texts = (_NULL_DIRECTORY if each is None else quote(each, safe="") for each in values)
    segments = (f"{name}={text}" for name, text in zip(names, texts, strict=True))
    return "".join(f"{_shortened(each)}/" for each in segments)


def _shortened(segment: str) -> str:
    if len(segment) <= _SEGMENT_MAX:
        return segment
    # No character is cut within its escape.
    begin = segment[: _SEGMENT_MAX - 17].rpartition("%")[0] or segment[: _SEGMENT_MAX - 17]
    return f"{begin}~{hashlib.sha256(segment.encode()).hexdigest()[:16]}"


def _column(rows: pa.RecordBatch, column: PartitionColumn) -> pa.Array:
    if column.unit is None:
        return rows.column(column.name)
    source = rows.column(column.source)
    if pa.types.is_timestamp(source.type):
        source = source.cast(pa.timestamp("us", "UTC" if source.type.tz else None))
    if column.unit is Unit.HOUR:
        import pyarrow.compute as pc

        return pc.hour(source).cast(pa.int32())
    return source.cast(pa.date32())


def _texts(values: pa.Array) -> list[str | None]:
    """Values as the log has them. An empty text is null, as Delta has it."""
    known = iter(_known_texts(values.drop_null()))
    return [next(known) if is_known else None for is_known in values.is_valid().to_pylist()]


def _known_texts(values: pa.Array) -> Iterable[str | None]:
    """Python's own dates end with the year 9999, and a producer that counts microseconds for
    milliseconds is far beyond it."""
    kind = values.type
    if pa.types.is_floating(kind):
        return map(_float_text, values.to_numpy(zero_copy_only=False))
    is_time = pa.types.is_timestamp(kind)
    if not is_time and not pa.types.is_date32(kind):
        return map(_text, values.to_pylist())
    if is_time:
        values = values.cast(pa.timestamp("us", kind.tz), safe=False)
    dated = map(_date_text, np.datetime_as_string(values.to_numpy(zero_copy_only=False)).tolist())
    if is_time and kind.tz:
        # With its zone: without it readers take the time for one of their session's zone.
        return (text + "Z" for text in dated)
    return (text.replace("T", " ") for text in dated)


def _date_text(iso: str) -> str:
    """With its year as Spark writes it: of four digits at least, and signed where they are more or
    it is before the year 0."""
    sign = "-" if iso.startswith("-") else ""
    year, rest = iso.removeprefix("-").split("-", 1)
    return f"{sign or '+' * (len(year) > 4)}{year:0>4}-{rest}"


def _float_text(value: np.floating[Any]) -> str:
    """As Java writes it, and so Spark: by another text of one value a file would be in a partition
    of its own."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _JAVA_PLAIN_MIN <= abs(value) < _JAVA_PLAIN_MAX:
        return np.format_float_positional(value, trim="0")
    text = np.format_float_scientific(value, trim="0", exp_digits=1)
    return text.replace("e+", "e").replace("e", "E")


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)
