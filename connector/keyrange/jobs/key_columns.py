"""The columns by which a table holds the last row of each key, as `into` is given them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from keyrange.errors import invalid_options
from keyrange.text.near_names import did_you_mean, near_names

# Values of which two are the same key or not, whoever compares them: NaN and -0.0 are not.
_TYPES: Final[tuple[type[DataType], ...]] = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


def key_columns(
    schema: StructType, keys: Sequence[str] | str | None, deletes: object
) -> tuple[str, ...]:
    """The names that are given as `keys`, one or several; none for None. `deletes`: the column that
    says which rows delete. Raises INVALID_OPTIONS."""
    if keys is None:
        if deletes is not None:
            raise invalid_options("deletes needs keys: it says which keys a row deletes")
        return ()
    found = (keys,) if isinstance(keys, str) else tuple(keys)
    wrong = [] if found else ["keys names no column"]
    wrong += [text for each in found if (text := _mistake(schema, each)) is not None]
    if len(set(found)) < len(found):
        wrong.append(f"keys names a column twice: {', '.join(map(str, found))}"[:200])
    if deletes is not None:
        wrong += _mistakes_of_deletes(schema, found, deletes)
    if wrong:
        raise invalid_options(wrong)
    return found


def _mistake(schema: StructType, name: object) -> str | None:
    if not isinstance(name, str) or name not in schema.names:
        return f"keys: {_no_column(schema, name)}"
    kind = schema[name].dataType
    if not isinstance(kind, _TYPES):
        return (
            f"keys: column {name!r} is {kind.simpleString()}, and a key is a text, bytes, a whole "
            "number, a decimal, a boolean, a date or a time"
        )
    return None


def _mistakes_of_deletes(schema: StructType, keys: tuple[str, ...], deletes: object) -> list[str]:
    if not isinstance(deletes, str) or deletes not in schema.names:
        return [f"deletes: {_no_column(schema, deletes)}"]
    kind = schema[deletes].dataType
    if not isinstance(kind, BooleanType):
        return [f"deletes: column {deletes!r} is {kind.simpleString()}, and would be boolean"]
    return [f"deletes: column {deletes!r} is a key"] if deletes in keys else []


def _no_column(schema: StructType, name: object) -> str:
    meant = did_you_mean(near_names(str(name), schema.names))
    text = f"the output has no column {str(name)[:100]!r}{meant}"
    return f"{text}; it has {', '.join(schema.names)}"[:500]
