"""The columns of the tables of a job, as `keyrange.job` is given them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import struct_type
from keyrange.individual_commits.reported_outcomes import schema_of

Schema = str | StructType


def table_schemas(schema: Schema | Mapping[str, Schema]) -> dict[str, StructType]:
    """The columns of each table by its name, "" of the only one."""
    if not isinstance(schema, Mapping):
        return {"": _table_columns(schema)}
    wrong = [] if schema else ["schema names no table"]
    wrong += [
        f"schema names table {name!r}, and names are texts that are not empty"[:200]
        for name in schema
        if not isinstance(name, str) or not name
    ]
    if wrong:
        raise invalid_options(wrong)
    return {name: _table_columns(each) for name, each in schema.items()}


def _table_columns(schema: str | StructType) -> StructType:
    """The columns of a table, whose names differ in more than upper and lower case."""
    columns = schema_of(schema)
    names = [name.lower() for name in columns.names]
    if not names:
        raise invalid_options("schema names no column")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise invalid_options(f"schema names column {twice[0]!r} twice")
    for field in columns.jsonValue()["fields"]:
        try:
            struct_type({"fields": [field]})
        except KeyError as kind:
            text = (
                f"column {field['name']!r} of schema is of a type that a job cannot write: {kind}"
            )
            raise invalid_options(text) from None
    return columns
