"""The commit table for SQL: its lists as rows of a DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from keyrange.errors import invalid_options
from keyrange.individual_commits.table.state_rows import MS_MAX, MS_MIN
from keyrange.work.model.outcome import Cause

_KEPT: Final = ("group", "source_id", "commit_seq", "topic", "partition", "lo", "hi")
_CAUSES: Final = " ".join(f"WHEN {int(each)} THEN '{each.name.lower()}'" for each in Cause)


def _time(name: str) -> str:
    """Null for what SQL cannot show as a time."""
    milliseconds = f"record.{name}_ms"
    within = f"{milliseconds} BETWEEN {MS_MIN} AND {MS_MAX}"
    return f"CASE WHEN {within} THEN timestamp_millis({milliseconds}) END AS {name}"


# The rows of each list, by `record` and its place `at`, and what is said of each.
_WAYS: Final = {
    "done": (
        "record.offset + 1 AS from_offset",
        "coalesce(get(pending, at + 1).offset, scanned) AS until_offset",
    ),
    "pending": (
        *("record.offset", "record.key_hash", "record.deliveries"),
        f"CASE record.cause {_CAUSES} END AS cause",
        *map(_time, ("since", "due")),
    ),
}


def commits(table: DataFrame, what: str = "pending") -> DataFrame:
    """What the rows of a commit table say, by record or range: with "pending" a row for each record
    that is not done, with "done" one for each done range above the committed offset, half-open.

    `table` is the commit table as Spark reads it, filtered at will; rows of several commits are
    told apart by column commit_seq.
    """
    if what not in _WAYS:
        raise invalid_options(f"what must be pending or done, and is {what[:40]!r}")
    records = table.selectExpr(*_KEPT, "scanned", "pending", "posexplode(pending) AS (at, record)")
    found = records.selectExpr(*_KEPT, *_WAYS[what])
    return found.where("from_offset < until_offset") if what == "done" else found
