"""A `keyrange.job` as users run it, with what jobs/ingest.py and jobs/process.py are given."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

import keyrange
from ingest import Started, run_query, source_arguments
from nemesis.windows import job_of
from nemesis.work import KEY, N, deletes, is_copied
from process import find_function


def parse_arguments() -> argparse.Namespace:
    parser = source_arguments(__doc__ or "")
    parser.add_argument("--function")
    parser.add_argument("--schema")
    parser.add_argument("--commit-table")
    parser.add_argument("--keeps-state", action="store_true")
    parser.add_argument("--time", choices=("session", "timers"), help="which windows to make")
    parser.add_argument("--fields", type=int, help="of the values' added ones, how many to take")
    parser.add_argument("--copies", help="one more table, with the rows of some records")
    parser.add_argument("--copies-topic", help="the same as a topic")
    parser.add_argument("--last", help="one more table, with the last row of each key")
    parser.add_argument("--merges", choices=("spark", "delta-rs"), default="spark")
    parser.add_argument("--evolve", choices=("none", "add"), default="none")
    return parser.parse_args()


def start(spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]) -> Started:
    given, function, schema = dict(options), None, None
    if arguments.function is not None:
        function, schema = of_a_record(arguments), arguments.schema
    if arguments.commit_table is not None:
        given |= {"commitMode": "individual", "commitTable": arguments.commit_table}
    parts: dict[str, Any] = {}
    if arguments.keeps_state:
        parts = {"state": {"seen": keyrange.ValueState("n long")}}
    if arguments.time is not None:
        parts = job_of(arguments.time)
    table, more = arguments.table, {"evolve": arguments.evolve}
    if (beside := tables_beside(arguments)) and function is not None:
        table = {"rows": table, **beside}
        schema = dict.fromkeys(table, schema)
        if arguments.copies_topic:
            schema["copies"] = "key string, value string"
        if "last" in table:
            schema["last"] += ", gone boolean"
            more |= {"keys": {"last": ["key"]}, "deletes": {"last": "gone"}}
        function = spread(function, list(table), bool(arguments.copies_topic))
    job = keyrange.job(given, **{"function": function, "schema": schema, **parts})
    writer = job.into(table, arguments.checkpoint, spark=spark, **more)
    return writer.trigger(processingTime=arguments.trigger).start(), writer.written_by


def tables_beside(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that are written beside the first one, by their names, and the topic."""
    given = {name: getattr(arguments, name) for name in ("copies", "last")}
    if arguments.copies_topic:
        given["copies"] = keyrange.Topic(arguments.copies_topic)
    return {name: path for name, path in given.items() if path is not None}


def of_a_record(arguments: argparse.Namespace) -> Callable[..., Any]:
    function = find_function(arguments.function)
    fields = arguments.fields
    if fields is None:
        return function
    return lambda record: function(record, fields)


def spread(
    function: Callable[[Any], Any], tables: Sequence[str], to_topic: bool
) -> Callable[[Any], Any]:
    """A row for each record, with what becomes of it in the tables beside, or in a topic."""

    def rows(record: Any) -> Any:
        row = function(record)
        n = row[N]
        found = {"rows": row, "last": (*row, deletes(n))}
        if is_copied(n):
            found["copies"] = (row[KEY], json.dumps(row)) if to_topic else row
        return {name: each for name, each in found.items() if name in tables}

    return rows


if __name__ == "__main__":
    arguments = parse_arguments()
    if arguments.merges == "delta-rs":
        # One that has no Delta; what run_query asks for comes too late for that.
        SparkSession.builder.getOrCreate()
    sys.exit(run_query(f"job {arguments.topic}", arguments, start))
