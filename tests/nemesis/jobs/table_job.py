"""A `keyrange.job` as users run it, with what jobs/ingest.py and jobs/process.py are given."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pyspark.sql import SparkSession

import keyrange
from ingest import Started, run_query, source_arguments
from keyrange.individual_commits import table_output, topic_output
from keyrange.sending.model import shards
from nemesis.rows import Parts, calls
from nemesis.windows import job_of


def parse_arguments() -> argparse.Namespace:
    parser = source_arguments(__doc__ or "")
    parser.add_argument("--commit-table")
    parser.add_argument("--rows", action="store_true", help="a row of each record")
    parser.add_argument("--keeps-state", action="store_true", help="records of a key are counted")
    parser.add_argument(
        "--time", choices=("session", "timers", "clock"), help="which windows to make"
    )
    parser.add_argument("--late", default="drop", help="what becomes of late records")
    parser.add_argument("--fields", type=int, help="of the values' added ones, how many to take")
    parser.add_argument("--copies", help="one more table, with the rows of some records")
    parser.add_argument("--copies-topic", help="the same as a topic")
    parser.add_argument("--only-topic", action="store_true", help="all rows go there, to no table")
    parser.add_argument("--sends", choices=("driver", "tasks"), default="driver")
    parser.add_argument("--last", help="one more table, with the last row of each key")
    parser.add_argument("--merges", choices=("spark", "driver"), default="spark")
    parser.add_argument("--evolve", choices=("none", "add"), default="none")
    return parser.parse_args()


def start(spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]) -> Started:
    given = dict(options)
    if arguments.commit_table is not None:
        given |= {"commitMode": "individual", "commitTable": arguments.commit_table}
    called = {} if arguments.time is None else job_of(arguments.time, arguments.late)
    table, more = arguments.table, {"evolve": arguments.evolve}
    if arguments.rows:
        times = arguments.time is not None, arguments.time == "clock"
        parts = Parts(arguments.keeps_state, *times, arguments.fields)
        tables = tables_of(arguments)
        if "last" in tables:
            more |= {"keys": {"last": ["key"]}, "deletes": {"last": "gone"}}
        topics = [name for name, each in tables.items() if isinstance(each, keyrange.Topic)]
        table = tables if len(tables) > 1 else tables["rows"]
        called |= calls(parts, list(tables), topics)
    writer = keyrange.job(given, **called).into(table, arguments.checkpoint, spark=spark, **more)
    return writer.trigger(processingTime=arguments.trigger).start(), writer.written_by


def tables_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that are written, by their names, and the topic."""
    if arguments.only_topic:
        return {"rows": keyrange.Topic(arguments.copies_topic)}
    given = {"rows": arguments.table, "copies": arguments.copies, "last": arguments.last}
    if arguments.copies_topic:
        given["copies"] = keyrange.Topic(arguments.copies_topic)
    return {name: path for name, path in given.items() if path is not None}


if __name__ == "__main__":
    arguments = parse_arguments()
    if arguments.merges == "spark":
        table_output.BYTES_MAX = 0
    if arguments.sends == "tasks":
        # Several of them, although batches are small here.
        topic_output._SMALL_BYTES, shards._BYTES_PER_SENDER = 0, 100
    sys.exit(run_query(f"job {arguments.topic}", arguments, start))
