"""Option `columns` against real topics: the schema, the rows, and counts without any payload."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from keyrange.model.columns import COLUMNS
from spark.sources import batch, options, stream


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """Two partitions with 10 and 20 records that have keys, values and headers."""
    topic = topics.create_topic("columns", 2, configs={"retention.ms": "-1"})
    topics.produce(
        topic,
        [
            Record(b"v%d" % n, b"k%d" % n, int(n >= 10), 1_000 + n, [("h", b"%d" % n)])
            for n in range(30)
        ],
    )
    return topic


@pytest.mark.parametrize(
    "columns",
    [
        "value",
        "key,offset",
        "topic,partition",
        "timestamp",
        "timestampType,offset",
        "headers",
        "VALUE,timestamp,key,headers",
        ",".join(COLUMNS),
    ],
)
def test_a_batch_read_has_the_rows_of_the_full_read(
    spark: SparkSession, topics: Topics, topic: str, columns: str
) -> None:
    some = batch(spark, topics, topic, columns=columns)
    full = batch(spark, topics, topic, includeHeaders="true", includeKeyHash="true")

    assert some.columns == [name for name in COLUMNS if name.lower() in columns.lower().split(",")]
    assert some.schema == full.select(some.columns).schema
    expected = full.select(some.columns).collect()
    assert len(expected) == 30
    assert sorted(map(str, some.collect())) == sorted(map(str, expected))


def test_counting_needs_one_small_column(spark: SparkSession, topics: Topics, topic: str) -> None:
    frame = batch(spark, topics, topic, columns="partition")

    counts = {
        row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()
    }

    assert frame.count() == 30
    assert counts == {0: 10, 1: 20}


def test_a_stream_has_the_columns_of_the_list(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    frame = stream(spark, topics, topic, columns="offset,value", startingOffsets="earliest")
    seen: list[tuple[bytes, int]] = []
    query = (
        frame.writeStream.foreachBatch(
            lambda rows, _: seen.extend((bytes(row[0]), row[1]) for row in rows.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(120)
    assert frame.columns == ["value", "offset"]
    assert sorted(seen) == sorted((b"v%d" % n, n if n < 10 else n - 10) for n in range(30))


def test_a_schema_of_the_users_own_has_to_be_that_of_the_list(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    given = options(topics, topic, columns="offset")

    fitting = spark.read.format("keyrange").schema("offset long").options(**given).load()
    other = spark.read.format("keyrange").schema("value binary").options(**given).load()

    assert fitting.count() == 30
    with pytest.raises(PySparkException, match=r"INVALID_SCHEMA.*struct<offset:bigint>"):
        other.count()


def test_a_wrong_list_is_refused_at_load(spark: SparkSession, topics: Topics, topic: str) -> None:
    with pytest.raises(PySparkException, match="did you mean 'value'"):
        batch(spark, topics, topic, columns="key,valu")
