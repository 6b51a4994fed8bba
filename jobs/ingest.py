"""Stream Kafka topics into a Delta table, every record exactly once.

    spark-submit \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        --properties-file conf/spark-defaults.conf \
        jobs/ingest.py --bootstrap-servers broker:9092 --topic orders \
        --table s3a://lake/orders --checkpoint s3a://lake/_checkpoints/orders

The table gets the source's columns: key, value, topic, partition, offset, timestamp, timestampType.
Any option of the source, `kafka.*` settings included, is passed with `--option name=value`. A value
`@FILE` is read from a file, so that passwords stay out of the process list. `keyrange` has to be
installed for the driver's and the executors' Python.

It runs until it is stopped (SIGTERM or Ctrl-C), or with `--available-now` until what is there has
been read. One line is logged for every batch.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keyrange import KeyRangeDataSource
from keyrange.cli.arguments import named_values
from keyrange.core.lag import read_query_lag
from keyrange.errors import KeyrangeError

log = logging.getLogger("ingest")

POLL_S = 0.5


def source_arguments(description: str) -> argparse.ArgumentParser:
    """What a job has to be told that streams topics into a table."""
    parser = argparse.ArgumentParser(
        description=description, epilog="`keyrange options` lists what --option takes."
    )
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--topic", required=True, metavar="TOPIC,...", help="topics to read")
    parser.add_argument(
        "--table", required=True, metavar="PATH|NAME", help="Delta table: a path, or a catalog name"
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="PATH", help="where Spark keeps the query's progress"
    )
    parser.add_argument(
        "--trigger",
        default="10 seconds",
        metavar="INTERVAL",
        help="time between two batches (default: %(default)s); '0 seconds': one after the other",
    )
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="read what is there now, in several batches where limits are set, and end",
    )
    parser.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="OFFSETS",
        help="where a new query starts: earliest, latest or JSON (default: %(default)s)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, such as maxOffsetsPerTrigger=100000 or "
        "kafka.security.protocol=SSL; VALUE may be @FILE",
    )
    return parser


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = source_arguments("Stream Kafka topics into a Delta table, every record exactly once.")
    parser.add_argument(
        "--text", action="store_true", help="store key and value as text instead of bytes"
    )
    return parser.parse_args(arguments)


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the source, those of `--option` last."""
    options = {
        "kafka.bootstrap.servers": arguments.bootstrap_servers,
        "subscribe": arguments.topic,
        "startingOffsets": arguments.starting_offsets,
    }
    try:
        return options | named_values(arguments.option)
    except KeyrangeError as failure:
        raise SystemExit(str(failure)) from None


def start(
    spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]
) -> StreamingQuery:
    """Start the query. The Delta sink remembers query and batch, so a batch is written once."""
    records: DataFrame = spark.readStream.format("keyrange").options(**options).load()
    if arguments.text:
        records = records.withColumns(
            {name: records[name].cast("string") for name in ("key", "value")}
        )
    writer = (
        records.writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=arguments.trigger)
    if "/" in arguments.table:
        return writer.start(arguments.table)
    return writer.toTable(arguments.table)


def batch_line(progress: Any) -> str:
    """What is logged of one batch: records, rate, lag."""
    report = json.loads(progress.json)
    records, duration_ms = report["numInputRows"], report.get("batchDuration", 0)
    rate = records / max(duration_ms, 1) * 1000
    progressed = read_query_lag(report)
    lags = [source.lag for source in progressed.sources] if progressed else []
    lag = sum(each.total_offsets for each in lags if each)
    return (
        f"batch {report['batchId']}: {records:,} records in {duration_ms / 1000:.2f} s "
        f"({rate:,.0f}/s), lag {lag:,}"
    )


class Follower:
    """Logs every batch once and counts the records."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last_batch_id = -1
        self.batches = 0
        self.records = 0

    def log_new(self) -> None:
        for progress in self._query.recentProgress:
            if progress.batchId > self._last_batch_id and progress.numInputRows > 0:
                log.info("%s", batch_line(progress))
                self.batches += 1
                self.records += progress.numInputRows
                self._last_batch_id = progress.batchId


def follow(query: StreamingQuery, stopping: list[int]) -> Follower:
    """Log batches until the query ends or a signal asks for it."""
    follower = Follower(query)
    while not query.awaitTermination(POLL_S):
        follower.log_new()
        if stopping:
            log.info("stopping on %s", signal.Signals(stopping[0]).name)
            query.stop()
    follower.log_new()
    return follower


Start = Callable[[SparkSession, argparse.Namespace, dict[str, str]], StreamingQuery]


def run_query(name: str, arguments: argparse.Namespace, start: Start) -> int:
    """Start a query and log its batches until it ends or a signal stops it; the exit code."""
    configure_logging()
    options = source_options(arguments)
    stopping: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 the signal's form
        stopping.append(number)

    spark = (
        SparkSession.builder.appName(name)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    # After the session: pyspark has a handler of its own for Ctrl-C, which would end the process.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, remember)
    began = time.monotonic()
    try:
        spark.dataSource.register(KeyRangeDataSource)
        follower = follow(start(spark, arguments, options), stopping)
        log.info(
            "ended: %s records in %s batches, %.1f s",
            f"{follower.records:,}",
            follower.batches,
            time.monotonic() - began,
        )
    except PySparkException as failure:
        log.error("%s", first_cause(str(failure)))
        return 1
    except (Py4JError, OSError) as failure:
        # spark-submit's JVM is gone: it was stopped, and the checkpoint tells where to go on.
        log.info("stopped with the driver's JVM (%s)", type(failure).__name__)
        return 143
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()
    return 0


def first_cause(text: str) -> str:
    """keyrange's own paragraph out of a Java and Python traceback, or the first line of it."""
    for line in text.splitlines():
        _, found, message = line.partition("Error: [")
        if found:
            return f"[{message}"
    return text.strip().splitlines()[0] if text.strip() else "the query failed without a message"


def configure_logging() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # Every call into the JVM is logged there, at INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)


def main() -> int:
    arguments = parse_arguments()
    return run_query(f"ingest {arguments.topic}", arguments, start)


if __name__ == "__main__":
    sys.exit(main())
