"""Group `latency`: from a record's timestamp to foreachBatch, at a steady 1,000 records a second.

Each source in turn runs a query with the default trigger over the same topic. A batch's function
collects the timestamps, so every row of it has been read when the clock is looked at. Then the
CPU time of the idle stream reader.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_most, from_runs, percentile, ratio
from bench.registry import Bench, Group

PARTITIONS = 4
RATE = 1000
SOURCES = {"keyrange": "keyrange", "jvm": "kafka"}
_SHARES = {"p50": 0.50, "p99": 0.99}
_RUNNER = "python_streaming_source_runner"


@dataclass
class _Phase:
    """What one query saw: a latency in milliseconds for each record, from `counts_from` on."""

    counts_from: float
    latencies_ms: list[float] = field(default_factory=list)
    batches: int = 0

    def take(self, batch: DataFrame, _batch_id: int) -> None:
        rows = batch.selectExpr("unix_millis(timestamp)").collect()
        now = time.time()
        if now >= self.counts_from and rows:
            self.batches += 1
            self.latencies_ms += [now * 1000 - row[0] for row in rows]


def run(bench: Bench) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "latency", PARTITIONS)
    found: dict[str, list[float]] = {f"{s}.{p}": [] for s in SOURCES for p in _SHARES}
    with sparks.session(bench.directory) as spark:
        with steady_producer(servers, topic):
            # What a session does for the first time is not the sources' latency.
            for source in bench.pick(full=list(SOURCES), quick=list(SOURCES), tiny=[]):
                _measure(bench, spark, topic, source, -1)
            for number in range(bench.runs):
                for source in sorted(SOURCES, reverse=number % 2 == 0):
                    phase = _measure(bench, spark, topic, source, number)
                    for name, share in _SHARES.items():
                        found[f"{source}.{name}"].append(percentile(phase.latencies_ms, share))
                    p50, p99 = (found[f"{source}.{name}"][-1] for name in _SHARES)
                    bench.progress(
                        f"{source}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
                        f"{phase.batches} batches, {len(phase.latencies_ms)} records"
                    )
        for name in _SHARES:
            ours, theirs = found[f"keyrange.{name}"], found[f"jvm.{name}"]
            yield ratio(f"latency.{name}.vs_jvm", ours, theirs)
            yield from_runs(f"latency.{name}.keyrange.ms", ours, "ms")
            yield from_runs(f"latency.{name}.jvm.ms", theirs, "ms")
        yield _idle(bench, spark, topic)
    topics.delete_topic(servers, topic)


def _measure(bench: Bench, spark: SparkSession, topic: str, source: str, number: int) -> _Phase:
    """One query over a few seconds, after a warm-up that does not count."""
    warm_up_s = bench.pick(full=10.0, quick=6.0, tiny=1.5)
    measured_s = bench.pick(full=20.0, quick=12.0, tiny=1.0)
    phase = _Phase(counts_from=time.time() + warm_up_s)
    with _query(bench, spark, topic, source, f"{source}-{number}", phase) as query:
        while time.time() < phase.counts_from + measured_s:
            time.sleep(0.2)
            _check(query)
        # A slow machine may not have finished a batch yet.
        while not phase.latencies_ms:
            time.sleep(0.2)
            _check(query)
    return phase


def _check(query: StreamingQuery) -> None:
    if not query.isActive:
        raise RuntimeError(f"the query ended: {query.exception()}")


@contextmanager
def _query(
    bench: Bench, spark: SparkSession, topic: str, source: str, name: str, phase: _Phase
) -> Iterator[StreamingQuery]:
    stream = (
        spark.readStream.format(SOURCES[source])
        .option("kafka.bootstrap.servers", bench.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "latest")
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(phase.take)
        .option("checkpointLocation", str(bench.directory / "checkpoints" / name))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def steady_producer(bootstrap_servers: str, topic: str) -> Iterator[None]:
    """A process that writes at a steady rate; it ends when its standard input does."""
    command = [sys.executable, "-m", "bench.producer", bootstrap_servers, topic]
    with subprocess.Popen([*command, str(PARTITIONS), str(RATE)], stdin=subprocess.PIPE) as process:
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError("the producer ended early")
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _idle(bench: Bench, spark: SparkSession, topic: str) -> Figure:
    """The part of one core that the stream reader's process takes while nothing is written."""
    window_s = bench.pick(full=10.0, quick=5.0, tiny=1.0)
    shares = []
    with _query(bench, spark, topic, "keyrange", "idle", _Phase(counts_from=0.0)) as query:
        reader = stream_reader(query)
        time.sleep(bench.pick(full=5.0, quick=5.0, tiny=0.5))
        for _ in range(bench.runs):
            started, before = time.monotonic(), reader.cpu_times()
            time.sleep(window_s)
            after, seconds = reader.cpu_times(), time.monotonic() - started
            used = after.user + after.system - before.user - before.system
            shares.append(used / seconds)
    return from_runs("latency.idle.core_share", shares, "cores")


def stream_reader(query: StreamingQuery) -> psutil.Process:
    """The process that plans a query's batches."""
    while True:
        _check(query)
        for process in psutil.Process().children(recursive=True):
            try:
                if any(_RUNNER in part for part in process.cmdline()):
                    return process
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.1)


GROUP = Group(
    name="latency",
    order=3,
    run=run,
    targets={
        "latency.p50.vs_jvm": at_most(1.0),
        "latency.p99.vs_jvm": at_most(1.0),
        "latency.idle.core_share": at_most(0.05),
    },
)
