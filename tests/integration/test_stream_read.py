"""Streaming reads of real topics: triggers, restarts, limits, replays, topics that change."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from brokers import Record, Topics, wait_until
from old_checkpoints import make_old_checkpoint
from sources import Collected, committed, planned_offsets, run_available_now, stream


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
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path)).start()
    time.sleep(3)
    query.stop()

    assert list(sink.batches) == [0]


def test_max_offsets_per_trigger(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Shared by what is pending, as the JVM connector does: limit 10 over 20, 5 and 1."""
    topic = topics.create_topic("limit", 3)
    for partition, count in enumerate((20, 5, 1)):
        topics.produce(topic, [Record(b"%d" % n, None, partition) for n in range(count)])
    sink = Collected()
    frame = stream(spark, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    run_available_now(frame, tmp_path, sink)

    sizes = [len(runs[0]) for runs in sink.batches.values()]
    assert sizes == [9, 9, 8]
    assert len(sink.rows) == 26


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


def test_trigger_once_ignores_limits(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("once")
    topics.produce(topic, [b"x"] * 20)
    sink = Collected()
    frame = stream(spark, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(once=True)
        .start()
    )

    assert query.awaitTermination(240)
    assert [len(runs[0]) for runs in sink.batches.values()] == [20]


def test_processing_time_follows_the_topic(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Default start is latest; records and a partition that come while it runs are read."""
    topic = topics.create_topic("follow")
    topics.produce(topic, [b"before"])
    sink = Collected()
    query = (
        stream(spark, topics, topic)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        wait_until(lambda: 0 in committed(tmp_path))
        topics.produce(topic, [b"one", b"two"])
        wait_until(lambda: len(sink.rows) == 2)
        topics.add_partitions(topic, 2)
        topics.produce(topic, [Record(b"three", None, 1)])
        wait_until(lambda: len(sink.rows) == 3)
    finally:
        query.stop()

    assert sorted(sink.values) == [b"one", b"three", b"two"]


def test_initial_positions_survive_a_failed_first_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Batch 0 is planned and fails; a restart reads the range that was planned, not a later one."""
    topic = topics.create_topic("initial")
    topics.produce(topic, [b"before"])
    seen: list[int] = []

    def failing(frame: DataFrame, batch_id: int) -> None:
        seen.append(frame.count())
        raise RuntimeError("the sink failed")

    frame = stream(spark, topics, topic)
    once = frame.writeStream.foreachBatch(failing).option("checkpointLocation", str(tmp_path))
    query = once.start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(240)
    end = planned_offsets(tmp_path, 0)
    topics.produce(topic, [b"after"])
    sink = Collected()
    run_available_now(frame, tmp_path, sink)

    assert end[topic] == {"0": 1}
    assert end["@keyrange"]["initial"] == {topic: {"0": 1}}
    assert sink.values == [b"after"]


def test_replay_reads_the_same_rows(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """A batch whose commit is missing runs again with the same rows, though more came since."""
    topic = topics.create_topic("replay", 2)
    topics.produce(topic, [b"%d" % n for n in range(40)])
    sink = Collected()
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    run_available_now(frame, tmp_path, sink)
    topics.produce(topic, [b"%d" % n for n in range(40, 60)])
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink(missing_ok=True)
    run_available_now(frame, tmp_path, sink)

    first, second = sink.batches[0]
    assert first == second
    assert sorted(map(int, sink.values)) == list(range(60))


def test_two_sources_in_one_query(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    left, right = topics.create_topic("left"), topics.create_topic("right")
    topics.produce(left, [b"l"] * 7)
    topics.produce(right, [b"r"] * 5)
    sink = Collected()
    frame = stream(spark, topics, left, startingOffsets="earliest").union(
        stream(spark, topics, right, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    )
    run_available_now(frame, tmp_path, sink)
    topics.produce(right, [b"r"])
    run_available_now(frame, tmp_path, sink)

    assert sorted(sink.values) == [b"l"] * 7 + [b"r"] * 6


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


def test_checkpoint_of_the_jvm_connector_goes_on(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Where the last batch was committed, an offset without the reserved key is enough."""
    topic = topics.create_topic("jvm")
    topics.produce(topic, [b"%d" % n for n in range(10)])
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    run_available_now(frame, tmp_path, Collected())
    log = tmp_path / "offsets" / "0"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:2], json.dumps({topic: {"0": 6}})]))
    (tmp_path / "offsets" / ".0.crc").unlink(missing_ok=True)
    sink = Collected()
    run_available_now(frame, tmp_path, sink)

    assert sink.values == [b"6", b"7", b"8", b"9"]


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


def test_recreated_topic_is_data_loss(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Seen by its id; with failOnDataLoss=false the new records are read, not skipped."""
    topic = topics.create_topic("recreated")
    topics.produce(topic, [b"old"] * 10)
    frame = stream(spark, topics, topic, startingOffsets="earliest")
    run_available_now(frame, tmp_path, Collected())
    topics.delete_topic(topic)
    recreate(topics, topic)
    topics.produce(topic, [b"new"] * 3)

    with pytest.raises(StreamingQueryException, match=r"KAFKA_DATA_LOSS\.TOPIC_RECREATED"):
        run_available_now(frame, tmp_path, Collected())
    sink = Collected()
    lenient = stream(spark, topics, topic, failOnDataLoss="false")
    run_available_now(lenient, tmp_path, sink)
    again = Collected()
    run_available_now(lenient, tmp_path, again)

    assert sink.values == [b"new"] * 3
    assert again.batches == {}


@pytest.mark.parametrize("fails", [True, False])
def test_deleted_topic(spark: SparkSession, topics: Topics, tmp_path: Path, fails: bool) -> None:
    """One of two is gone: an error that names its partitions, or a warning and the other's rows."""
    gone, kept = topics.create_topic("gone"), topics.create_topic("kept")
    for topic in (gone, kept):
        topics.produce(topic, [b"before"])
    given = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    frame = stream(spark, topics, f"{gone},{kept}", **given)
    run_available_now(frame, tmp_path, Collected())
    topics.delete_topic(gone)
    topics.produce(kept, [b"after"])
    sink = Collected()
    if fails:
        with pytest.raises(StreamingQueryException, match=rf"PARTITIONS_DELETED.*{gone}-0"):
            run_available_now(frame, tmp_path, sink)
        assert sink.values == []
    else:
        run_available_now(frame, tmp_path, sink)
        assert sink.values == [b"after"]


def recreate(topics: Topics, topic: str) -> None:
    from kafka.admin import NewTopic

    def created() -> bool:
        try:
            topics.admin.create_topics([NewTopic(topic, 1, 1)])
        except Exception:  # the broker is still deleting
            return False
        return True

    wait_until(created)


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
