"""Group `ingest`: from Kafka into Delta tables, whole queries, beside the JVM connector and Delta's
sink, which write the same rows in as many batches.

Figures are of batches, from the first one's start to the last one's end. All sides alternate in one
session. `process` is the same with a function of one record: to the JVM side its faster form
counts, a Python UDF or `mapInPandas`. The floor is `bench.floor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from bench import floor, queries, topics
from bench import spark as sparks
from bench.figures import Figure, at_least, from_runs, highest, ratio
from bench.peaks import Peaks
from bench.queries import Side, spark_side
from bench.registry import Bench, Group
from bench.work import DIGESTED, digest_frames, digest_of, digest_record

PARTITIONS = 4
CORES = 2
BATCHES = 3
VALUE_BYTES = {"200B": 200, "1KB": 1024}
DELTA = (("1KB", "lz4"), ("1KB", "zstd"), ("1KB", "none"), ("200B", "none"), ("200B", "lz4"))


def job(*work: Any, **options: str) -> Side:
    """keyrange's side. What writes is told its table before it starts."""

    def side(spark: SparkSession, given: dict[str, str], home: Path) -> DataStreamWriter:
        made = keyrange.job(given | options, *work)
        return made.into(str(home / "table"), str(home / "checkpoint"), spark=spark)

    return side


# Records as they are.
PLAIN: Mapping[str, Side] = {"keyrange": job(), "jvm": spark_side(lambda records: records)}


def from_json(records: DataFrame) -> DataFrame:
    read = F.from_json(records["value"].cast("string"), topics.OBJECT).alias("read")
    others = ("topic", "partition", "offset", "timestamp", "timestampType")
    return records.select("key", read, *others).select("key", "read.*", *others)


def _by_udf(records: DataFrame) -> DataFrame:
    digest = F.udf(digest_of, "binary", useArrow=True)
    kept = ("key", "partition", "offset", "value")
    return records.select(*kept, digest("value").alias("digest"))


def _by_pandas(records: DataFrame) -> DataFrame:
    kept = records.select("key", "partition", "offset", "value")
    return kept.mapInPandas(digest_frames, DIGESTED)


@dataclass(frozen=True)
class Cell:
    """A topic, and what writes it to tables. The figures' names begin with `prefix`, that of the
    ratio ends with `versus`, and sides of the JVM connector begin with jvm."""

    prefix: str
    versus: str
    size: str
    codec: str
    sides: Mapping[str, Side]
    made: Callable[[SparkSession, int, int, int], DataFrame] = topics.records
    has_floor: bool = False
    # A function leaves some of the records out: how many is the same on all sides.
    is_filtered: bool = False
    # Whether the memory of keyrange's tasks is a figure too.
    is_watched: bool = False
    # In each batch of a full run.
    rows: int = 1_000_000


def cells(bench: Bench) -> list[Cell]:
    """What is measured; of the smallest form, one size with one codec."""
    delta = [
        Cell(f"ingest.delta.{size}.{codec}", "vs_jvm", size, codec, PLAIN, has_floor=number == 0)
        for number, (size, codec) in enumerate(DELTA)
    ]
    read = {
        "keyrange": job(valueFormat="json", valueSchema=topics.OBJECT),
        "jvm": spark_side(from_json),
    }
    work = {
        "keyrange": job(digest_record, DIGESTED),
        "jvm_udf": spark_side(_by_udf),
        "jvm_pandas": spark_side(_by_pandas),
    }
    few = bench.pick(full=delta, quick=delta, tiny=delta[:1])
    return [
        *few,
        Cell("ingest.json.200B", "vs_jvm", "200B", "none", read, topics.objects),
        Cell("process.record", "vs_jvm_udf", "200B", "none", work),
    ]


def run(bench: Bench) -> Iterator[Figure]:
    with sparks.session(bench.directory, f"local[{CORES}]", delta=True) as spark:
        for cell in cells(bench):
            yield from measure(bench, spark, cell)


def measure(bench: Bench, spark: SparkSession, cell: Cell) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    rows = bench.pick(full=cell.rows, quick=250_000, tiny=2_000) * BATCHES
    frame = cell.made(spark, rows, VALUE_BYTES[cell.size], PARTITIONS)
    topic = topics.filled(servers, "ingest", frame, PARTITIONS, cell.codec)
    bench.progress(f"{cell.prefix}: {rows:,} records written")
    peaks = Peaks()

    def rate(name: str) -> float:
        with queries.home(bench) as home:
            if name == "floor":
                taken = floor.seconds_to_write(servers, topic, PARTITIONS, rows, home, CORES)
            else:
                is_watched = cell.is_watched and name == "keyrange"
                with peaks.watched() if is_watched else nullcontext():
                    taken = _seconds(bench, spark, cell, name, topic, rows, home)
        return rows / taken / 1e6

    names = [*cell.sides, *(["floor"] if cell.has_floor else [])]
    rates = bench.by_turns(cell.prefix, {name: partial(rate, name) for name in names})
    topics.delete_topic(servers, topic)
    yield from _figures(cell, rates)
    if cell.is_watched:
        yield highest(f"{cell.prefix}.peak_rss.mb", peaks.found, "MB")


def _seconds(
    bench: Bench, spark: SparkSession, cell: Cell, name: str, topic: str, rows: int, home: Path
) -> float:
    """Seconds of a query's batches."""
    given = bench.reading(topic) | {"maxOffsetsPerTrigger": str(rows // BATCHES)}
    taken = seconds_of_batches(cell.sides[name](spark, given, home))
    actions = DeltaTable(home / "table").get_add_actions(flatten=True)
    found = sum(actions.column("num_records").to_pylist())
    # Not every side's fault: one that did not do the work would be the fastest.
    all_ = found if cell.is_filtered and 0 < found < rows else rows
    if (found, len(taken)) != (all_, BATCHES):
        raise RuntimeError(f"{name} wrote {found} of {rows} rows in {len(taken)} batches")
    bench.progress(f"{name}: " + " + ".join(f"{each:.2f}" for each in taken) + " s")
    return sum(taken)


def seconds_of_batches(writer: DataStreamWriter) -> list[float]:
    """What is there is read in batches."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [each.batchDuration / 1e3 for each in query.recentProgress if each.numInputRows]


def _figures(cell: Cell, rates: dict[str, list[float]]) -> Iterator[Figure]:
    theirs = [name for name in rates if name.startswith("jvm")]
    best = max(theirs, key=lambda name: median(rates[name]))
    yield ratio(f"{cell.prefix}.{cell.versus}", rates["keyrange"], rates[best])
    if cell.has_floor:
        yield ratio(f"{cell.prefix}.vs_floor", rates["keyrange"], rates["floor"])
    for name, found in rates.items():
        yield from_runs(f"{cell.prefix}.{name}.mrec_per_second", found, "M/s")


def _targets() -> dict[str, float]:
    targets = {f"ingest.delta.{size}.{codec}.vs_jvm": 3.0 for size, codec in DELTA}
    return targets | {
        "ingest.json.200B.vs_jvm": 4.0,
        "ingest.delta.1KB.lz4.vs_floor": 0.8,
        "process.record.vs_jvm_udf": 2.5,
    }


GROUP = Group(
    order=1,
    run=run,
    targets={name: at_least(limit) for name, limit in _targets().items()},
)
