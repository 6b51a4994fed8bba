"""Tables by their names in Spark's own catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Topics
from keyrange.errors import KeyrangeError
from spark.sources import options

MAPPED = "delta.columnMapping.mode' = 'name"


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE DATABASE shop LOCATION '{tmp_path}/shop'")
    yield "shop"
    spark.sql("DROP DATABASE shop CASCADE")


def start(
    spark: SparkSession, topics: Topics, topic: str, home: Path, table: str, **into: Any
) -> Any:
    job = keyrange.job(
        options(topics, topic, startingOffsets="earliest"),
        lambda record: (record.offset, record.value.decode()),
        "id long, text string",
    )
    return job.into(table, str(home / "checkpoint"), spark=spark, **into)


def test_a_table_by_its_name(
    spark: SparkSession, topics: Topics, tmp_path: Path, shop: str
) -> None:
    topic = topics.create_topic("named", 1)
    spark.sql(f"CREATE TABLE {shop}.orders (id long, text string) USING delta")
    for text in (b"a", b"b"):
        topics.produce(topic, [text])
        writer = start(spark, topics, topic, tmp_path, f"spark_catalog.{shop}.orders")
        assert writer.trigger(availableNow=True).start().awaitTermination(240)
    rows = spark.table(f"{shop}.orders").collect()
    assert sorted(map(tuple, rows)) == [(0, "a"), (1, "b")]
    spark.sql(f"CREATE TABLE {shop}.plain (id long, text string) USING parquet")
    # The session's Delta appends to these.
    properties = {"tracked": "delta.enableRowTracking' = 'true", "mapped": MAPPED}
    for name, given in properties.items():
        spark.sql(
            f"CREATE TABLE {shop}.{name} (id long, text string) USING delta "
            f"TBLPROPERTIES ('{given}')"
        )
        writer = start(spark, topics, topic, tmp_path / name, f"{shop}.{name}")
        assert writer.written_by.startswith("the session's Delta (")
        assert writer.trigger(availableNow=True).start().awaitTermination(240)
        rows = spark.table(f"{shop}.{name}").collect()
        assert sorted(map(tuple, rows)) == [(0, "a"), (1, "b")]
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*shop.plain|SINK_UNSUITABLE"):
        start(spark, topics, topic, tmp_path / "plain", f"{shop}.plain")
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*has no such table of Delta's"):
        start(spark, topics, topic, tmp_path / "none", f"{shop}.none")
