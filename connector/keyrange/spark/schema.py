"""The Spark schema of the source: the JVM connector's, column for column, all nullable."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from keyrange.errors import error


def source_schema(include_headers: bool) -> StructType:
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        schema.add("headers", ArrayType(header))
    return schema


def check_schema(given: StructType, include_headers: bool) -> None:
    """Refuse a schema of the user's own: Spark takes it unchecked and fails in the first task."""
    own = source_schema(include_headers)
    if given != own:
        raise error(
            "INVALID_SCHEMA",
            f"the source's schema is {own.simpleString()}, not {given.simpleString()}",
        )
