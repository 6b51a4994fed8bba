"""Group `values`: typed values on their way into Delta tables and out of a DataFrame, beside the
JVM connector with Spark's `from_avro` and `from_json`, which write and read the same rows; and
whole runs beside a script that has no Spark.

keyrange reads the schemas of Avro and Protobuf from a registry; Spark's side is told the schema,
and cuts the header off. As in group `ingest` all sides alternate in one session. Spark's
`from_protobuf` is published in no repository that this project reads: what stands beside Protobuf
is what Python has without it, `mapInArrow` with the upb of Google's library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import protobuf_events, queries, script, topics, typed_topics
from bench import spark as sparks
from bench.figures import Figure, at_least, at_most, from_runs, highest, ratio
from bench.groups import ingest
from bench.groups.ingest import CORES, PARTITIONS, VALUE_BYTES, Cell, job
from bench.peaks import Peaks
from bench.queries import spark_side
from bench.registry import Bench, Group
from bench.registry_stub import registry

_OTHERS = ("topic", "partition", "offset", "timestamp", "timestampType")
_DELAYS = "flight string, share double"
SCRIPTS = (("1KB", "lz4"), ("200B", "none"))


def _rows(records: DataFrame, read: Column) -> DataFrame:
    typed = records.select("key", read.alias("read"), *_OTHERS)
    return typed.select("key", "read.*", *_OTHERS)


def _from_avro(records: DataFrame) -> DataFrame:
    from pyspark.sql.avro.functions import from_avro

    payload = F.expr(f"substring(value, {len(typed_topics.HEADER) + 1})")
    return _rows(records, from_avro(payload, typed_topics.AVRO))


def _from_protobuf(records: DataFrame) -> DataFrame:
    columns = f"key binary, {topics.OBJECT}, topic string, partition int, offset bigint, "
    columns += "timestamp timestamp, timestampType int"
    return records.select("key", "value", *_OTHERS).mapInArrow(protobuf_events.decoded, columns)


def _from_nested(records: DataFrame) -> DataFrame:
    return _rows(records, F.from_json(records["value"].cast("string"), typed_topics.NESTED))


def _delay(record: object) -> tuple[object, ...] | None:
    """What a function does with a few fields of a record."""
    event = record.value  # type: ignore[attr-defined]
    if event.delay < 15:
        return None
    return (f"{event.carrier}{event.flight}", event.delay * 60.0 / max(event.distance, 1))


def _delay_of(carrier: str, flight: int, delay: int, distance: int) -> tuple[object, ...] | None:
    return None if delay < 15 else (f"{carrier}{flight}", delay * 60.0 / max(distance, 1))


def _by_typed_udf(records: DataFrame) -> DataFrame:
    """The function is handed the fields that it uses, and Spark parses no others."""
    read = F.from_json(records["value"].cast("string"), topics.OBJECT)
    event = records.select(read.alias("e")).select("e.*")
    # Else Spark calls it twice: for the filter, and for what the filter leaves.
    delay = F.udf(_delay_of, _DELAYS, useArrow=True).asNondeterministic()
    found = event.select(delay("carrier", "flight", "delay", "distance").alias("found"))
    return found.where("found IS NOT NULL").select("found.*")


def _registered(form: str, url: str) -> queries.Side:
    return job(valueFormat=form, valueSubject="events", **{"schemaRegistry.url": url})


def cells(avro_url: str, protobuf_url: str) -> list[Cell]:
    return [
        Cell(
            "ingest.avro.200B",
            "vs_jvm",
            "200B",
            "none",
            {"keyrange": _registered("avro", avro_url), "jvm": spark_side(_from_avro)},
            typed_topics.avro,
            is_watched=True,
            rows=700_000,
        ),
        Cell(
            "ingest.protobuf.200B",
            "vs_python",
            "200B",
            "none",
            {
                "keyrange": _registered("protobuf", protobuf_url),
                "jvm_python": spark_side(_from_protobuf),
            },
            typed_topics.protobuf,
            is_watched=True,
            rows=500_000,
        ),
        Cell(
            "ingest.json.1KB",
            "vs_jvm",
            "1KB",
            "none",
            {
                "keyrange": job(valueFormat="json", valueSchema=typed_topics.NESTED),
                "jvm": spark_side(_from_nested),
            },
            typed_topics.nested,
            is_watched=True,
            rows=300_000,
        ),
        Cell(
            "process.typed",
            "vs_jvm_udf",
            "200B",
            "none",
            {
                "keyrange": job(_delay, _DELAYS, valueFormat="json", valueSchema=topics.OBJECT),
                "jvm_udf": spark_side(_by_typed_udf),
            },
            topics.objects,
            is_filtered=True,
            is_watched=True,
            rows=500_000,
        ),
    ]


def run(bench: Bench) -> Iterator[Figure]:
    with (
        registry(typed_topics.ID, "AVRO", typed_topics.AVRO) as avro_url,
        registry(protobuf_events.ID, "PROTOBUF", protobuf_events.SOURCE) as protobuf_url,
        sparks.session(bench.directory, f"local[{CORES}]", delta=True, avro=True) as spark,
    ):
        for cell in cells(avro_url, protobuf_url):
            yield from ingest.measure(bench, spark, cell)
        yield from _read(bench, spark)
        for size, codec in SCRIPTS:
            yield from _beside_script(bench, spark, size, codec)


def _read(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """A typed DataFrame, read and thrown away."""
    rows = bench.pick(full=2_000_000, quick=500_000, tiny=2_000)
    frame = topics.objects(spark, rows, VALUE_BYTES["200B"], PARTITIONS)
    topic = topics.filled(bench.bootstrap_servers, "typed", frame, PARTITIONS)
    given = bench.reading(topic)
    typed = {"valueFormat": "json", "valueSchema": topics.OBJECT}

    def keyrange() -> float:
        read = spark.read.format("keyrange").options(**given, **typed).load()
        return sparks.seconds_to_read(read)

    def jvm() -> float:
        read = spark.read.format("kafka").options(**given).load()
        return sparks.seconds_to_read(ingest.from_json(read))

    rates = {"keyrange": keyrange, "jvm": jvm}
    yield from compared(bench, "read.json.200B", rows, rates, bench.runs)
    topics.delete_topic(bench.bootstrap_servers, topic)


def _beside_script(bench: Bench, spark: SparkSession, size: str, codec: str) -> Iterator[Figure]:
    """A whole run in a session that is there, beside processes that have imported everything."""
    rows = bench.pick(full=2_000_000, quick=500_000, tiny=2_000)
    servers = bench.bootstrap_servers
    frame = topics.records(spark, rows, VALUE_BYTES[size], PARTITIONS)
    topic = topics.filled(servers, "script", frame, PARTITIONS, codec)

    def keyrange(home: Path) -> float:
        started = time.perf_counter()
        query = job()(spark, bench.reading(topic), home).trigger(availableNow=True).start()
        query.awaitTermination()
        return time.perf_counter() - started

    def by_script(home: Path) -> float:
        table = home / "table"
        return script.seconds_to_write(servers, topic, PARTITIONS, rows, table, CORES)

    def seconds(write: Callable[[Path], float]) -> float:
        with queries.home(bench) as home:
            taken = write(home)
            written = DeltaTable(home / "table").count()
        if written != rows:
            raise RuntimeError(f"{written} of {rows} rows were written")
        return taken

    sides = {"keyrange": lambda: seconds(keyrange), "script": lambda: seconds(by_script)}
    yield from compared(bench, f"ingest.whole.{size}.{codec}", rows, sides, bench.runs)
    topics.delete_topic(servers, topic)


def compared(
    bench: Bench,
    prefix: str,
    rows: int,
    sides: Mapping[str, Callable[[], float]],
    runs: int,
    warm_up: bool = True,
) -> Iterator[Figure]:
    """keyrange and another side in turn; a side answers with the seconds that the rows took."""
    peaks = Peaks()

    def rate(name: str) -> float:
        with peaks.watched() if name == "keyrange" else nullcontext():
            return rows / sides[name]() / 1e6

    by_name = {name: partial(rate, name) for name in sides}
    rates = bench.by_turns(prefix, by_name, runs, warm_up)
    (other,) = sides.keys() - {"keyrange"}
    yield ratio(f"{prefix}.vs_{other}", rates["keyrange"], rates[other])
    for name, found in rates.items():
        yield from_runs(f"{prefix}.{name}.mrec_per_second", found, "M/s")
    yield highest(f"{prefix}.peak_rss.mb", peaks.found, "MB")


_RATIOS = {
    "ingest.avro.200B.vs_jvm": 3.0,
    "ingest.protobuf.200B.vs_python": 3.0,
    "ingest.json.1KB.vs_jvm": 3.0,
    "process.typed.vs_jvm_udf": 2.0,
    "read.json.200B.vs_jvm": 2.5,
    **{f"ingest.whole.{size}.{codec}.vs_script": 2.5 for size, codec in SCRIPTS},
}

GROUP = Group(
    order=2,
    run=run,
    targets={
        **{name: at_least(limit) for name, limit in _RATIOS.items()},
        **{f"{name.rpartition('.')[0]}.peak_rss.mb": at_most(400) for name in _RATIOS},
    },
)
