"""A `keyrange.job` in the place of another way into the same table: what that began is finished."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from brokers import Topics
from sources import options

# Executors cannot import this file: its function travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.broker, pytest.mark.spark]

SCHEMA = "text string"


def work(record: Any) -> Any:
    return (record.value.decode(),)


@pytest.mark.parametrize("after", ["the commit", "Spark's commit"])
def test_a_job_finishes_what_process_into_began(
    spark: SparkSession, topics: Topics, tmp_path: Path, after: str
) -> None:
    topic, checkpoint = topics.create_topic("resumed", 2), tmp_path / "checkpoint"
    individual = {"commitMode": "individual", "commitTable": str(tmp_path / "commits")}
    given = options(topics, topic, startingOffsets="earliest", **individual)

    def into(batch: DataFrame, _: int) -> None:
        keyrange.process_into(batch, work, SCHEMA, str(tmp_path / "table"))

    def run(writer: DataStreamWriter) -> list[str]:
        writer = writer.option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)
        table = DeltaTable(tmp_path / "table").to_pyarrow_table()
        return sorted(table["text"].to_pylist())

    topics.produce(topic, [b"1", b"2"])
    records = spark.readStream.format("keyrange").options(**given).load()
    each = keyrange.each_batch(into, given, str(checkpoint))
    assert run(records.writeStream.foreachBatch(each)) == ["1", "2"]
    if after == "the commit":
        for name in ("0", ".0.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
    topics.produce(topic, [b"3"])
    job = keyrange.job(given, work, SCHEMA)
    writer = job.into(str(tmp_path / "table"), str(checkpoint), spark=spark)
    assert run(writer) == ["1", "2", "3"]
