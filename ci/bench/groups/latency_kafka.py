"""Group `latency_kafka`: from a record's timestamp to a reader of committed records of the topic
that it was copied to, at a steady 1,000 records a second.

`keyrange.job(...).into_topic`, exactly once, and Spark's own source and sink, at least once, each
in turn with the default trigger.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import keyrange
from bench import topics
from bench.companions import companion
from bench.figures import Figure, at_most
from bench.latencies import PARTITIONS, SHARES, beside_delta
from bench.queries import running, wait
from bench.registry import Bench, Group


def run(bench: Bench) -> Iterator[Figure]:
    yield from beside_delta(bench, "kafka_to_kafka.latency", _measure)


def _measure(bench: Bench, spark: SparkSession, topic: str, side: str, number: int) -> list[float]:
    """One query over some seconds, after a warm-up that does not count."""
    servers = bench.bootstrap_servers
    copy = topics.create_topic(servers, f"late-{side}", PARTITIONS)
    home = bench.directory / f"{side}-{number}"
    counts_from = time.time() + bench.pick(full=15.0, quick=10.0, tiny=2.0)
    end = counts_from + bench.pick(full=30.0, quick=15.0, tiny=2.0)
    seen: list[tuple[float, float]] = []
    with _reader(servers, copy, seen):
        writer = _writer(bench, spark, topic, copy, side, str(home / "checkpoint"))
        with running(writer.start()) as query:
            # A slow machine may not have sent a batch yet.
            wait(query, lambda: time.time() >= end and seen and seen[-1][0] >= counts_from)
    topics.delete_topic(servers, copy)
    return [(at - made) * 1e3 for at, made in seen if at >= counts_from]


def _writer(
    bench: Bench, spark: SparkSession, topic: str, copy: str, side: str, checkpoint: str
) -> Any:
    servers, given = bench.bootstrap_servers, bench.reading(topic, "latest")
    if side == "keyrange":
        job = keyrange.job(given, _made_at, "key binary, value string", mode="arrow")
        return job.into_topic(copy, checkpoint, spark=spark)
    return (
        spark.readStream.format("kafka")
        .options(**given)
        .load()
        .selectExpr("key", "CAST(unix_millis(timestamp) AS STRING) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.acks", "all")
        .option("topic", copy)
        .option("checkpointLocation", checkpoint)
    )


def _made_at(records: pa.RecordBatch) -> pa.RecordBatch:
    """Keys, and as values the milliseconds of the records' timestamps."""
    times = records.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    values = pc.cast(pc.divide(times, 1000), pa.string())
    return pa.RecordBatch.from_arrays([records.column("key"), values], ["key", "value"])


def _reader(
    servers: str, topic: str, seen: list[tuple[float, float]]
) -> AbstractContextManager[None]:
    """Have it said when records can be read that are committed, and when they were made."""

    def heard(line: str) -> None:
        at, made = line.split()
        seen.append((float(at), float(made)))

    return companion("bench.committed_reader", servers, topic, heard=heard)


GROUP = Group(
    order=3,
    run=run,
    targets={f"kafka_to_kafka.latency.{share}.vs_jvm": at_most(1.3) for share in SHARES},
)
