"""Streaming reads of real topics: checkpoints, limits in bytes, losses, progress. Triggers, limits,
replays and topics that change are as with the JVM connector, beside which tests/parity reads."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from samples.old_checkpoints import make_old_checkpoint
from spark.sources import Collected, committed, planned_offsets, run_available_now, stream


def test_available_now_restart_and_new_partition(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Every record once over three runs, with a partition added between them."""
    topic = topics.create_topic("restart", 2)
    sink = Collected()
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    topics.produce(topic, [b"%d" % n for n in range(50)])
    run_available_now(frame, tmp_path, sink)
    topics.produce(topic, [b"%d" % n for n in range(50, 80)])
    run_available_now(frame, tmp_path, sink)
    topics.add_partitions(topic, 3)
    topics.produce(topic, [Record(b"%d" % n, None, 2) for n in range(80, 90)])
    run_available_now(frame, tmp_path, sink)

    assert sorted(map(int, sink.values)) == list(range(90))
    assert all(len(runs) == 1 for runs in sink.batches.values())


def test_nothing_new_runs_no_batch(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Offsets compare as text: with nothing moved the text stays, idle and over restarts."""
    topic = topics.create_topic("idle", 2)
    topics.produce(topic, [b"x"])
    sink = Collected()
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    run_available_now(frame, tmp_path, sink)
    run_available_now(frame, tmp_path, sink)
    idle = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path))
    # Without an interval Spark asks a hundred times a second.
    query = idle.trigger(processingTime="250 milliseconds").start()
    time.sleep(3)
    query.stop()

    assert list(sink.batches) == [0]


def test_max_bytes_per_trigger(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """About 200 KB of log a batch, where records of 1 KB and of 100 bytes lie side by side."""
    topic = topics.create_topic("bytes", 2)
    topics.produce(topic, [Record(b"x" * 1000, None, 0) for _ in range(1000)])
    topics.produce(topic, [Record(b"x" * 100, None, 1) for _ in range(1000)])
    sink = Collected()
    frame = stream(spark, topics, topic, startingOffsets="earliest", maxBytesPerTrigger="200k")
    run_available_now(frame, tmp_path, sink)

    sizes = [sum(len(row[3]) for row in runs[0]) for runs in sink.batches.values()]
    assert len(sink.rows) == 2000
    assert 5 <= len(sizes) <= 8
    assert max(sizes) <= 1.2 * 200 * 1024


def test_offsets_are_the_jvm_connectors_plus_one_key(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("offsets", 2)
    topics.produce(topic, [Record(b"x", None, 0), Record(b"y", None, 1), Record(b"z", None, 1)])
    run_available_now(
        stream(spark, topics, topic, startingOffsets="earliest"), tmp_path, Collected()
    )

    end = planned_offsets(tmp_path, 0)
    extra = end.pop("@keyrange")
    assert end == {topic: {"0": 1, "1": 2}}
    assert extra["version"] == 1
    assert extra["leaderEpochs"] == {topic: {"0": 0, "1": 0}}
    assert len(extra["topicIds"][topic]) == 32


@pytest.mark.parametrize("done", [2, 1])
def test_a_checkpoint_of_spark_2_4_goes_on(
    spark: SparkSession, topics: Topics, tmp_path: Path, done: int
) -> None:
    """Batch 1 is committed, or planned: then it is read again, and is exactly what it was."""
    topic, sink = topics.create_topic("old", 2), Collected()
    topics.produce(topic, [Record(b"%d" % n, None, n % 2) for n in range(20)])
    home = make_old_checkpoint(tmp_path / "checkpoint", topic, done)
    run_available_now(stream(spark, topics, topic), home, sink)

    found = {b: [(p, at) for _, p, at, _ in runs[-1]] for b, runs in sink.batches.items()}
    rest = [*((0, at) for at in range(8, 10)), *((1, at) for at in range(7, 10))]
    replayed = [*((0, at) for at in range(5, 8)), *((1, at) for at in range(4, 7))]
    assert found == ({2: rest} if done == 2 else {1: replayed, 2: rest})
    assert committed(home) == [0, 1, 2]


def test_a_first_batch_of_spark_2_4_says_where_it_began_or_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Where it began is in sources/0/0, which `keyrange checkpoint export` prints."""
    topic, sink = topics.create_topic("old", 2), Collected()
    topics.produce(topic, [Record(b"%d" % n, None, n % 2) for n in range(20)])
    home = make_old_checkpoint(tmp_path / "checkpoint", topic, committed=0)
    (home / "offsets" / "1").unlink()
    with pytest.raises(StreamingQueryException, match="startingOffsets"):
        run_available_now(stream(spark, topics, topic), home, sink)
    assert sink.batches == {}
    given = json.dumps({topic: {"0": 2, "1": 0}})
    run_available_now(stream(spark, topics, topic, startingOffsets=given), home, sink)

    places = sorted((partition, at) for _, partition, at, _ in sink.rows)
    assert places == [*((0, at) for at in range(2, 10)), *((1, at) for at in range(10))]


def test_a_deleted_topic_holds_up_no_other(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    gone, kept = topics.create_topic("gone"), topics.create_topic("kept")
    for topic in (gone, kept):
        topics.produce(topic, [b"before"])
    given = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    frame = stream(spark, topics, f"{gone},{kept}", **given)
    run_available_now(frame, tmp_path, Collected())
    topics.delete_topic(gone)
    topics.produce(kept, [b"after"])
    sink = Collected()
    run_available_now(frame, tmp_path, sink)
    assert sink.values == [b"after"]


def test_records_gone_before_they_were_read(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("gone")
    topics.produce(topic, [b"%d" % n for n in range(10)])
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    run_available_now(frame, tmp_path, Collected())
    topics.produce(topic, [b"%d" % n for n in range(10, 20)])
    topics.delete_records(topic, {0: 15})

    with pytest.raises(StreamingQueryException) as failure:
        run_available_now(frame, tmp_path, Collected())
    topics.produce(topic, [b"%d" % n for n in range(20, 25)])
    sink = Collected()
    lenient = stream(spark, topics, topic, failOnDataLoss="false")
    query = run_available_now(lenient, tmp_path, sink)

    assert f"cannot read offsets [10, 20) of topic partition {topic}-0" in str(failure.value)
    assert list(map(int, sink.values)) == list(range(15, 25))
    # Batch 1 runs again without a place for figures: what it lost is told with the next one.
    latest = json.loads(query.recentProgress[-1].json)["sources"][0]["latestOffset"]
    interval = {"topic": topic, "partition": 0, "fromOffset": 10, "untilOffset": 15}
    assert latest["@keyrange"]["metrics"]["losses"] == {"offsets": 5, "found": [interval]}


def test_lag_can_be_read_off_the_progress(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """latestOffset of the progress is where the partitions end, also when a limit holds back."""
    topic = topics.create_topic("lag")
    topics.produce(topic, [b"x"] * 10)
    frame = stream(spark, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query = run_available_now(frame, tmp_path, Collected())

    source = json.loads(query.recentProgress[0].json)["sources"][0]
    assert source["latestOffset"].pop("@keyrange") == {"metrics": {}}
    assert source["latestOffset"] == {topic: {"0": 10}}
    assert source["endOffset"][topic] == {"0": 4}


def test_missing_topic_is_named_soon(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    known = topics.create_topic("known")
    frame = stream(spark, topics, f"{known},no-such-topic,neither")
    began = time.monotonic()

    with pytest.raises(StreamingQueryException) as failure:
        run_available_now(frame, tmp_path, Collected())

    assert time.monotonic() - began < 60
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(failure.value)
    assert "no topic named neither, no-such-topic" in str(failure.value)
