"""Stream Kafka topics into a Delta table, every record exactly once.

    spark-submit \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        --properties-file conf/spark-defaults.conf \
        jobs/ingest.py --bootstrap-servers broker:9092 --topic orders \
        --table s3a://lake/orders --checkpoint s3a://lake/_checkpoints/orders

The table gets the source's columns: key, value, topic, partition, offset, timestamp, timestampType;
with `--option valueFormat=json --option valueSchema="id bigint, name string"` the fields of values
in the place of value. Any option of the source, `kafka.*` settings included, is passed with
`--option name=value`. A value `@FILE` is read from a file, so that passwords stay out of the
process list. `keyrange` has to be installed for the driver's and the executors' Python.

The tasks that read write the table's files, or hand their rows to Delta where the table has rules
to which files do not keep (`keyrange.job`). Where neither is possible, or the table is named as in
a catalog, Spark's Delta sink writes it. The log says why. A checkpoint goes on as it began.

It runs until it is stopped (SIGTERM or Ctrl-C), or with `--available-now` until what is there has
been read. One line is logged for every batch, as JSON with `--log-format json`; `--progress` keeps
what Spark reports of each batch, for `keyrange watch` and `keyrange report`.

The exit code is 0, or 1 for an error, 2 for a wrong command line, 143 if the JVM was stopped. It is
3 if a run with `--available-now` leaves records that are neither done nor dead, or does no record
and gives some up (`--option commitMode=individual` or `badValues=deadLetter`); the last line of the
log says how many, as a warning if any is not done.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from keyrange import ProgressListener, register
from keyrange.cli.arguments import named_values
from keyrange.cli.exit_codes import ExitCode
from keyrange.embedded.jars import java_executable
from keyrange.errors import KeyrangeError, invalid_options
from keyrange.jobs.delta_jars import check_delta
from keyrange.jobs.run_summary import is_of_a_job, pending_records
from keyrange.jobs.table_writer import TableWriter
from keyrange.observing import exporters, logs
from keyrange.observing.model.failure_causes import cause_of
from keyrange.observing.model.query_progress import QueryProgress
from keyrange.options import SourceOptions, parse_options
from keyrange.options.commits import IS_PATH

log = logging.getLogger("ingest")
_Writer = TypeVar("_Writer", DataStreamWriter, TableWriter)
Started = tuple[StreamingQuery, str]

POLL_S = 0.5
# How long to wait for what Spark still has to tell of a query that has ended.
TOLD_S = 10.0
TABLE_FLAGS = "--partition-by, --compression and --optimize-every"
# With these of a table or checkpoint Spark can go on where Python on the driver cannot.
UNSUITABLE = {"SINK_UNSUITABLE", "SINK_TYPES_DIFFER", "SINK_UNWRITABLE"}
UNSUITABLE |= {"PACKAGE_NOT_FOUND", "INVALID_CHECKPOINT_PATH"}


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
    add_table_arguments(parser)
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


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    table = parser.add_argument_group("of a table that keyrange writes")
    table.add_argument(
        "--partition-by",
        action="append",
        metavar="COLUMN",
        help="of a new table: a column, or date(COLUMN) or hour(COLUMN) of a timestamp; may be "
        "given several times",
    )
    table.add_argument(
        "--compression", choices=("snappy", "zstd"), help="of its files (default: snappy)"
    )
    table.add_argument(
        "--optimize-every",
        type=int,
        metavar="BATCHES",
        help="run Delta's OPTIMIZE after every so many batches (default: never)",
    )


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = source_arguments("Stream Kafka topics into a Delta table, every record exactly once.")
    parser.add_argument(
        "--text",
        action="store_true",
        help="store key and value as text instead of bytes; Spark writes the table then",
    )
    parser.add_argument(
        "--written-by",
        choices=("keyrange", "spark"),
        default="keyrange",
        help="who writes the table, where keyrange can (default: %(default)s)",
    )
    return parser.parse_args(arguments)


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the source, those of `--option` last."""
    commit_table = getattr(arguments, "commit_table", None)
    individual = {"commitMode": "individual", "commitTable": commit_table} if commit_table else {}
    options = individual | {
        "kafka.bootstrap.servers": arguments.bootstrap_servers,
        "subscribe": arguments.topic,
        "startingOffsets": arguments.starting_offsets,
    }
    try:
        return options | named_values(arguments.option)
    except KeyrangeError as failure:
        raise SystemExit(str(failure)) from None


def start(spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]) -> Started:
    """Start the query, and say who writes its table: each record is there once, whoever does.

    Raises INVALID_OPTIONS where options are for tables that keyrange writes, and Spark writes it.
    """
    writer, why = job_writer(spark, arguments, options)
    if writer is not None:
        return with_trigger(writer, arguments).start(), writer.written_by
    log.info("Spark writes the table, and not the tasks that read: %s", why)
    check_delta()
    if table_settings(arguments):
        raise invalid_options(f"{TABLE_FLAGS} are not for Spark, which writes: {why}")
    return start_sink(spark, arguments, options), "Spark's Delta sink"


def job_writer(
    spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]
) -> tuple[TableWriter | None, str]:
    """What starts a job whose tasks write the table, or why Spark has to write it."""
    parsed = parse_options(options, "stream")
    if why := why_spark(arguments, parsed):
        return None, why
    of_a_job = None
    try:
        of_a_job = is_of_a_job(arguments.checkpoint, parsed.commits.revealed_storage())
        if of_a_job is False:
            return None, "it has written this query's table so far"
        job = keyrange.job(options)
        settings = table_settings(arguments)
        return job.into(arguments.table, arguments.checkpoint, **settings, spark=spark), ""
    except KeyrangeError as failure:
        # A job that has begun goes on as one.
        if of_a_job or failure.condition.name not in UNSUITABLE:
            raise
        return None, failure.message


def why_spark(arguments: argparse.Namespace, options: SourceOptions) -> str:
    """Why Spark has to write the table, by the arguments alone; "" where they do not say so."""
    if arguments.written_by == "spark":
        return "--written-by=spark"
    if not IS_PATH.match(arguments.table):
        return f"{arguments.table} is neither an absolute path nor a URI"
    if arguments.text:
        return "--text changes the types of columns"
    if options.map_in_arrow is not None:
        return "option mapInArrow makes the rows"
    return ""


def table_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `into` is told of the table, as far as it was given."""
    names = ("partition_by", "compression", "optimize_every")
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def start_sink(
    spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]
) -> StreamingQuery:
    """The Delta sink remembers query and batch, so a batch is written once."""
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
    writer = with_trigger(writer, arguments)
    start = writer.start if "/" in arguments.table else writer.toTable
    return keyrange.short_errors(start(arguments.table))


def with_trigger(writer: _Writer, arguments: argparse.Namespace) -> _Writer:
    if arguments.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=arguments.trigger)


class Follower:
    """Counts what the batches of a query held, and has each of them logged."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.written_by = ""
        self.batches = self.records = 0
        self.done = self.dead = 0  # where single records may be given up
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
        if progress.result is not None:
            self.done += progress.result.done
            self.dead += progress.result.dead

    def summary(self, pending: int | None) -> str:
        """What the run came to; `pending` records are neither done nor dead."""
        many = "es" * (self.batches != 1)
        words = [f"ended: {self.records:,} records in {self.batches} batch{many}"]
        if pending is not None or self.dead:
            words += [f"{self.done:,} done", f"{pending or 0:,} pending", f"{self.dead:,} dead"]
        words += [f"written by {self.written_by}"] if self.written_by else []
        return ", ".join(words)


def follow(query: StreamingQuery, follower: Follower, stopping: list[int]) -> None:
    """Wait until the query ends, or a signal asks for it. Raises what the query failed with."""
    run_id = str(query.runId)
    try:
        while not query.awaitTermination(POLL_S):
            if stopping:
                log.info("stopping on %s", signal.Signals(stopping[0]).name)
                query.stop()
    except (PySparkException, KeyrangeError):
        follower.listener.wait_ended(run_id, TOLD_S)
        raise
    # Spark tells of batches a moment later, in a thread of its own.
    follower.listener.wait_ended(run_id, TOLD_S)


Start = Callable[[SparkSession, argparse.Namespace, dict[str, str]], Started]


def run_query(name: str, arguments: argparse.Namespace, start: Start) -> int:
    """Start a query and log its batches until it ends or a signal stops it; the exit code."""
    logs.configure(arguments.log_format)
    options = source_options(arguments)
    follower = made_follower(arguments)
    stopping: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 the signal's form
        stopping.append(number)

    try:
        # Before the session, which takes its time and tells at length of each class that it misses.
        parse_options(options, "stream")
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            # Without spark-submit, which has a JVM already: pyspark says only that it exited.
            java_executable()
        if getattr(arguments, "written_by", "") == "spark":
            check_delta()
    except KeyrangeError as failure:
        log.error("%s", failure)
        return ExitCode.ERROR
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
        register(spark)
        spark.streams.addListener(follower.listener)
        query, follower.written_by = start(spark, arguments, options)
        follow(query, follower, stopping)
        pending = pending_records(parse_options(options, "stream").commits, arguments.checkpoint)
        level = logging.WARNING if pending or follower.dead else logging.INFO
        log.log(level, "%s, %.1f s", follower.summary(pending), time.monotonic() - began)
        # What is stopped from outside is not to come to an end.
        nothing_done = follower.dead and not follower.done
        if (pending or nothing_done) and arguments.available_now and not stopping:
            return ExitCode.NOT_DONE
    except (PySparkException, KeyrangeError, Py4JJavaError) as failure:
        # A class that the JVM lacks, or has in another version, is an error of Py4J.
        try:
            log.error("%s", cause_of(str(failure)) or "the query failed without a message")
        except Py4JError as gone:
            return stopped(gone)
        return ExitCode.ERROR
    except (Py4JError, OSError) as failure:
        return stopped(failure)
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()
    return ExitCode.SUCCESS


def stopped(failure: Exception) -> int:
    """spark-submit's JVM is gone: it was stopped, and the checkpoint tells where to go on."""
    log.info("stopped with the driver's JVM (%s)", type(failure).__name__)
    return ExitCode.TERMINATED


def made_follower(arguments: argparse.Namespace) -> Follower:
    try:
        if arguments.metrics_port:
            exporters.serve(arguments.metrics_port, arguments.metrics_host)
        return Follower(arguments)
    except (KeyrangeError, OSError) as failure:
        raise SystemExit(str(failure)) from None


def main() -> int:
    arguments = parse_arguments()
    return run_query(f"ingest {arguments.topic}", arguments, start)


if __name__ == "__main__":
    sys.exit(main())
