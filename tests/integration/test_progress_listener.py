"""The listener and `keyrange watch` on a query that runs, fails and comes back."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from brokers.real_broker import Record, Topics
from commands.commanding import document
from keyrange import ProgressListener
from keyrange.observing.progress_file import read_last
from spark.sources import Collected, run_available_now, stream


def test_a_query_is_followed_over_a_failure(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create_topic("followed", partitions=2)
    topics.produce(topic, [Record(b"v%d" % n, key=b"k%d" % n, partition=n % 2) for n in range(40)])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", "splitBy": "keyRange"}
    frame = stream(spark, topics, topic, keyRangesPerPartition="2", bytesPerTask="0", **options)
    file, checkpoint, registry = tmp_path / "p.jsonl", tmp_path / "checkpoint", CollectorRegistry()
    listener = ProgressListener(progress_file=file, prometheus=registry, partitions=1)
    collected = Collected()

    def fails(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 2:
            raise ValueError("s3cret")
        collected(batch, batch_id)

    caplog.set_level(logging.INFO, "keyrange.observing.listener")
    spark.streams.addListener(listener)
    try:
        with pytest.raises(StreamingQueryException):
            run_available_now(frame, checkpoint, fails)
        query = run_available_now(frame, checkpoint, collected)
        assert listener.wait_ended(str(query.runId), 60)
    finally:
        spark.streams.removeListener(listener)

    told = read_last(file, 100, str(query.id))
    assert [each["batchId"] for each in told] == [0, 1, 2, 3]
    assert len({each["runId"] for each in told}) == 2
    assert sum(each["numInputRows"] for each in told) == len(collected.rows) == 40
    labels = {"query": str(query.id)}
    assert registry.get_sample_value("keyrange_batches_total", labels) == 4
    assert registry.get_sample_value("keyrange_records_total", labels) == 40
    assert registry.get_sample_value("keyrange_query_failures_total", labels) == 1
    assert registry.get_sample_value("keyrange_query_running", labels) == 0
    # The plan of a batch is told with the next one of its run.
    assert (
        registry.get_sample_value("keyrange_read_bytes_total", labels | {"source": "0"}) or 0
    ) > 0
    lines = [text for text in caplog.messages if text.startswith("batch ")]
    assert [text.split(" in ")[0] for text in lines] == [f"batch {n}: 10 records" for n in range(4)]
    # Spark asks for no ends before it runs a batch again that an earlier run has planned.
    assert [text.split("lag ")[1].split(",")[0] for text in lines] == ["30", "20", "not known", "0"]
    assert "by 4 key ranges sent 1.00 times" in lines[3]
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("keyrange")]
    assert not [text for text in ours if "s3cret" in text]

    servers = ("--bootstrap-servers", topics.cluster.bootstrap_servers)
    found = document("watch", checkpoint, "--progress", file, *servers, "--once")
    assert (found["state"], found["failures"], found["why"]) == ("caught up", [], [])
    assert (found["lag"]["read"], found["lag"]["known_by"]) == (0, "now")
    assert found["rate"]["records_per_s"] > 0
    assert [row["committed"] for row in found["partitions"]] == [20, 20]
