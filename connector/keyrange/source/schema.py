"""The Spark schema of the source: the JVM connector's, column for column, all nullable; and the
place of the key in the hash space, where asked for. With option mapInArrow it is the function's."""

from __future__ import annotations

import json
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
from keyrange.model.value_forms import ValueForms
from keyrange.options import MapInArrow, SourceOptions

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


def mapped_schema(mapping: MapInArrow) -> StructType:
    """The schema of what a function of option mapInArrow yields."""
    return StructType.fromJson(json.loads(mapping.schema))


def frame_schema(options: SourceOptions) -> StructType:
    """The schema of the DataFrame."""
    if options.map_in_arrow is not None:
        return mapped_schema(options.map_in_arrow)
    return typed_schema(source_schema(options.chosen_columns), options.forms)


def typed_schema(source: StructType, forms: ValueForms) -> StructType:
    """Columns of the source as they are when keys and values are read."""
    if not forms.columns:
        return source
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

    from keyrange.values.reading import types_of

    types = types_of(
        forms, {each.name: each.type for each in to_arrow_schema(source, timezone="UTC")}
    )
    return StructType(
        [
            StructField(name, from_arrow_type(kind, prefer_timestamp_ntz=True))
            for name, kind in types.items()
        ]
    )


def check_schema(given: StructType, own: StructType) -> None:
    """Refuse a schema of the user's own: Spark takes it unchecked and fails in the first task."""
    if given != own:
        raise error(
            "INVALID_SCHEMA",
            f"the source's schema is {own.simpleString()}, not {given.simpleString()}",
        )
