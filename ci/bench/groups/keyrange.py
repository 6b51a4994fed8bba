"""Group `keyrange`: what splitting partitions by key costs, and what it brings.

Read amplification is the broker's own count of the bytes that it sent over the bytes of the log,
with one task per range and with ranges that share two tasks, and a budget that the batch does not
fit. All else are seconds of sides that alternate in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from bench import spark as sparks
from bench import topics
from bench.counters import BrokerCounters, counted_shuffle, jmx_options, log_bytes
from bench.figures import Figure, at_least, at_most, from_runs, ratio
from bench.registry import Bench, Group
from bench.work import BURNT, FOLDED, burn, fold_by_key
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.embedded.process import free_ports
from keyrange.embedded.settings import BrokerSettings

RANGES = (4, 16, 64)
CORES = 2
VALUE_BYTES = 200
KEYS = 10_000
PARTITIONS = 4
BY_PARTITION = {"splitBy": "partition"}
BY_KEY = {"splitBy": "keyRange", "parallelism": str(CORES)}


@dataclass(frozen=True)
class _Stage:
    """What the parts of this group share."""

    bench: Bench
    spark: SparkSession
    broker: EmbeddedBroker
    counters: BrokerCounters

    def topic(self, name: str, rows: int, partitions: int) -> str:
        """A topic of `rows` records of 200 bytes and 10,000 keys, in the log uncompressed."""
        frame = topics.records(self.spark, rows, VALUE_BYTES, partitions).selectExpr(
            f"concat('key-', lpad(pmod(hash(id), {KEYS}), 8, '0')) AS key", "value", "partition"
        )
        topic = topics.filled(self.broker.bootstrap_servers, name, frame, partitions)
        self.bench.progress(f"{topic}: {rows:,} records written")
        return topic

    def read(self, topic: str, source: str = "keyrange", **options: str) -> DataFrame:
        return (
            self.spark.read.format(source)
            .option("kafka.bootstrap.servers", self.broker.bootstrap_servers)
            .option("subscribe", topic)
            .options(**options)
            .load()
        )

    def rows(self, count: int, tasks: int) -> DataFrame:
        """As many rows of the same size that come from no source."""
        value = f"unhex(repeat(lpad(hex(id), 8, '0'), {VALUE_BYTES // 4}))"
        return self.spark.range(0, count, 1, tasks).selectExpr(f"{value} AS value")

    def alternate(self, what: str, sides: Mapping[str, Side]) -> dict[str, list[float]]:
        """The seconds of each side's runs."""

        def seconds(name: str) -> float:
            return sparks.seconds_to_read(sides[name]())

        return self.bench.by_turns(what, {name: partial(seconds, name) for name in sides})


Side = Callable[[], DataFrame]


def run(bench: Bench) -> Iterator[Figure]:
    [port] = free_ports(1)
    settings = BrokerSettings(jvm_options=jmx_options(port))
    with (
        sparks.session(bench.directory, f"local[{CORES}]") as spark,
        EmbeddedBroker(settings, report=bench.progress) as broker,
    ):
        stage = _Stage(bench, spark, broker, BrokerCounters(spark, port))
        yield from _large(stage)
        yield from _keyed(stage)
        yield from _speedup(stage)


def _large(stage: _Stage) -> Iterator[Figure]:
    rows = stage.bench.pick(full=8_000_000, quick=2_000_000, tiny=10_000)
    one = stage.topic("one", rows, 1)
    for count in RANGES:
        yield from _amplification(stage, one, count)
    yield from _throughput(stage, rows, one, stage.topic("four", rows, PARTITIONS))


def _amplification(stage: _Stage, topic: str, count: int) -> Iterator[Figure]:
    bench = stage.bench
    size = log_bytes(stage.broker.log_dir, topic)
    options = {
        **BY_KEY,
        "keyRangesPerPartition": str(count),
        "max.bytes.key.range.results": bench.pick(full="200m", quick="16m", tiny="1m"),
    }
    ways = {"per_range": {**options, "bytesPerTask": "0"}, "grouped": options}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(bench.runs):
        for way, given in ways.items():
            before = stage.counters.bytes_sent(topic)
            sparks.seconds_to_read(stage.read(topic, **given))
            found[way].append((stage.counters.bytes_sent(topic) - before) / size)
    shown = ", ".join(f"{way} {runs[-1]:.3f}" for way, runs in found.items())
    bench.progress(f"amplification, {count} ranges of {size:,} bytes: {shown}")
    name = f"keyrange.amplification.{count}"
    yield from_runs(name, [max(pair) for pair in zip(*found.values(), strict=True)], "ratio")
    for way, runs in found.items():
        yield from_runs(f"{name}.{way}", runs, "ratio")


def _throughput(stage: _Stage, rows: int, one: str, four: str) -> Iterator[Figure]:
    by_key = {**BY_KEY, "keyRangesPerPartition": "16"}
    sides: dict[str, Side] = {
        "1p16r": lambda: stage.read(one, **by_key),
        "4p16r": lambda: stage.read(four, **by_key),
        "partition": lambda: stage.read(four, **BY_PARTITION),
    }
    seconds = stage.alternate("throughput", sides)
    for side in ("1p16r", "4p16r"):
        # Seconds the other way round are records per second.
        name = f"keyrange.throughput.{side}"
        yield ratio(f"{name}.vs_partition", seconds["partition"], seconds[side])
    for side, taken in seconds.items():
        rates = [rows / each / 1e6 for each in taken]
        yield from_runs(f"keyrange.throughput.{side}.mrec_per_second", rates, "M/s")


def _keyed(stage: _Stage) -> Iterator[Figure]:
    """Work by key, in order: from key ranges as they are, in the tasks that read them and by
    Spark behind them, and from the JVM connector after the shuffle and the sort that it needs."""
    bench = stage.bench
    topic = stage.topic("keyed", bench.pick(full=8_000_000, quick=500_000, tiny=5_000), 1)

    def ours() -> DataFrame:
        named = f"{fold_by_key.__module__}:{fold_by_key.__name__}"
        return stage.read(
            topic, **BY_KEY, columns="key,value", mapInArrow=named, mapInArrowSchema=FOLDED
        )

    def in_spark() -> DataFrame:
        rows = stage.read(topic, **BY_KEY, columns="key,value")
        return rows.mapInArrow(fold_by_key, FOLDED)

    def jvm() -> DataFrame:
        rows = stage.read(topic, "kafka").select("key", "value", "partition", "offset")
        # A number of partitions keeps adaptive execution from putting all in one.
        shuffled = rows.repartition(CORES, "key").sortWithinPartitions("partition", "offset")
        return shuffled.select("key", "value").mapInArrow(fold_by_key, FOLDED)

    sides: dict[str, Side] = {"keyrange": ours, "mapped_in_spark": in_spark, "jvm": jvm}
    if not _summary(ours()) == _summary(in_spark()) == _summary(jvm()):
        raise RuntimeError("the ways of keyed work differ in their results")
    written = {}
    for name, side in sides.items():
        with counted_shuffle(stage.spark, f"keyed-{name}") as counted:
            sparks.seconds_to_read(side())
        written[name] = counted.written
    if not written["jvm"]:
        raise RuntimeError("Spark's metrics show no shuffle where there is one")
    seconds = stage.alternate("keyed", sides)
    for name, figure in (
        ("keyrange", "keyrange.keyed"),
        ("mapped_in_spark", "keyrange.keyed.mapped_in_spark"),
    ):
        yield ratio(f"{figure}.vs_jvm_repartition", seconds["jvm"], seconds[name])
        yield from_runs(f"{figure}.seconds", seconds[name], "s")
    yield from_runs("keyrange.keyed.jvm.seconds", seconds["jvm"], "s")
    ours_written = max(written["keyrange"], written["mapped_in_spark"])
    yield from_runs("keyrange.shuffle.bytes", [ours_written], "bytes")
    yield from_runs("keyrange.shuffle.jvm.bytes", [written["jvm"]], "bytes")


def _summary(folded: DataFrame) -> object:
    """All results in a line: each key once, with the digest of its values in order."""
    return folded.selectExpr(
        "count(*)", "count(DISTINCT key)", "sum(count)", "bit_xor(xxhash64(key, digest, count))"
    ).collect()


def _speedup(stage: _Stage) -> Iterator[Figure]:
    """Slow work on one partition: on all cores by key range, on one without.

    The ceiling is what Spark makes of the same work on rows that it makes itself, in one task and
    in as many as there are cores: a single task's reader and JVM use the other cores too.
    """
    rows = stage.bench.pick(full=500_000, quick=150_000, tiny=2_000)
    topic = stage.topic("slow", rows, 1)
    seconds = stage.alternate(
        "speedup",
        {
            "keyRange": lambda: stage.read(topic, **BY_KEY).mapInPandas(burn, BURNT),
            "partition": lambda: stage.read(topic, **BY_PARTITION).mapInPandas(burn, BURNT),
            "rows_1": lambda: stage.rows(rows, 1).mapInPandas(burn, BURNT),
            "rows_n": lambda: stage.rows(rows, CORES).mapInPandas(burn, BURNT),
        },
    )
    yield ratio("keyrange.speedup.1p", seconds["partition"], seconds["keyRange"])
    yield ratio("keyrange.speedup.ceiling", seconds["rows_1"], seconds["rows_n"])


GROUP = Group(
    order=6,
    run=run,
    targets={
        **{f"keyrange.amplification.{count}": at_most(1.05) for count in RANGES},
        "keyrange.throughput.1p16r.vs_partition": at_least(0.9),
        "keyrange.throughput.4p16r.vs_partition": at_least(0.85),
        "keyrange.keyed.vs_jvm_repartition": at_least(5.0),
        "keyrange.speedup.1p": at_least(1.7),
        "keyrange.shuffle.bytes": at_most(0),
    },
    own_broker=True,
)
