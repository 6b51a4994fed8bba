"""A `keyrange.job` as users run it, with what jobs/ingest.py and jobs/process.py are given."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from ingest import run_query, source_arguments
from process import find_function


def parse_arguments() -> argparse.Namespace:
    parser = source_arguments(__doc__ or "")
    parser.add_argument("--function")
    parser.add_argument("--schema")
    parser.add_argument("--commit-table")
    parser.add_argument("--keeps-state", action="store_true")
    parser.add_argument("--last", help="a second table, with the last row of each key")
    return parser.parse_args()


def start(
    spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]
) -> StreamingQuery:
    given, function = dict(options), None
    if arguments.function is not None:
        function = find_function(arguments.function)
        given |= {"commitMode": "individual", "commitTable": arguments.commit_table}
    if arguments.last is not None:
        return start_both(spark, arguments, given)
    state = {"seen": keyrange.ValueState("n long")} if arguments.keeps_state else None
    job = keyrange.job(given, function, arguments.schema, state=state)
    writer = job.into(arguments.table, arguments.checkpoint, spark=spark)
    return writer.trigger(processingTime=arguments.trigger).start()


def start_both(
    spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]
) -> StreamingQuery:
    """A row for each record, and the last one of each key."""
    work = find_function(arguments.function)

    def both(record: Any) -> Any:
        row = work(record)
        return {"rows": row, "last": row}

    job = keyrange.job(options, both, {"rows": arguments.schema, "last": arguments.schema})
    writer = job.into(
        {"rows": arguments.table, "last": arguments.last},
        arguments.checkpoint,
        keys={"last": ["key"]},
        spark=spark,
    )
    return writer.trigger(processingTime=arguments.trigger).start()


if __name__ == "__main__":
    arguments = parse_arguments()
    sys.exit(run_query(f"job {arguments.topic}", arguments, start))
