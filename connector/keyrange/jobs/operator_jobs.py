"""Windows, deduplication and the last rows in the place of a job's function."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.model.columns import COLUMNS
from keyrange.options import SourceOptions
from keyrange.source.schema import source_schema, typed_schema
from keyrange.values.forms import value_forms
from keyrange.windowing.operators import JobParts, Operator, parts_of


def parts_of_job(
    options: SourceOptions, chosen: Sequence[str], operator: Operator, time: object, **given: object
) -> tuple[JobParts, StructType]:
    """What an operator makes a job of, and the columns of its table. `chosen`, `time` and `given`
    as of `keyrange.windowing.operators.parts_of`. Raises INVALID_OPTIONS."""
    read = typed_schema(source_schema(COLUMNS), value_forms(options))
    found = parts_of(operator, to_arrow_schema(read, timezone="UTC"), chosen, time, **given)
    schema = from_arrow_schema(found.schema, prefer_timestamp_ntz=True)
    return found, schema.toNullable()
