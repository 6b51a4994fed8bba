"""Three brokers: leaders that move while they are read from, and a replica that is damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition as Place

from brokers import Topics, wait_until
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.model.offsets import LATEST, TopicPartition
from keyrange.ranges.model.offset_splits import Split
from keyrange.wire.chunk_decoder import DecodeSettings
from sources import client, read_all

MOVES = 8


@pytest.fixture(scope="module")
def three() -> Iterator[Topics]:
    with EmbeddedCluster(BrokerSettings(nodes=3, heap_mb=256)) as cluster:
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
    split = Split(topic, 0, 0, end, 0, leader_epoch=epoch)
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


def damage(topics: Topics, topic: str, node_id: int, value: bytes) -> None:
    """Change one byte of a value in one broker's log, while it runs: brokers read from the file."""
    [node] = [each for each in topics.cluster.nodes if each.node_id == node_id]
    log = next(node.log_dir.glob(f"{topic}-0/*.log"))
    at = log.read_bytes().index(value)
    with log.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value[0] ^ 1]))


def test_a_damaged_batch_is_read_from_another_replica(
    three: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = three.create_topic("damaged", replicas=3)
    values = numbered(30, 50)
    for value in values:
        three.produce(topic, [value])
    leader, nodes, _ = replicas(three, topic)
    wait_until(lambda: replicas(three, topic)[2] == set(nodes))
    damage(three, topic, leader, b"000017")
    found = read_all(client(three.cluster), topic)[0]
    assert [value for _, value in found] == values
    assert f"topic={topic}, partition=0, offset=17" in caplog.text
    assert "came from the leader, and is read again from replica" in caplog.text

    for node_id in set(nodes) - {leader}:
        damage(three, topic, node_id, b"000017")
    with pytest.raises(KeyrangeError, match=r"CORRUPT_BATCH.*partition=0, offset=17"):
        read_all(client(three.cluster), topic)
