"""Group `read`: records per second of a batch read, beside the JVM connector and the ceiling.

All sides read the same topic, with the same columns, in one session, one after the other in every
round, so that what else the machine does meets all of them. What is timed is the action: planning
and reading every row; `load()`, which asks for the schema, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from bench import spark as sparks
from bench import topics
from bench.ceiling import CeilingDataSource
from bench.figures import Figure, at_least, from_runs, ratio
from bench.registry import Bench, Group

PARTITIONS = 4
CODECS = ("none", "lz4", "zstd")
VALUE_BYTES = {"200B": 200, "1KB": 1024}
# Of the smallest form, which shows that the benchmark runs: one size with one codec.
TINY_CODECS: dict[str, tuple[str, ...]] = {"200B": (), "1KB": ("lz4",)}
CEILING_ROWS = (10_000, 20_000, 50_000)
# What made the JVM connector fastest of a dozen combinations. With a larger fetch.min.bytes it
# waits at the end of each partition for records that never come, and is slower than untuned.
TUNED = {
    "kafka.max.poll.records": "5000",
    "kafka.fetch.min.bytes": "65536",
    "kafka.max.partition.fetch.bytes": "4194304",
    "kafka.receive.buffer.bytes": "1048576",
}


@dataclass(frozen=True)
class Cell:
    """One topic: how large its values are, how they are compressed, and how many there are."""

    size: str
    codec: str
    rows: int

    @property
    def value_bytes(self) -> int:
        return VALUE_BYTES[self.size]

    @property
    def prefix(self) -> str:
        return f"read.{self.size}.{self.codec}"


Side = Callable[[], DataFrame]


def run(bench: Bench) -> Iterator[Figure]:
    with sparks.session(bench.directory) as spark:
        spark.dataSource.register(CeilingDataSource)
        for cell in cells(bench):
            yield from _measure(bench, spark, cell)


def cells(bench: Bench) -> list[Cell]:
    """The topics that are measured, in their order."""
    rows = {
        "200B": bench.pick(full=4_000_000, quick=1_000_000, tiny=400),
        "1KB": bench.pick(full=1_000_000, quick=300_000, tiny=400),
    }
    return [
        Cell(size, codec, rows[size])
        for size in VALUE_BYTES
        for codec in bench.pick(full=CODECS, quick=CODECS, tiny=TINY_CODECS[size])
    ]


def _measure(bench: Bench, spark: SparkSession, cell: Cell) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, cell.prefix, PARTITIONS)
    frame = topics.records(spark, cell.rows, cell.value_bytes, PARTITIONS)
    topics.fill(frame, servers, topic, cell.codec)
    bench.progress(f"{cell.prefix}: {cell.rows:,} records written")
    sides = _sides(bench, spark, cell, topic)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    warm_ups = bench.pick(full=1, quick=1, tiny=0)
    for round_number in range(-warm_ups, bench.runs):
        for name, side in sides.items():
            rate = cell.rows / sparks.seconds_to_read(side()) / 1e6
            if round_number >= 0:
                rates[name].append(rate)
        shown = ", ".join(f"{name} {found[-1]:.2f}" for name, found in rates.items() if found)
        bench.progress(f"{cell.prefix}: {shown or 'warmed up'}")
    topics.delete_topic(servers, topic)
    yield from _figures(cell, rates)


def _figures(cell: Cell, rates: dict[str, list[float]]) -> Iterator[Figure]:
    ceilings = {name: found for name, found in rates.items() if name.startswith("ceiling")}
    best = max(ceilings, key=lambda name: median(ceilings[name]))
    ours = rates["keyrange"]
    yield ratio(f"{cell.prefix}.vs_jvm", ours, rates["jvm"])
    yield ratio(f"{cell.prefix}.vs_jvm_tuned", ours, rates["jvm_tuned"])
    yield ratio(f"{cell.prefix}.vs_ceiling", ours, rates[best])
    shown = {name: found for name, found in rates.items() if name not in ceilings}
    for name, found in {**shown, "ceiling": ceilings[best]}.items():
        yield from_runs(f"{cell.prefix}.{name}.mrec_per_second", found, "M/s")


def _sides(bench: Bench, spark: SparkSession, cell: Cell, topic: str) -> dict[str, Side]:
    def source(name: str, options: dict[str, str]) -> Side:
        return lambda: (
            spark.read.format(name)
            .option("kafka.bootstrap.servers", bench.bootstrap_servers)
            .option("subscribe", topic)
            .options(**options)
            .load()
        )

    def ceiling(batch_rows: int) -> Side:
        return lambda: (
            spark.read.format(CeilingDataSource.name())
            .option("rows", cell.rows // PARTITIONS)
            .option("tasks", PARTITIONS)
            .option("batchRows", batch_rows)
            .option("valueBytes", cell.value_bytes)
            .load()
        )

    sides = {
        "keyrange": source("keyrange", {}),
        "jvm": source("kafka", {}),
        "jvm_tuned": source("kafka", TUNED),
    }
    sizes = bench.pick(full=CEILING_ROWS, quick=CEILING_ROWS, tiny=CEILING_ROWS[:1])
    return sides | {f"ceiling_{rows}": ceiling(rows) for rows in sizes}


def _targets() -> dict[str, float]:
    cells = [f"{size}.{codec}" for size in VALUE_BYTES for codec in CODECS]
    # Of large records that were compressed the hand-over to the JVM alone takes most.
    harder = ("1KB.lz4", "1KB.zstd")
    targets = {f"read.{cell}.vs_jvm": 2.0 if cell in harder else 2.5 for cell in cells}
    targets |= {f"read.{cell}.vs_jvm_tuned": 1.6 for cell in cells}
    return targets | {"read.200B.none.vs_ceiling": 0.65}


GROUP = Group(
    order=1,
    run=run,
    targets={name: at_least(limit) for name, limit in _targets().items()},
)
