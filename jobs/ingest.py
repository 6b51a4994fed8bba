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
been read. One line is logged for every batch, as JSON with `--log-format json`; `--progress` keeps
what Spark reports of each batch, for `keyrange watch` and `keyrange report`.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keyrange import KeyRangeDataSource, ProgressListener
from keyrange.cli.arguments import named_values
from keyrange.errors import KeyrangeError
from keyrange.observing import logs, prometheus
from keyrange.observing.model import query_progress
from keyrange.observing.model.query_progress import QueryProgress

log = logging.getLogger("ingest")

POLL_S = 0.5
# How long to wait for what Spark still has to tell of a query that has ended.
TOLD_S = 10.0


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
    parser.add_argument(
        "--log-format",
        choices=[each.value for each in logs.LogFormat],
        help="how the job logs (default: what KEYRANGE_LOG says, else text)",
    )
    parser.add_argument(
        "--progress", metavar="FILE", help="append a line of JSON for every batch to this file"
    )
    parser.add_argument(
        "--metrics-port", type=int, default=0, metavar="PORT", help="serve Prometheus there"
    )
    parser.add_argument(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="at this address of the driver (default: %(default)s)",
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


class Follower:
    """Counts what the batches of a query held, and has each of them logged."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.batches = 0
        self.records = 0
        self.listener = ProgressListener(
            progress_file=arguments.progress,
            prometheus=bool(arguments.metrics_port),
            report=self._count,
            # Of a failure the job says more, and that it ended.
            log_ends=False,
        )

    def _count(self, progress: QueryProgress) -> None:
        self.batches += 1
        self.records += progress.records


def follow(query: StreamingQuery, follower: Follower, stopping: list[int]) -> None:
    """Wait until the query ends, or a signal asks for it. Raises what the query failed with."""
    run_id = str(query.runId)
    try:
        while not query.awaitTermination(POLL_S):
            if stopping:
                log.info("stopping on %s", signal.Signals(stopping[0]).name)
                query.stop()
    except PySparkException:
        follower.listener.wait_ended(run_id, TOLD_S)
        raise
    # Spark tells of batches a moment later, in a thread of its own.
    follower.listener.wait_ended(run_id, TOLD_S)


Start = Callable[[SparkSession, argparse.Namespace, dict[str, str]], StreamingQuery]


def run_query(name: str, arguments: argparse.Namespace, start: Start) -> int:
    """Start a query and log its batches until it ends or a signal stops it; the exit code."""
    logs.configure(arguments.log_format)
    options = source_options(arguments)
    follower = made_follower(arguments)
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
        spark.streams.addListener(follower.listener)
        follow(start(spark, arguments, options), follower, stopping)
        log.info(
            "ended: %s records in %s %s, %.1f s",
            f"{follower.records:,}",
            follower.batches,
            "batch" if follower.batches == 1 else "batches",
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


def made_follower(arguments: argparse.Namespace) -> Follower:
    try:
        if arguments.metrics_port:
            prometheus.serve(arguments.metrics_port, arguments.metrics_host)
        return Follower(arguments)
    except (KeyrangeError, OSError) as failure:
        raise SystemExit(str(failure)) from None


def first_cause(text: str) -> str:
    """keyrange's own paragraph out of a Java and Python traceback, or the first line of it."""
    first = query_progress.one_line(text.strip().partition("\n")[0])
    return query_progress.first_cause(text) or first or "the query failed without a message"


def main() -> int:
    arguments = parse_arguments()
    return run_query(f"ingest {arguments.topic}", arguments, start)


if __name__ == "__main__":
    sys.exit(main())
