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
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from ingest import run_query, source_arguments


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = source_arguments("Run a function on every record, and keep its rows in a Delta table.")
    parser.add_argument(
        "--function", required=True, metavar="MODULE:NAME", help="what is called with each record"
    )
    parser.add_argument(
        "--schema",
        required=True,
        metavar="DDL",
        help='of its rows, such as "id long, price double"',
    )
    parser.add_argument(
        "--commit-table", required=True, metavar="PATH", help="Delta table of what is done"
    )
    return parser.parse_args(arguments)


def find_function(name: str) -> Callable[[Any], Any]:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as failure:
        raise SystemExit(f"--function {name}: {failure}") from None
    if not callable(found):
        raise SystemExit(f"--function {name}: it cannot be called")
    return found  # type: ignore[no-any-return]


def start(
    spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]
) -> StreamingQuery:
    function, schema, table = find_function(arguments.function), arguments.schema, arguments.table
    given = {"commitMode": "individual", "commitTable": arguments.commit_table, **options}

    def work(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001 the form that Spark calls
        rows = keyrange.process(batch, function, schema)
        # Written once, also where a batch runs again after a crash.
        writer = rows.write.format("delta").mode("append").options(**keyrange.transaction())
        if "/" in table:
            writer.save(table)
        else:
            writer.saveAsTable(table)

    records = spark.readStream.format("keyrange").options(**given).load()
    writer = records.writeStream.foreachBatch(
        keyrange.each_batch(work, given, arguments.checkpoint)
    ).option("checkpointLocation", arguments.checkpoint)
    if arguments.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=arguments.trigger).start()


def main() -> int:
    arguments = parse_arguments()
    return run_query(f"process {arguments.topic}", arguments, start)


if __name__ == "__main__":
    sys.exit(main())
