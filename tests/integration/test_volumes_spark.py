"""Queries that the volume guard holds back."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from queries.table_jobs import TableJob, individual
from spark.sources import Collected, committed, run_available_now, stream

cloudpickle.register_pickle_by_value(sys.modules[__name__])

# Longer than a check's interval and what an idle query waits between two looks.
HELD_S = 4.0


def by_file(path: Path) -> dict[str, str]:
    return {
        "startingOffsets": "earliest",
        "guard.admission": "true",
        "throttle.factor.source": "file",
        "throttle.factor.file": str(path),
        "storage.check.interval": "PT0.2S",
    }


def by_volumes(topics: Topics, limit: str, value: str) -> dict[str, str]:
    return {
        "startingOffsets": "earliest",
        "guard.admission": "true",
        "kafka.admin.bootstrap.servers": topics.cluster.bootstrap_servers,
        limit: value,
    }


def test_a_query_takes_in_nothing_while_the_factor_is_0(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("held")
    factor = tmp_path / "factor"
    factor.write_text("1")
    sink = Collected()
    frame = stream(spark, topics, topic, **by_file(factor))
    topics.produce(topic, [b"before"])
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: sink.values == [b"before"])
        factor.write_text("0")
        time.sleep(HELD_S)
        topics.produce(topic, [b"after"])
        time.sleep(HELD_S)
        assert query.isActive
        assert sink.values == [b"before"]
        factor.write_text("1")
        wait_until(lambda: sink.values == [b"before", b"after"])
        progress = query.lastProgress
        assert progress is not None
        metrics = json.loads(progress["sources"][0]["latestOffset"])["@keyrange"]["metrics"]
        assert metrics["volumes"]["throttleFactor"] == 1.0
    finally:
        query.stop()


def test_a_run_with_available_now_ends_cleanly(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("held")
    topics.produce(topic, [b"1", b"2"])
    factor, checkpoint = tmp_path / "factor", tmp_path / "checkpoint"
    factor.write_text("0")
    sink = Collected()
    frame = stream(spark, topics, topic, **by_file(factor))
    run_available_now(frame, checkpoint, sink)
    run_available_now(frame, checkpoint, sink)
    # The first batch of a query writes down where it starts.
    assert (sink.values, committed(checkpoint)) == ([], [0])
    factor.write_text("1")
    run_available_now(frame, checkpoint, sink)
    assert sink.values == [b"1", b"2"]


def test_a_query_is_not_held_until_retention_takes_its_records(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Old records go in 40 s; of ten minutes the last one is for reading what is about to go."""
    topic = topics.create_topic("held", configs={"retention.ms": "600000"})
    now_ms = int(time.time() * 1000)
    old = [Record(b"old", timestamp_ms=now_ms - 560_000)] * 2
    topics.produce(topic, [*old, Record(b"young", timestamp_ms=now_ms)])
    factor = tmp_path / "factor"
    factor.write_text("0")
    sink = Collected()
    frame = stream(spark, topics, topic, **by_file(factor))
    run_available_now(frame, tmp_path / "checkpoint", sink)
    assert sink.values == [b"old", b"old"]
    factor.write_text("1")
    run_available_now(frame, tmp_path / "checkpoint", sink)
    assert sink.values == [b"old", b"old", b"young"]


@pytest.mark.parametrize(
    ("limit", "value", "expected"),
    [("min.available.ratio", "1.0", []), ("min.available.bytes", "0", [b"x"])],
)
def test_the_volumes_of_the_cluster_say_it(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    limit: str,
    value: str,
    expected: list[bytes],
) -> None:
    """No volume has all of it available, and each has something."""
    topic = topics.create_topic("held")
    topics.produce(topic, [b"x"])
    sink = Collected()
    frame = stream(spark, topics, topic, **by_volumes(topics, limit, value))
    run_available_now(frame, tmp_path, sink)
    assert sink.values == expected


def test_an_address_where_nobody_answers_is_refused_at_the_start(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("held")
    given = by_volumes(topics, "min.available.ratio", "0.1")
    frame = stream(spark, topics, topic, **given | {"kafka.admin.bootstrap.servers": "127.0.0.1:9"})
    with pytest.raises(StreamingQueryException, match=r"BROKER_UNREACHABLE.*127\.0\.0\.1:9"):
        run_available_now(frame, tmp_path, Collected())


def count_values(record: Any, state: Any) -> tuple[bytes, int]:
    n = state.seen.get(default=0) + 1
    state.seen.update(n)
    return record.key, n


def test_a_job_with_state_waits_for_room_also_over_a_restart(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    factor = tmp_path / "factor"
    job = TableJob(spark, topics, tmp_path)
    given = individual(tmp_path, splitBy="keyRange", **by_file(factor))
    given.pop("startingOffsets")
    state = {"seen": keyrange.ValueState("n long")}

    def begun() -> StreamingQuery:
        every = {"processingTime": "0 seconds"}
        return job.start(count_values, "key binary, n long", state=state, trigger=every, **given)

    def counted() -> list[int]:
        return sorted(row["n"] for row in job.rows())

    factor.write_text("1")
    job.produce(*(Record(b"%d" % n, b"k", 0) for n in range(3)))
    query = begun()
    try:
        wait_until(lambda: counted() == [1, 2, 3])
        factor.write_text("0")
        time.sleep(HELD_S)
        job.produce(*(Record(b"%d" % n, b"k", 0) for n in range(3)))
        query.stop()
        query = begun()
        time.sleep(HELD_S)
        assert query.isActive
        assert counted() == [1, 2, 3]
        factor.write_text("1")
        wait_until(lambda: counted() == [1, 2, 3, 4, 5, 6])
    finally:
        query.stop()
