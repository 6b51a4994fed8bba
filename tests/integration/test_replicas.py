"""Three brokers: leaders that move while they are read from, a replica that is damaged, one in the
reader's rack, and one that has lost the end of its log.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition as Place
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from brokers.real_broker import Topics, flip_byte, wait_until
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching import fetch_request
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import LATEST, TopicPartition
from keyrange.wire.chunk_decoder import DecodeSettings
from spark.sources import Collected, client, planned_offsets, read_all, run_available_now, stream

MOVES = 8
RACKS = ("a", "b", "c")
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
COMMON = [b"common-%d" % n for n in range(10)]
LOST = [b"lost-%d" % n for n in range(10)]
WRITTEN_SINCE = [b"since-%d" % n for n in range(15)]


@pytest.fixture(scope="module")
def three() -> Iterator[Topics]:
    with EmbeddedCluster(BrokerSettings(nodes=3, racks=RACKS, heap_mb=256)) as cluster:
        topics = Topics(cluster)
        yield topics
        topics.close()


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%06d" % n + b"x" * size for n in range(count)]


def replicas(topics: Topics, topic: str) -> tuple[int, list[int], set[int]]:
    """Who leads, all replicas with the preferred one first, and those in sync."""
    [described] = topics.admin.describe_topics([topic])
    [partition] = described["partitions"]
    return partition["leader_id"], partition["replica_nodes"], set(partition["isr_nodes"])


def move_leader(topics: Topics, topic: str) -> None:
    """Make the next replica the preferred one, and elect it."""
    _, [first, *others], _ = replicas(topics, topic)
    topics.admin.alter_partition_reassignments({Place(topic, 0): [*others, first]})

    def moved() -> bool:
        topics.admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
        return replicas(topics, topic)[0] == others[0]

    wait_until(moved)


@pytest.mark.slow  # as the nemesis has them, and elections are below
def test_leaders_that_move_again_and_again_while_they_are_read(
    three: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = three.create_topic("moves", replicas=3)
    values = numbered(2_000, 500)
    three.produce(topic, values)
    cluster = Cluster(client(three.cluster, max_partition_fetch_bytes=20_000))
    place = TopicPartition(topic, 0)
    view = cluster.describe([topic])
    end, epoch = cluster.list_offsets(view, {place: LATEST})[place]
    split = Split(TopicPartition(topic, 0), 0, end, 0, leader_epoch=epoch)
    reader = SplitReader(cluster, view, ReadSettings(DecodeSettings(), True, 60_000))
    found: list[Any] = []
    moved = 0
    with caplog.at_level(logging.INFO, "keyrange"):
        for batch in reader.read([split]):
            if len(found) > moved * len(values) / MOVES:
                move_leader(three, topic)
                moved += 1
            found += batch.column("value").to_pylist()
    epoch_now = cluster.describe([topic]).epoch(place)
    cluster.close()

    assert found == values
    assert moved == MOVES
    assert epoch_now >= epoch + MOVES
    assert "FENCED_LEADER_EPOCH" in caplog.text


def test_a_damaged_batch_is_read_from_another_replica(
    three: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = three.create_topic("damaged", replicas=3)
    values = numbered(30, 50)
    for value in values:
        three.produce(topic, [value])
    leader, nodes, _ = replicas(three, topic)
    wait_until(lambda: replicas(three, topic)[2] == set(nodes))
    by_id = {node.node_id: node for node in three.cluster.nodes}
    flip_byte(by_id[leader], topic, b"000017")
    found = read_all(client(three.cluster), topic)[0]
    assert [value for _, value in found] == values
    assert f"topic={topic}, partition=0, offset=17" in caplog.text
    assert "came from the leader, and is read again from replica" in caplog.text

    for node_id in set(nodes) - {leader}:
        flip_byte(by_id[node_id], topic, b"000017")
    with pytest.raises(KeyrangeError, match=r"CORRUPT_BATCH.*partition=0, offset=17"):
        read_all(client(three.cluster), topic)


def test_records_come_from_the_replica_in_the_clients_rack(
    three: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With client.rack (KIP-392): the leader is asked once, and tells of the follower there."""
    asked: list[int] = []
    connection = Cluster.connection
    ports = {node.port(): node.node_id for node in three.cluster.nodes}

    def spy(self: Cluster, host: str, port: int, *more: Any, **named: Any) -> object:
        if sys._getframe(1).f_code.co_filename == fetch_request.__file__:
            asked.append(ports[port])
        return connection(self, host, port, *more, **named)

    monkeypatch.setattr(Cluster, "connection", spy)
    topic = three.create_topic("racks", replicas=3)
    three.produce(topic, numbered(2_000, 100))
    leader, nodes, _ = replicas(three, topic)
    wait_until(lambda: replicas(three, topic)[2] == set(nodes))
    follower = next(each for each in nodes if each != leader)
    for node_id in (leader, follower):
        asked.clear()
        rack = RACKS[node_id - 1]
        settings = client(three.cluster, client_rack=rack, max_partition_fetch_bytes=50_000)
        values = [value for _, value in read_all(settings, topic)[0]]
        assert values == numbered(2_000, 100)
        assert set(asked) == {leader, node_id}
        assert asked.count(node_id) > 1


@dataclass
class Truncated:
    """A topic that lost the end of its log: a follower that had fallen behind was made leader, and
    was written on. The lost offsets are there again when the query comes back, with other records:
    only the leader epochs tell. Beside it the checkpoint of a query from before."""

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
def truncated(
    spark: SparkSession, three: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Truncated:
    """Of three brokers, because the one that is left must still be able to elect. One is dead from
    then on: the tests of this stand at the end of the file."""
    topic = three.create_topic("unclean", replicas=2, configs=UNCLEAN)
    checkpoint, sink = tmp_path_factory.mktemp("truncated"), Collected()
    made = Truncated(three, topic, checkpoint, [])
    frame = made.frame(spark, "true")
    three.produce(topic, COMMON)
    run_available_now(frame, checkpoint, sink)

    leader, nodes, _ = replicas(three, topic)
    [follower] = set(nodes) - {leader}
    by_id = {node.node_id: node for node in three.cluster.nodes}
    by_id[follower].stop()
    three.produce(topic, LOST, acks=1, enable_idempotence=False)
    run_available_now(frame, checkpoint, sink)
    made.read_before = sink.values

    three.close()
    by_id[leader].kill()
    by_id[follower].start()
    observer = Cluster(client(three.cluster))
    wait_until(lambda: observer.describe([topic]).topics[topic].leaders[0].node_id == follower)
    observer.close()
    three.produce(topic, WRITTEN_SINCE, acks=1, enable_idempotence=False)
    return made


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
