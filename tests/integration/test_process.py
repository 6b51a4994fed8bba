"""`keyrange.process` from a real broker to real Delta tables: what fails."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Topics
from queries.individual import AT_ONCE, Job, values


def test_what_fails_ends_in_the_dead_letters_and_all_else_in_the_sink(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, failing = topics.create_topic("process", partitions=2), range(5, 200, 23)
    topics.produce(topic, values(range(200), failing))
    given = {
        "maxDeliveries": "2",
        "availableNow.redelivery": "drain",
        "splitBy": "keyRange",
        "keyRangesPerPartition": "4",
    }
    job = Job(spark, topics, topic, tmp_path, **AT_ONCE, **given)
    job.run()
    assert job.numbers() == [n for n in range(200) if n not in failing]
    dead = DeltaTable(f"{job.table}_dead_letters").to_pyarrow_table().to_pylist()
    assert sorted(row["value"] for row in dead) == sorted(b"!%d" % n for n in failing)
    assert {row["attempts"] for row in dead} == {2}
    assert all(row["error"].startswith("ValueError: no !") for row in dead)
