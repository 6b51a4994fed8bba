"""Between keyrange and Spark's own Kafka connector: both resume for real from what is exported."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import Result

from brokers.real_broker import Record, Topics
from commands.commanding import run
from commands.documents import read_document
from keyrange.embedded import jars
from keyrange.errors import InvalidError, KeyrangeError
from spark.sources import Collected, committed, options, run_available_now, stream


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    """The shared session, where it has the jars of the JVM connector."""
    try:
        jars.resolve(jars.spark_kafka())
    except KeyrangeError as failure:
        pytest.skip(f"the jars of the JVM connector cannot be had: {failure}")
    return spark


def jvm_stream(spark: SparkSession, topics: Topics, topic: str, **given: str) -> DataFrame:
    return spark.readStream.format("kafka").options(**options(topics, topic, **given)).load()


def keyrange(*arguments: object) -> Result:
    result = run("checkpoint", *arguments)
    if isinstance(result.exception, KeyrangeError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def to_delta(frame: DataFrame, checkpoint: Path, table: Path) -> str:
    """Read what is there into a table; returns the query's id."""
    query = (
        frame.writeStream.format("delta")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(table))
    )
    assert query.awaitTermination(240)
    return str(query.id)


def count_by_value(table: Path) -> Counter[int]:
    return Counter(
        map(int, DeltaTable(table).to_pyarrow_table(columns=["value"])["value"].to_pylist())
    )


def fail(frame: DataFrame, batch_id: int) -> None:
    frame.count()
    raise RuntimeError("the sink failed")


def plan_and_fail(frame: DataFrame, checkpoint: Path) -> None:
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        run_available_now(frame, checkpoint, fail)


def uncommit(checkpoint: Path, batch_id: int) -> None:
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink()


def test_the_jvm_connector_goes_on_from_a_copy(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Same query id, batch numbers that go on, and Delta knows the last batch of keyrange again."""
    topic, old, new, table = topics.create_topic("copy", 2), *(tmp_path / n for n in "abc")
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    topics.produce(topic, [b"%d" % n for n in range(20)])
    to_delta(frame, old, table)
    topics.add_partitions(topic, 3)
    topics.produce(topic, [Record(b"%d" % n, None, n % 3) for n in range(20, 35)])
    query_id = to_delta(frame, old, table)

    printed = read_document(keyrange("export", old, "--to", new).stdout)
    # As if the driver had died between the write and the commit: the batch is run again.
    uncommit(new, 1)
    topics.produce(topic, [Record(b"%d" % n, None, n % 3) for n in range(35, 50)])
    jvm = jvm_stream(spark, topics, topic, startingOffsets="latest")
    resumed = to_delta(jvm, new, table)

    assert printed["query_id"] == query_id == resumed
    assert printed["sources"] == [0]
    assert committed(new) == [0, 1, 2]
    assert count_by_value(table) == Counter(range(50))
    for number in range(3):
        assert "@keyrange" not in (new / "offsets" / str(number)).read_text()
    assert committed(old) == [0, 1]


def test_state_goes_along_with_a_copy(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """What keyrange's run has seen is a duplicate for the JVM connector's."""
    topic, old, new = topics.create_topic("state", 1), tmp_path / "a", tmp_path / "b"
    topics.produce(topic, [b"%d" % n for n in range(10)])
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    run_available_now(frame.dropDuplicates(["value"]), old, Collected())
    keyrange("export", old, "--to", new)
    topics.produce(topic, [b"%d" % n for n in range(5, 15)])
    jvm, sink = jvm_stream(spark, topics, topic), Collected()
    run_available_now(jvm.dropDuplicates(["value"]), new, sink)

    assert sorted(map(int, sink.values)) == list(range(10, 15))


def test_the_jvm_connector_reads_the_initial_offsets_of_a_copy(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """A replay of batch 0 begins where sources/0/0 says, and nowhere else."""
    topic, old, new = topics.create_topic("initial", 1), tmp_path / "a", tmp_path / "b"
    topics.produce(topic, [b"%d" % n for n in range(10)])
    start = json.dumps({topic: {"0": 4}})
    run_available_now(stream(spark, topics, topic, startingOffsets=start), old, Collected())
    keyrange("export", old, "--to", new)
    uncommit(new, 0)
    sink = Collected()
    run_available_now(jvm_stream(spark, topics, topic, startingOffsets="latest"), new, sink)

    assert sink.values == [b"%d" % n for n in range(4, 10)]


def test_the_jvm_connector_starts_from_exported_positions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """An unfinished batch is read again, and no copy is made of it."""
    topic, old, new = topics.create_topic("positions", 2), tmp_path / "a", tmp_path / "b"
    topics.produce(topic, [b"%d" % n for n in range(20)])
    frame, before = stream(spark, topics, topic, startingOffsets="earliest"), Collected()
    run_available_now(frame, old, before)
    topics.add_partitions(topic, 3)
    topics.produce(topic, [Record(b"%d" % n, None, n % 3) for n in range(20, 35)])
    plan_and_fail(frame, old)

    exported = keyrange("export", old)
    with pytest.raises(InvalidError, match=r"\[BATCH_NOT_COMMITTED\].*batch 1"):
        keyrange("export", old, "--to", new)
    assert not new.exists()
    after = Collected()
    positions = exported.stdout.strip()
    run_available_now(jvm_stream(spark, topics, topic, startingOffsets=positions), new, after)

    assert "batch 1 is planned and not committed" in exported.stderr
    assert sorted(map(int, before.values)) == list(range(20))
    assert sorted(map(int, after.values)) == list(range(20, 35))


def test_the_jvm_connectors_first_positions_are_shown_and_exported(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Batch 0 planned and not committed: only sources/0/0 says where it began."""
    topic = topics.create_topic("jvm", 2)
    topics.produce(topic, [Record(b"%d" % n, None, n % 2) for n in range(10)])
    start = {topic: {"0": 3, "1": 0}}
    plan_and_fail(
        jvm_stream(spark, topics, topic, startingOffsets=json.dumps(start)), tmp_path / "a"
    )

    shown: dict[str, Any] = read_document(
        keyrange("show", tmp_path / "a", "--output", "json").stdout
    )
    assert shown["sources"] == [
        {"source": 0, "written_by": "kafka", "commit_mode": "batch", "initial": start}
    ]
    assert [row["from_offset"] for row in shown["positions"]] == [3, 0]
    exported = keyrange("export", tmp_path / "a").stdout
    assert json.loads(exported) == start
    sink = Collected()
    run_available_now(stream(spark, topics, topic, startingOffsets=exported), tmp_path / "b", sink)
    assert sorted(map(int, sink.values)) == [1, 3, 5, 6, 7, 8, 9]
