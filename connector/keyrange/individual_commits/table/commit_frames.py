"""The commit table for SQL: its blobs as rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from keyrange.errors import invalid_options
from keyrange.individual_commits.table.blobs_for_sql import unnest_done, unnest_pending
from keyrange.individual_commits.table.commit_schema import SCHEMA

_READ: Final = ("group", "source_id", "commit_seq", "topic", "partition", "lo", "hi", "done")
_WAYS: Final = {"done": unnest_done, "pending": unnest_pending}


def commits(table: DataFrame, what: str = "pending") -> DataFrame:
    """What the rows of a commit table say, by record or range: with "pending" a row for each record
    that is not done, with "done" one for each done range above the committed offset, half-open.

    `table` is the commit table as Spark reads it, filtered at will; rows of several commits are
    told apart by column commit_seq.
    """
    if what not in _WAYS:
        raise invalid_options([f"what must be pending or done, and is {what[:40]!r}"])
    form = pa.schema([SCHEMA.field(name) for name in _READ])
    unnest = _WAYS[what]

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(form)
            yield from unnest(rows).to_batches()

    schema: Any = from_arrow_schema(unnest(form.empty_table()).schema)
    rows = table.where("topic IS NOT NULL").select(*_READ)
    return rows.mapInArrow(work, schema)
