"""The columns of records that a job reads, and those of its rows where it has no function."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from keyrange.errors import invalid_options
from keyrange.model.columns import COLUMNS, chosen_columns
from keyrange.options import SourceOptions
from keyrange.source.schema import source_schema, typed_schema


def schema_without_function(options: SourceOptions) -> StructType:
    """The columns of a table that takes records as they are, or what is in their values."""
    fields: list[StructField] = []
    for field in typed_schema(source_schema(columns_read(options)), options.forms):
        kind = field.dataType
        if field.name == "value" and isinstance(kind, StructType):
            fields += kind.fields
        else:
            fields.append(field)
    names = [field.name.lower() for field in fields]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        text = f"two columns {twice[0]!r}: see option columns, which can leave the source's out"
        raise invalid_options(f"key, value and the source's columns together have {text}")
    return StructType(fields)


def columns_read(options: SourceOptions) -> tuple[str, ...]:
    """What a job reads: a value whose fields are columns is among it, whatever `columns` says."""
    columns = options.columns
    if columns is None and options.forms.rows is not None:
        # Of a table that holds the rows of another one.
        columns = ("value",)
    names = chosen_columns(columns, options.include_headers, options.include_key_hash)
    if options.values.format == "raw":
        return names
    return tuple(name for name in COLUMNS if name in (*names, "value"))
