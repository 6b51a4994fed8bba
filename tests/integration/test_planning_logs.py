"""KEYRANGE_LOG in the process in which Spark plans a stream: what keyrange says there is JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from brokers.real_broker import Record, Topics
from spark.notebooks import run_alone

pytestmark = [pytest.mark.broker, pytest.mark.slow]

JOB = """
import sys
from pyspark.sql import SparkSession

servers, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").getOrCreate()
options = {
    "kafka.bootstrap.servers": servers,
    "subscribe": topic,
    "startingOffsets": "earliest",
    "guard.admission": "true",
    "kafka.admin.bootstrap.servers": servers,
    "min.available.ratio": "0.0000001",
}
writer = spark.readStream.format("keyrange").options(**options).load().writeStream.format("noop")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
"""


def test_a_planning_process_logs_json_where_it_is_asked_to(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("logged", partitions=1)
    topics.produce(topic, [Record(b"value", partition=0)])
    job = tmp_path / "job.py"
    job.write_text(JOB)
    servers = topics.cluster.bootstrap_servers
    given = (servers, topic, str(tmp_path / "checkpoint"))
    # Alone: the environment of a planning process is that of Spark's JVM.
    ended = run_alone(job, *given, directory=tmp_path, KEYRANGE_LOG="json")
    lines = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    said = [each for each in lines if each["logger"] == "keyrange.source.guard_admission"]
    assert [each["level"] for each in said] == ["INFO"], ended.stderr[-3000:]
    assert said[0]["message"].startswith("the throttle factor is 1.0")
