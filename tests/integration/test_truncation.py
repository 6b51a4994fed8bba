"""A log that lost its end: a follower that fell behind is made leader, and is written on.

The lost offsets are there again when the query comes back, with other records: only the leader
epochs tell.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from brokers import Topics, wait_until
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.embedded.settings import BrokerSettings
from keyrange.kafka.cluster import Cluster
from sources import Collected, client, planned_offsets, run_available_now, stream

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
COMMON = [b"common-%d" % n for n in range(10)]
LOST = [b"lost-%d" % n for n in range(10)]
WRITTEN_SINCE = [b"since-%d" % n for n in range(15)]


@dataclass
class Truncated:
    """The topic as it is after the election, and the checkpoint of a query from before it."""

    topics: Topics
    topic: str
    checkpoint: Path
    read_before: list[bytes]

    def frame(self, spark: SparkSession, fail_on_data_loss: str) -> DataFrame:
        return stream(
            spark,
            self.topics,
            self.topic,
            startingOffsets="earliest",
            failOnDataLoss=fail_on_data_loss,
        )

    def copy(self, home: Path) -> Path:
        return Path(shutil.copytree(self.checkpoint, home / "checkpoint"))


@pytest.fixture(scope="module")
def truncated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truncated]:
    """Three nodes, because the one that is left must still be able to elect."""
    with EmbeddedCluster(BrokerSettings(nodes=3, heap_mb=256)) as cluster:
        topics = Topics(cluster)
        topic = topics.create_topic("unclean", replicas=2, configs=UNCLEAN)
        checkpoint, sink = tmp_path_factory.mktemp("truncated"), Collected()
        made = Truncated(topics, topic, checkpoint, [])
        frame = made.frame(spark, "true")
        topics.produce(topic, COMMON)
        run_available_now(frame, checkpoint, sink)

        [described] = topics.admin.describe_topics([topic])
        [partition] = described["partitions"]
        leader = partition["leader_id"]
        [follower] = {each for each in partition["replica_nodes"] if each != leader}
        by_id = {node.node_id: node for node in cluster.nodes}
        by_id[follower].stop()
        topics.produce(topic, LOST, acks=1, enable_idempotence=False)
        run_available_now(frame, checkpoint, sink)
        made.read_before = sink.values

        topics.close()
        by_id[leader].kill()
        by_id[follower].start()
        observer = Cluster(client(cluster))
        wait_until(lambda: observer.describe([topic]).topics[topic].leaders[0].node_id == follower)
        observer.close()
        topics.produce(topic, WRITTEN_SINCE, acks=1, enable_idempotence=False)
        yield made
        topics.close()


def test_an_unclean_election_fails_the_query(
    spark: SparkSession, truncated: Truncated, tmp_path: Path
) -> None:
    sink = Collected()
    with pytest.raises(StreamingQueryException) as failure:
        run_available_now(truncated.frame(spark, "true"), truncated.copy(tmp_path), sink)

    assert truncated.read_before == COMMON + LOST
    assert truncated.topics.offsets(truncated.topic) == {0: (0, 25)}
    assert "[KAFKA_DATA_LOSS.LOG_TRUNCATED]" in str(failure.value)
    assert f"{truncated.topic}-0 was cut back below the position 20" in str(failure.value)
    assert "the same up to offset 10" in str(failure.value)
    assert sink.rows == []


def test_an_unclean_election_fails_the_replay_of_a_batch(
    spark: SparkSession, truncated: Truncated, tmp_path: Path
) -> None:
    checkpoint = truncated.copy(tmp_path)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    sink = Collected()
    with pytest.raises(StreamingQueryException) as failure:
        run_available_now(truncated.frame(spark, "true"), checkpoint, sink)

    assert "[KAFKA_DATA_LOSS.LOG_TRUNCATED]" in str(failure.value)
    assert "was cut back to 10 after a batch up to 20 was planned" in str(failure.value)
    assert sink.rows == []


def test_the_query_goes_on_where_the_logs_part(
    spark: SparkSession, truncated: Truncated, tmp_path: Path
) -> None:
    """With failOnDataLoss=false nothing that was written since is skipped, once and for all."""
    checkpoint, sink = truncated.copy(tmp_path), Collected()
    frame = truncated.frame(spark, "false")
    run_available_now(frame, checkpoint, sink)
    assert sink.values == WRITTEN_SINCE
    assert planned_offsets(checkpoint, 2)[truncated.topic] == {"0": 25}

    truncated.topics.produce(truncated.topic, [b"after"], acks=1, enable_idempotence=False)
    run_available_now(truncated.frame(spark, "true"), checkpoint, sink)
    assert sink.values == [*WRITTEN_SINCE, b"after"]
