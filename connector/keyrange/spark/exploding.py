"""The rows of a commit table as rows of single holes and done ranges, for SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

_KEPT: Final = ("group", "source_id", "commit_seq", "topic", "partition", "lo", "hi")
_KEPT_TYPES: Final = (
    "`group` string, source_id string, commit_seq bigint, topic string, partition int, "
    "lo bigint, hi bigint"
)


def done_ranges(commits: DataFrame) -> DataFrame:
    """A row for each range of offsets [from_offset, until_offset) that is done above the committed
    offset of its key range.

    `commits` are rows of a commit table, such as `spark.read.format("delta").load(table)`, of one
    `commit_seq` or of several.
    """
    from keyrange.delta.explode import explode_done

    return _exploded(commits, explode_done, "from_offset bigint, until_offset bigint")


def holes(commits: DataFrame) -> DataFrame:
    """A row for each record that was handed out and is not done. `commits` as for `done_ranges`."""
    from keyrange.delta.explode import explode_holes

    return _exploded(
        commits,
        explode_holes,
        "offset bigint, place bigint, deliveries int, cause string, since timestamp, due timestamp",
    )


def _exploded(
    commits: DataFrame, explode: Callable[[pa.Table], pa.Table], columns: str
) -> DataFrame:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from explode(pa.Table.from_batches([batch])).to_batches()

    wanted = commits.select(*_KEPT, "done").where("topic IS NOT NULL")
    return wanted.mapInArrow(rows, f"{_KEPT_TYPES}, {columns}")
