"""Whole queries of two sides with state and time: keyrange's jobs with individual commits, and
Spark's queries in the JVM with Delta's sink. Both read what a topic has in as many batches."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from bench import topics
from bench.registry import Bench

PARTITIONS: Final = 4
# Keys of records that only move the watermark begin with it.
LAST: Final = "last-"
# A query with state runs for long: its first batch is one among many.
BATCHES: Final = 6
Side = Callable[[SparkSession, dict[str, str], Path], DataStreamWriter]
_STORE: Final = "spark.sql.streaming.stateStore"
ROCKSDB: Final = {
    f"{_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}


def _kept(given: Mapping[str, str], home: Path) -> dict[str, str]:
    """Options of a job that keeps state; several topics share it."""
    first, *others = given["subscribe"].split(",")
    return {
        "commitMode": "individual",
        "commitTable": str(home / "commits"),
        "splitBy": "keyRange",
        "slot.directory": str(home / "slots"),
        **({"state.topic": first} if others else {}),
    }


def job(*work: Any, options: Mapping[str, str], **named: Any) -> Side:
    """keyrange's side: the arguments are those of `keyrange.job` behind the options."""

    def side(spark: SparkSession, given: dict[str, str], home: Path) -> DataStreamWriter:
        made = keyrange.job({**given, **_kept(given, home), **options}, *work, **named)
        return made.into(str(home / "table"), str(home / "checkpoint"), spark=spark)

    return side


def spark_side(rows: Callable[..., DataFrame], shares: Sequence[float] = ()) -> Side:
    """Spark's side. `rows` makes of the connector's records those of the table. With `shares` it
    has those of each topic by themselves; the topic has this part of a batch."""

    def side(spark: SparkSession, given: dict[str, str], home: Path) -> DataStreamWriter:
        read, topics = [given], given["subscribe"].split(",")
        if shares:
            most = int(given["maxOffsetsPerTrigger"])
            limits = [{"maxOffsetsPerTrigger": str(int(most * share) + 1)} for share in shares]
            of = zip(topics, limits, strict=True)
            read = [given | {"subscribe": topic} | limit for topic, limit in of]
        found = [spark.readStream.format("kafka").options(**each).load() for each in read]
        write = rows(*found).writeStream.format("delta").outputMode("append")
        write = write.option("checkpointLocation", str(home / "checkpoint"))
        return write.option("path", str(home / "table"))

    return side


def json_of(records: DataFrame, schema: str) -> DataFrame:
    """The key as text, and the fields of the value."""
    read = F.from_json(records["value"].cast("string"), schema)
    return records.select(F.col("key").cast("string"), read.alias("v")).select("key", "v.*")


def by_time(frame: DataFrame, delay: str) -> DataFrame:
    """With column `at`, milliseconds since 1970, as event time."""
    return frame.withColumn("at", F.timestamp_millis("at")).withWatermark("at", delay)


def bounds() -> tuple[Column, Column]:
    """The columns of a window as keyrange names them."""
    start, end = (F.col(f"window.{name}").alias(f"window_{name}") for name in ("start", "end"))
    return start, end


@contextmanager
def home(bench: Bench) -> Iterator[Path]:
    """A directory for one run of a query."""
    path = bench.directory / uuid.uuid4().hex
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def options(bench: Bench, topic: str, rows: int, batches: int | None = None) -> dict[str, str]:
    """What both sides are given: a topic of so many records, and how many make a batch."""
    batches = batches or bench.pick(full=BATCHES, quick=BATCHES, tiny=2)
    return bench.reading(topic) | {"maxOffsetsPerTrigger": str(rows // batches + PARTITIONS)}


def seconds_of(writer: DataStreamWriter) -> list[float]:
    """Seconds of each batch until nothing is left to do, those too that have no records and write
    what the watermark closes."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [each.batchDuration / 1e3 for each in query.recentProgress]


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def wait(
    query: StreamingQuery,
    holds: Callable[[], object],
    every_s: float = 0.2,
    patience_s: float = 300.0,
) -> None:
    """Until something holds of a query that runs. Raises RuntimeError where it ends before."""
    end = time.monotonic() + patience_s
    while not holds():
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        if time.monotonic() > end:
            raise RuntimeError("the query did not come so far")
        time.sleep(every_s)


def rows_of(home: Path, columns: Sequence[str]) -> pa.Table:
    """The rows of a table in one order, whatever wrote them: two runs have equal ones or not."""
    return in_order(table_of(home, columns))


def table_of(home: Path, columns: Sequence[str]) -> pa.Table:
    """The rows of a table; times are microseconds since 1970."""
    read = DeltaTable(home / "table").to_pyarrow_table(columns=list(columns))
    fields = []
    for at, field in enumerate(read.schema):
        if pa.types.is_timestamp(field.type):
            utc = read.column(at).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            read = read.set_column(at, field.name, utc)
        fields.append(pa.field(field.name, read.schema.field(at).type))
    return read.cast(pa.schema(fields))


def in_order(table: pa.Table) -> pa.Table:
    """Sorted by all columns."""
    order = [(name, "ascending") for name in table.column_names]
    return table.sort_by(order).combine_chunks()


def check_equal(name: str, tables: Mapping[str, pa.Table]) -> int:
    """How many rows all sides have. Raises RuntimeError where they differ: a side that did other
    work is not compared."""
    (first, expected), *others = tables.items()
    for other, found in others:
        if not found.equals(expected):
            counts = f"{expected.num_rows} and {found.num_rows} rows"
            raise RuntimeError(f"{name}: {first} and {other} wrote different rows: {counts}")
    if not expected.num_rows:
        raise RuntimeError(f"{name}: no side wrote a row")
    return expected.num_rows


def filled(bench: Bench, name: str, frame: DataFrame, last: str | None) -> str:
    """A topic with the records of a frame, and behind them one of the value `last` in each
    partition, of a key of its own: with its time the watermark passes all others."""
    topic = topics.filled(bench.bootstrap_servers, name, frame, PARTITIONS)
    if last is not None:
        end(bench, frame.sparkSession, topic, last)
    bench.progress(f"topic {name} is written")
    return topic


def end(bench: Bench, spark: SparkSession, topic: str, last: str) -> None:
    """One more record of a value in each partition."""
    rows = [(f"{LAST}{at}", last, at) for at in range(PARTITIONS)]
    ends = spark.createDataFrame(rows, "key string, value string, partition int")
    topics.fill(ends, bench.bootstrap_servers, topic, "none")
