"""Group `worker`: what a Python worker needs: memory at its peak, and time before its first record.

Memory is what smaps calls PSS: a process's own pages and its share of those that it has in common
with others. The machine code of the kernels is kept in a directory of this run, which starts empty.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psutil
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from bench import queries, topics
from bench import spark as sparks
from bench.figures import Figure, at_most, from_runs, highest
from bench.groups.ingest import PLAIN, seconds_of_batches
from bench.peaks import Peaks
from bench.registry import Bench, Group

_MIB = 1024 * 1024
_MIXED_BYTES_MAX = 1_000_000
_HUGE_BYTES = 50 * _MIB


def run(bench: Bench) -> Iterator[Figure]:
    kernels = bench.directory / "kernels"
    kernels.mkdir()
    # The JVM hands its environment on to the Python workers.
    os.environ["NUMBA_CACHE_DIR"] = str(kernels)
    with sparks.session(bench.directory) as spark:
        yield from _cold_start(bench, spark, kernels)
        yield from _mixed_records(bench, spark)
        yield _huge_records(bench, spark)


def _cold_start(bench: Bench, spark: SparkSession, kernels: Path) -> Iterator[Figure]:
    """One task that reads a few records, planned once and run by new and by used workers."""
    servers = bench.bootstrap_servers
    topic = topics.filled(servers, "cold", topics.records(spark, 1_000, 200, 1), 1, "lz4")
    query = _read(bench, spark, topic)._jdf.queryExecution()
    rdd = query.toRdd()
    rdd.getNumPartitions()
    for _ in range(3):  # the JVM's own first time is not the worker's
        rdd.count()
    warm, cached, empty = [], [], []
    for _ in range(bench.runs):
        warm.append(_seconds_to_count(rdd))
        _end_workers()
        cached.append(_seconds_to_count(rdd))
        _end_workers()
        shutil.rmtree(kernels)
        kernels.mkdir()
        empty.append(_seconds_to_count(rdd))
    usual = median(warm)
    bench.progress(f"a warm worker takes {usual:.3f} s")
    yield from_runs("worker.cold_start.seconds", [each - usual for each in empty], "s")
    yield from_runs("worker.cold_start.cached.seconds", [each - usual for each in cached], "s")
    if not any(kernels.rglob("*.nbc")):
        raise RuntimeError("the workers kept their machine code somewhere else")


def _seconds_to_count(rdd: object) -> float:
    started = time.perf_counter()
    rdd.count()  # type: ignore[attr-defined]
    return time.perf_counter() - started


def _end_workers() -> None:
    """End the idle workers, so that the next task gets a new one."""
    workers = sparks.python_workers()
    for worker in workers:
        worker.kill()
    # Spark takes a worker for alive, and gives it the next task, until the daemon has collected it.
    _, left = psutil.wait_procs(workers, timeout=10)
    if left:
        raise RuntimeError("Python workers do not end")


def _mixed_records(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """Many small records, and some of up to 1 MB, plain and compressed, in large batches: read, and
    written to a Delta table by the tasks that read."""
    reading: list[float] = []
    writing: list[float] = []
    servers = bench.bootstrap_servers
    for codec in ("none", "zstd"):
        frame = topics.records(spark, bench.pick(full=400_000, quick=200_000, tiny=2_000), 1024, 4)
        repeat = "CASE WHEN id % 200 = 0 THEN pmod(hash(id), 960) + 1 ELSE 1 END"
        frame = frame.selectExpr(
            "key", "partition", f"CAST(repeat(value, {repeat}) AS STRING) AS value"
        )
        producer = {"max.request.size": str(2 * _MIXED_BYTES_MAX), "batch.size": "1000000"}
        configs = {"max.message.bytes": str(2 * _MIXED_BYTES_MAX)}
        topic = topics.filled(servers, f"mixed-{codec}", frame, 4, codec, configs, producer)
        bench.progress(f"records of up to 1 MB written, compression {codec}")
        reading += _peaks(bench, _reads(bench, spark, topic))
        writing += _peaks(bench, _writes(bench, spark, topic))
        topics.delete_topic(servers, topic)
    yield highest("worker.peak_rss.mb", reading, "MB")
    yield highest("worker.peak_rss.writing.mb", writing, "MB")


def _huge_records(bench: Bench, spark: SparkSession) -> Figure:
    """Records of 50 MB, which are larger than what is fetched at once."""
    servers = bench.bootstrap_servers
    size = bench.pick(full=_HUGE_BYTES, quick=_HUGE_BYTES, tiny=_MIB)
    limit = size + _MIB
    topic = topics.create_topic(servers, "huge", 2, {"max.message.bytes": str(limit)})
    producer = KafkaProducer(bootstrap_servers=servers, acks=1, max_request_size=limit)
    for number in range(bench.pick(full=12, quick=6, tiny=2)):
        value = os.urandom(size // 4) * 4
        producer.send(topic, key=b"key", value=value, partition=number % 2).get(timeout=120)
    producer.close()
    bench.progress("records of 50 MB written")
    peaks = _peaks(bench, _reads(bench, spark, topic))
    topics.delete_topic(servers, topic)
    return highest("worker.peak_rss.50mb_records.mb", peaks, "MB")


def _peaks(bench: Bench, act: Callable[[], object]) -> list[float]:
    peaks = Peaks("Pss")
    for _ in range(bench.runs):
        _end_workers()
        with peaks.watched():
            act()
        bench.progress(f"peak {peaks.found[-1]:.0f} MB")
    return peaks.found


def _reads(bench: Bench, spark: SparkSession, topic: str) -> Callable[[], object]:
    return lambda: sparks.seconds_to_read(_read(bench, spark, topic))


def _writes(bench: Bench, spark: SparkSession, topic: str) -> Callable[[], object]:
    def write() -> None:
        with queries.home(bench) as home:
            seconds_of_batches(PLAIN["keyrange"](spark, bench.reading(topic), home))

    return write


def _read(bench: Bench, spark: SparkSession, topic: str) -> DataFrame:
    return spark.read.format("keyrange").options(**bench.reading(topic)).load()


GROUP = Group(
    order=5,
    run=run,
    targets={
        "worker.peak_rss.mb": at_most(300),
        "worker.peak_rss.writing.mb": at_most(400),
        "worker.cold_start.seconds": at_most(1.5),
        "worker.cold_start.cached.seconds": at_most(2.0),
    },
)
