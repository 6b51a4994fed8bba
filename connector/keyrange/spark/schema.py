"""The Spark schema of the source: the JVM connector's, column for column, all nullable; and the
place of the key in the hash space, where asked for."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from keyrange.errors import error

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
    "keyHash": LongType(),
}


def source_schema(columns: Sequence[str]) -> StructType:
    """The schema of a DataFrame with these columns, in the order given."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def check_schema(given: StructType, columns: Sequence[str]) -> None:
    """Refuse a schema of the user's own: Spark takes it unchecked and fails in the first task."""
    own = source_schema(columns)
    if given != own:
        raise error(
            "INVALID_SCHEMA",
            f"the source's schema is {own.simpleString()}, not {given.simpleString()}",
        )
