"""Group `latency`: from a record's timestamp to foreachBatch, at a steady 1,000 records a second.

Each source in turn runs a query with the default trigger over the same topic. A batch's function
collects the timestamps, so every row of it has been read when the clock is looked at. Then the
CPU time of the idle stream reader.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_most, from_runs
from bench.latencies import PARTITIONS, by_turns
from bench.queries import running, wait
from bench.registry import Bench, Group

SOURCES = {"keyrange": "keyrange", "jvm": "kafka"}
_RUNNER = "python_streaming_source_runner"


@dataclass
class _Phase:
    """What one query saw: a latency in milliseconds for each record, from `counts_from` on."""

    counts_from: float
    latencies_ms: list[float] = field(default_factory=list)

    def take(self, batch: DataFrame, _batch_id: int) -> None:
        rows = batch.selectExpr("unix_millis(timestamp)").collect()
        now = time.time()
        if now >= self.counts_from and rows:
            self.latencies_ms += [now * 1000 - row[0] for row in rows]


def run(bench: Bench) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "latency", PARTITIONS)
    with sparks.session(bench.directory) as spark:
        yield from by_turns(bench, spark, topic, "latency", _measure)
        yield _idle(bench, spark, topic)
    topics.delete_topic(servers, topic)


def _measure(bench: Bench, spark: SparkSession, topic: str, side: str, number: int) -> list[float]:
    """One query over a few seconds, after a warm-up that does not count."""
    warm_up_s = bench.pick(full=10.0, quick=6.0, tiny=1.5)
    measured_s = bench.pick(full=20.0, quick=12.0, tiny=1.0)
    phase = _Phase(counts_from=time.time() + warm_up_s)
    end = phase.counts_from + measured_s
    with running(_started(bench, spark, topic, side, f"{side}-{number}", phase)) as query:
        # A slow machine may not have finished a batch yet.
        wait(query, lambda: time.time() >= end and phase.latencies_ms)
    return phase.latencies_ms


def _started(
    bench: Bench, spark: SparkSession, topic: str, source: str, name: str, phase: _Phase
) -> StreamingQuery:
    stream = (
        spark.readStream.format(SOURCES[source]).options(**bench.reading(topic, "latest")).load()
    )
    return (
        stream.writeStream.foreachBatch(phase.take)
        .option("checkpointLocation", str(bench.directory / "checkpoints" / name))
        .start()
    )


def _idle(bench: Bench, spark: SparkSession, topic: str) -> Figure:
    """The part of one core that the stream reader's process takes while nothing is written."""
    with running(_started(bench, spark, topic, "keyrange", "idle", _Phase(0.0))) as query:
        return from_runs("latency.idle.core_share", idle_shares(bench, query), "cores")


def idle_shares(bench: Bench, query: StreamingQuery) -> list[float]:
    """The part of one core that the process takes which plans a query's batches, a while after the
    last one."""
    reader = _stream_reader(query)
    time.sleep(bench.pick(full=5.0, quick=5.0, tiny=0.5))
    shares = []
    for _ in range(bench.runs):
        started, before = time.monotonic(), reader.cpu_times()
        time.sleep(bench.pick(full=10.0, quick=5.0, tiny=1.0))
        after, seconds = reader.cpu_times(), time.monotonic() - started
        shares.append((after.user + after.system - before.user - before.system) / seconds)
    return shares


def _stream_reader(query: StreamingQuery) -> psutil.Process:
    """The process that plans a query's batches."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(_RUNNER in part for part in process.cmdline()):
                    found.append(process)
        return bool(found)

    wait(query, is_there)
    return found[0]


GROUP = Group(
    order=3,
    run=run,
    targets={
        "latency.p50.vs_jvm": at_most(1.0),
        "latency.p99.vs_jvm": at_most(1.0),
        "latency.idle.core_share": at_most(0.05),
    },
)
