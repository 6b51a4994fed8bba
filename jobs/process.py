"""Run a function on every record of Kafka topics, in order by key; its rows go to a Delta table.

    spark-submit \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        --properties-file conf/spark-defaults.conf \
        jobs/process.py --bootstrap-servers broker:9092 --topic orders \
        --function shop.orders:priced --schema "id long, price double" \
        --table s3a://lake/prices --checkpoint s3a://lake/_checkpoints/prices \
        --commit-table s3a://lake/prices_commits

`module:function` has to be importable where the executors run. It is called with one record (topic,
partition, offset, key, value, timestamp, deliveries) and returns a row, several, or None. When it
raises, the record is tried again later, and records of its key wait for it; after the last try it
goes to the dead letters (`keyrange deadletters list`). `keyrange commits show` draws how far each
key range is. Options of the source, `maxDeliveries` and `redelivery.backoff` among them, are passed
with `--option name=value`. Each row is in the table once, whatever was killed on the way.

A run with `--available-now` that leaves records which are neither done nor dead, or that does none
and gives some up, ends with exit code 3, and its last line says how many; `maxFailureRatio` stops a
query when too many fail.

With `--written-by keyrange` the tasks that read call the function and write the table's files
(`keyrange.job`). Without `--commit-table` such a job commits whole batches: a record for which the
function raises then fails the query.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import keyrange
from ingest import (
    TABLE_FLAGS,
    Started,
    run_query,
    source_arguments,
    table_settings,
    with_trigger,
)
from keyrange.errors import invalid_options
from keyrange.individual_commits.reported_outcomes import schema_of
from keyrange.jobs.named_function import named_function


def process_arguments(description: str, needs_commits: bool = True) -> argparse.ArgumentParser:
    """What a job has to be told that works on records one by one."""
    parser = source_arguments(description)
    parser.add_argument(
        "--commit-table",
        required=needs_commits,
        metavar="PATH",
        help="Delta table of what is done",
    )
    parser.add_argument(
        "--written-by",
        choices=("spark", "keyrange"),
        default="spark",
        help="who writes the table: keyrange calls the function where records are read and writes "
        "each row once, to the path of a table (default: %(default)s)",
    )
    return parser


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = process_arguments(
        "Run a function on every record, and keep its rows in a table.", needs_commits=False
    )
    parser.add_argument(
        "--function", required=True, metavar="MODULE:NAME", help="what is called with each record"
    )
    parser.add_argument(
        "--schema",
        required=True,
        metavar="DDL",
        help='of its rows, such as "id long, price double"',
    )
    return parser.parse_args(arguments)


def find_function(name: str) -> Callable[[Any], Any]:
    try:
        return named_function(name)
    except ValueError as failure:
        raise SystemExit(f"--function {failure}") from None


def start_with(
    function: Callable[[Any], Any],
    schema: str,
    spark: SparkSession,
    arguments: argparse.Namespace,
    options: dict[str, str],
) -> Started:
    """Start a query that calls a function with each record and appends its rows to the table."""
    table = arguments.table
    if arguments.written_by == "keyrange":
        job = keyrange.job(options, function, schema)
        into = job.into(table, arguments.checkpoint, **table_settings(arguments), spark=spark)
        return with_trigger(into, arguments).start(), into.written_by
    if table_settings(arguments):
        raise invalid_options(f"{TABLE_FLAGS} need --written-by keyrange")
    if not arguments.commit_table:
        raise invalid_options("--written-by spark needs --commit-table")
    # Before the first batch needs it.
    columns = schema_of(schema)

    def work(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001 the form that Spark calls
        rows = keyrange.process(batch, function, columns)
        # Written once, also where a batch runs again after a crash.
        writer = rows.write.format("delta").mode("append").options(**keyrange.transaction())
        if "/" in table:
            writer.save(table)
        else:
            writer.saveAsTable(table)

    records = spark.readStream.format("keyrange").options(**options).load()
    writer = records.writeStream.foreachBatch(
        keyrange.each_batch(work, options, arguments.checkpoint)
    ).option("checkpointLocation", arguments.checkpoint)
    return keyrange.short_errors(with_trigger(writer, arguments).start()), "Spark's Delta"


def main() -> int:
    arguments = parse_arguments()
    # Before the session, which takes its time.
    function = find_function(arguments.function)
    start = partial(start_with, function, arguments.schema)
    return run_query(f"process {arguments.topic}", arguments, start)


if __name__ == "__main__":
    sys.exit(main())
