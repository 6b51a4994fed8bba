"""`keyrange.process` from a real broker to real Delta tables: what fails, what is replayed, what
time brings back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import keyrange
from brokers import Record, Topics
from sources import options

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Query:
    """A query that commits individually into a Delta table."""

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, home: Path) -> None:
        self.spark = spark
        self.home = home
        self.options = options(
            topics,
            topic,
            startingOffsets="earliest",
            commitMode="individual",
            commitTable=str(home / "commits"),
        )

    def write(self, frame: DataFrame) -> None:
        writer = frame.write.format("delta").mode("append").options(**keyrange.transaction())
        writer.save(str(self.home / "sink"))

    def run(self, function: Any, schema: str, mode: str = "record", **given: str) -> None:
        source = self.spark.readStream.format("keyrange").options(**(self.options | given)).load()

        def body(batch: DataFrame, _: int) -> None:
            self.write(keyrange.process(batch, function, schema, mode))

        checkpoint = self.home / "checkpoint"
        wrapped = keyrange.each_batch(body, self.options | given, str(checkpoint))
        query = (
            source.writeStream.foreachBatch(wrapped)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    def sink(self) -> list[dict[str, Any]]:
        rows = DeltaTable(str(self.home / "sink")).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


SCHEMA = "partition int, offset bigint, text string"


def parse(record: Any) -> Any:
    text = record.value.decode()
    if text.startswith("!"):
        raise ValueError(f"no {text}")
    return (record.partition, record.offset, text)


@pytest.fixture
def query(spark: SparkSession, topics: Topics, tmp_path: Path) -> Query:
    topic = topics.create_topic("process", partitions=2)
    records = []
    for at in range(200):
        poisoned = at % 23 == 5
        value = (b"!" if poisoned else b"v") + str(at).encode()
        records.append(Record(value, key=f"k{at % 17}".encode()))
    topics.produce(topic, records)
    return Query(spark, topics, topic, tmp_path)


def test_what_fails_ends_in_the_dead_letters_and_all_else_in_the_sink(query: Query) -> None:
    given = {
        "redelivery.backoff": "1ms",
        "maxDeliveries": "2",
        "availableNow.redelivery": "drain",
        "splitBy": "keyRange",
        "keyRangesPerPartition": "4",
    }
    query.run(parse, SCHEMA, **given)
    texts = sorted(row["text"] for row in query.sink())
    assert texts == sorted(f"v{at}" for at in range(200) if at % 23 != 5)
    dead = DeltaTable(str(query.home / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    assert sorted(row["value"] for row in dead) == sorted(
        f"!{at}".encode() for at in range(200) if at % 23 == 5
    )
    assert {row["attempts"] for row in dead} == {2}
    assert all(row["error"].startswith("ValueError: no !") for row in dead)
