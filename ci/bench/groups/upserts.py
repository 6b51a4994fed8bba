"""Group `upserts`: the last row of each key in a Delta table, by keyrange's job, and by what users
of the JVM connector write, a MERGE of each batch's last rows in foreachBatch. Values are JSON that
is read into columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from bench import queries, topics, typed_topics
from bench import spark as sparks
from bench.figures import Figure, at_least, at_most
from bench.groups import ingest
from bench.groups.ingest import CORES, PARTITIONS, VALUE_BYTES
from bench.groups.values import compared
from bench.registry import Bench, Group

COLUMNS: Final = ("key", "value", "partition", "offset")
# The first one fills the table and is not measured.
_BATCHES: Final = 3
_MERGE: Final = (
    "MERGE INTO delta.`{}` AS held USING last ON held.key = last.key"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def run(bench: Bench) -> Iterator[Figure]:
    """Batches of changes of a million keys, of which the table lacks a tenth."""
    with sparks.session(bench.directory, f"local[{CORES}]", delta=True) as spark:
        keys = bench.pick(full=1_000_000, quick=200_000, tiny=400)
        of_batch = keys + keys // 4
        frame = typed_topics.changes(spark, _BATCHES, keys, VALUE_BYTES["200B"], PARTITIONS)
        topic = topics.filled(bench.bootstrap_servers, "changes", frame, PARTITIONS)
        given = bench.reading(topic) | {"maxOffsetsPerTrigger": str(of_batch)}
        found = set()

        def seconds(side: queries.Side) -> float:
            with queries.home(bench) as home:
                taken = ingest.seconds_of_batches(side(spark, given, home))
                found.add(_held(home / "table"))
            wanted = keys + (_BATCHES - 1) * (keys // 10)
            if len(taken) != _BATCHES or {count for count, _ in found} != {wanted}:
                raise RuntimeError(f"{found} of {wanted} keys in {len(taken)} batches")
            bench.progress(" + ".join(f"{each:.2f}" for each in taken) + " s")
            return sum(taken[1:])

        sides = {
            "keyrange": lambda: seconds(_by_job),
            "jvm": lambda: seconds(_by_foreach_batch),
        }
        # Each has two measured batches, and a first one that warms up.
        runs = bench.pick(full=3, quick=2, tiny=1)
        rows = of_batch * (_BATCHES - 1)
        yield from compared(bench, "upsert.200B", rows, sides, runs, warm_up=False)
        if len(found) != 1:
            raise RuntimeError(f"the sides hold other rows as the last ones: {found}")
        topics.delete_topic(bench.bootstrap_servers, topic)


def _by_job(spark: SparkSession, given: Mapping[str, str], home: Path) -> DataStreamWriter:
    typed = {"valueFormat": "json", "valueSchema": topics.OBJECT, "columns": ",".join(COLUMNS)}
    job = keyrange.job({**given, **typed})
    return job.into(str(home / "table"), str(home / "checkpoint"), keys="key", spark=spark)


def _by_foreach_batch(
    spark: SparkSession, given: Mapping[str, str], home: Path
) -> DataStreamWriter:
    table = str(home / "table")
    read = spark.readStream.format("kafka").options(**given).load().select(*COLUMNS)
    spark.createDataFrame([], _typed(read).schema).write.format("delta").save(table)

    def merge(batch: DataFrame, _: int) -> None:
        """What is not the last row of its key is left out before it is parsed."""
        _typed(_last(batch)).createOrReplaceTempView("last")
        batch.sparkSession.sql(_MERGE.format(table))

    checkpoint = str(home / "checkpoint")
    return read.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)


def _last(batch: DataFrame) -> DataFrame:
    """A key is in one partition, whose offsets say which of its records is the last one."""
    newest = Window.partitionBy("key").orderBy(F.col("offset").desc())
    return batch.withColumn("at", F.row_number().over(newest)).where("at = 1").drop("at")


def _typed(records: DataFrame) -> DataFrame:
    read = F.from_json(records["value"].cast("string"), topics.OBJECT).alias("read")
    return records.select("key", read, "partition", "offset").select(
        "key", "read.*", "partition", "offset"
    )


def _held(table: Path) -> tuple[int, int]:
    """How many rows a table has, and the sum of their offsets: older rows have another sum."""
    offsets = DeltaTable(table).to_pyarrow_table(columns=["offset"]).column("offset")
    return len(offsets), pc.sum(offsets).as_py()


GROUP = Group(
    order=2,
    run=run,
    targets={
        "upsert.200B.vs_jvm": at_least(1.5),
        "upsert.200B.peak_rss.mb": at_most(400),
    },
)
