"""Group `sink_kafka`: from a topic to a topic, whole queries, beside Spark's own source and sink.

Both sides copy keys and values in as many batches, with acks=all and idempotent producers. Spark's
sink delivers at least once, `keyrange.job(...).into_topic` exactly once. What the topics have for
readers of committed records is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import keyrange
from bench import queries, topics
from bench import spark as sparks
from bench.figures import Figure, at_least, at_most, from_runs, highest, ratio
from bench.groups.ingest import BATCHES, CORES, PARTITIONS, VALUE_BYTES, seconds_of_batches
from bench.peaks import Peaks
from bench.registry import Bench, Group

_CELLS = (("200B", "none"), ("200B", "lz4"), ("1KB", "lz4"))
_SIDES = ("keyrange", "jvm")


@dataclass(frozen=True)
class _Cell:
    """What is copied, and how the copy is compressed."""

    size: str
    codec: str
    rows: int

    @property
    def prefix(self) -> str:
        return f"sink.kafka.{self.size}.{self.codec}"


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.pick(full=1_000_000, quick=250_000, tiny=2_000) * BATCHES
    few = bench.pick(full=_CELLS, quick=_CELLS, tiny=_CELLS[:1])
    peaks = Peaks("RssAnon")
    with sparks.session(bench.directory, f"local[{CORES}]", delta=True) as spark:
        for size, codec in few:
            yield from _measure(bench, spark, _Cell(size, codec, rows), peaks)
    yield highest("sink.kafka.peak_rss.mb", peaks.found, "MB")


def _measure(bench: Bench, spark: SparkSession, cell: _Cell, peaks: Peaks) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    frame = topics.records(spark, cell.rows, VALUE_BYTES[cell.size], PARTITIONS)
    source = topics.filled(servers, "copied", frame, PARTITIONS, cell.codec)
    bench.progress(f"{cell.prefix}: {cell.rows:,} records written")

    def rate(side: str) -> float:
        return cell.rows / _seconds(bench, spark, cell, side, source, peaks) / 1e6

    rates = bench.by_turns(cell.prefix, {side: partial(rate, side) for side in _SIDES})
    topics.delete_topic(servers, source)
    yield ratio(f"{cell.prefix}.vs_jvm", rates["keyrange"], rates["jvm"])
    for side, found in rates.items():
        yield from_runs(f"{cell.prefix}.{side}.mrec_per_second", found, "M/s")


def _seconds(
    bench: Bench, spark: SparkSession, cell: _Cell, side: str, source: str, peaks: Peaks
) -> float:
    """Seconds of a query's batches."""
    servers = bench.bootstrap_servers
    copy = topics.create_topic(servers, f"copy-{side}", PARTITIONS)
    given = bench.reading(source) | {"maxOffsetsPerTrigger": str(cell.rows // BATCHES)}
    with queries.home(bench) as home, peaks.watched() if side == "keyrange" else nullcontext():
        taken = seconds_of_batches(_writer(spark, side, given, copy, cell.codec, home))
    found = _committed(spark, servers, copy)
    # Not every side's fault: one that did not do the work would be the fastest.
    if (found, len(taken)) != (cell.rows, BATCHES):
        raise RuntimeError(f"{side} wrote {found} of {cell.rows} rows in {len(taken)} batches")
    bench.progress(f"{side}: " + " + ".join(f"{each:.2f}" for each in taken) + " s")
    topics.delete_topic(servers, copy)
    return sum(taken)


def _writer(
    spark: SparkSession, side: str, given: Mapping[str, str], copy: str, codec: str, home: Path
) -> Any:
    checkpoint = str(home / "checkpoint")
    if side == "keyrange":
        options = {"kafka.compression.type": codec}
        return keyrange.job(given).into_topic(copy, checkpoint, options=options, spark=spark)
    return (
        spark.readStream.format("kafka")
        .options(**given)
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", given["kafka.bootstrap.servers"])
        .option("kafka.acks", "all")
        .option("kafka.enable.idempotence", "true")
        .option("kafka.compression.type", codec)
        .option("topic", copy)
        .option("checkpointLocation", checkpoint)
    )


def _committed(spark: SparkSession, servers: str, topic: str) -> int:
    read = spark.read.format("keyrange").option("kafka.bootstrap.servers", servers)
    read = read.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    return read.option("columns", "offset").load().count()


GROUP = Group(
    order=3,
    run=run,
    targets={
        **{f"sink.kafka.{size}.{codec}.vs_jvm": at_least(2) for size, codec in _CELLS},
        "sink.kafka.peak_rss.mb": at_most(300),
    },
)
