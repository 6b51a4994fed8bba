"""Group `values`: typed values on their way into Delta tables and out of a DataFrame, beside the
JVM connector with Spark's `from_avro` and `from_json`, which write and read the same rows.

keyrange reads the schemas of Avro values from a registry; Spark's side is told the schema, and cuts
the header off. As in group `ingest` all sides alternate in one session. Spark's `from_protobuf` is
published in no repository that this project reads, so Protobuf has no figure beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_least, from_runs, ratio
from bench.groups.ingest import CORES, PARTITIONS, VALUE_BYTES, Cell, from_json, job, jvm, measure
from bench.registry import Bench, Group
from bench.registry_stub import registry

_OTHERS = ("topic", "partition", "offset", "timestamp", "timestampType")


def _rows(records: DataFrame, read: Column) -> DataFrame:
    typed = records.select("key", read.alias("read"), *_OTHERS)
    return typed.select("key", "read.*", *_OTHERS)


def _from_avro(records: DataFrame) -> DataFrame:
    from pyspark.sql.avro.functions import from_avro

    return _rows(records, from_avro(F.expr("substring(value, 6)"), topics.AVRO))


def _from_nested(records: DataFrame) -> DataFrame:
    return _rows(records, F.from_json(records["value"].cast("string"), topics.NESTED))


def _delay(record: object) -> tuple[object, ...] | None:
    """What a function does with a few fields of a record."""
    event = record.value  # type: ignore[attr-defined]
    if event.delay < 15:
        return None
    return (f"{event.carrier}{event.flight}", event.delay * 60.0 / max(event.distance, 1))


_DELAYS = "flight string, share double"


def _delay_of(carrier: str, flight: int, delay: int, distance: int) -> tuple[object, ...] | None:
    return None if delay < 15 else (f"{carrier}{flight}", delay * 60.0 / max(distance, 1))


def _by_typed_udf(records: DataFrame) -> DataFrame:
    read = F.from_json(records["value"].cast("string"), topics.OBJECT)
    event = records.select(read.alias("e")).select("e.*")
    delay = F.udf(_delay_of, _DELAYS, useArrow=True)
    found = event.select(delay("carrier", "flight", "delay", "distance").alias("found"))
    return found.where("found IS NOT NULL").select("found.*")


def cells(url: str) -> list[Cell]:
    typed = {"valueFormat": "json", "valueSchema": topics.OBJECT}
    avro = {
        "keyrange": job(
            valueFormat="avro", **{"schemaRegistry.url": url, "valueSubject": "events"}
        ),
        "jvm": jvm(_from_avro),
    }
    nested = {
        "keyrange": job(valueFormat="json", valueSchema=topics.NESTED),
        "jvm": jvm(_from_nested),
    }
    work = {"keyrange": job(_delay, _DELAYS, **typed), "jvm_udf": jvm(_by_typed_udf)}
    return [
        Cell("ingest.avro.200B", "vs_jvm", "200B", "none", avro, topics.avro),
        Cell("ingest.json.1KB", "vs_jvm", "1KB", "none", nested, topics.nested),
        Cell("process.typed", "vs_jvm_udf", "200B", "none", work, topics.objects, is_filtered=True),
    ]


def run(bench: Bench) -> Iterator[Figure]:
    with (
        registry(topics.AVRO_ID, "AVRO", topics.AVRO) as url,
        sparks.session(bench.directory, f"local[{CORES}]", delta=True, avro=True) as spark,
    ):
        for cell in cells(url):
            yield from measure(bench, spark, cell)
        yield from _read(bench, spark)


def _read(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """A typed DataFrame, read and thrown away."""
    rows = bench.pick(full=2_000_000, quick=500_000, tiny=2_000)
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "typed", PARTITIONS)
    topics.fill(
        topics.objects(spark, rows, VALUE_BYTES["200B"], PARTITIONS), servers, topic, "none"
    )
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    typed = {"valueFormat": "json", "valueSchema": topics.OBJECT}
    sides = {
        "keyrange": lambda: spark.read.format("keyrange").options(**given, **typed).load(),
        "jvm": lambda: from_json(spark.read.format("kafka").options(**given).load()),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-bench.pick(full=1, quick=1, tiny=0), bench.runs):
        for name in sorted(sides, reverse=number % 2 == 1):
            taken = sparks.seconds_to_read(sides[name]())
            if number >= 0:
                rates[name].append(rows / taken / 1e6)
    bench.progress(f"read: {rates}")
    topics.delete_topic(servers, topic)
    yield ratio("read.json.200B.vs_jvm", rates["keyrange"], rates["jvm"])
    for name, found in rates.items():
        yield from_runs(f"read.json.200B.{name}.mrec_per_second", found, "M/s")


GROUP = Group(
    name="values",
    order=2,
    run=run,
    targets={
        "ingest.avro.200B.vs_jvm": at_least(3),
        "ingest.json.1KB.vs_jvm": at_least(3),
        "process.typed.vs_jvm_udf": at_least(2),
        "read.json.200B.vs_jvm": at_least(2.5),
    },
)
