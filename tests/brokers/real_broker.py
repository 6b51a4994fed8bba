"""A real broker for the tests of a session, and what tests do to it.

Rule of this file: topic names are unique, so tests share the broker and never clean up after each
other. Everything goes through kafka-python's public clients, never through keyrange.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from brokers.java import hanging
from brokers.old_brokers import OldBroker
from brokers.secured_brokers import SecuredBroker, SecuredCluster, SecuredSettings
from keyrange.embedded import jars
from keyrange.embedded.broker import BrokerNode, EmbeddedBroker, EmbeddedCluster

USER, PASSWORD = "alice", "alice-secret"
SHARED_SETTINGS = SecuredSettings(
    listeners=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    users={USER: PASSWORD},
    properties={
        "message.max.bytes": str(64 << 20),
        "replica.fetch.max.bytes": str(64 << 20),
        # Tests write records of any time; only a test of retention wants them deleted.
        "log.retention.ms": "-1",
        # 15 s are long where a test waits for compaction.
        "log.cleaner.backoff.ms": "1000",
        # Some keep a transaction open until all that share the broker are done.
        "transaction.max.timeout.ms": "3600000",
    },
)


@dataclass(frozen=True)
class Record:
    """What a test sends. `timestamp_ms` None is now; `partition` None is the producer's choice."""

    value: bytes | None = b""
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


def client_config(
    cluster: EmbeddedCluster, protocol: str = "PLAINTEXT", mechanism: str = "PLAIN"
) -> dict[str, Any]:
    """What kafka-python's clients need to reach a listener of a cluster."""
    config: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers_of(protocol),
        "security_protocol": protocol,
    }
    if protocol.startswith("SASL"):
        assert isinstance(cluster, SecuredCluster)
        user, password = next(iter(cluster.secured.users.items()))
        config |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
    if protocol.endswith("SSL"):
        assert isinstance(cluster, SecuredCluster)
        assert cluster.tls is not None
        config["ssl_cafile"] = str(cluster.tls.ca)
        if cluster.tls.client is not None:
            config["ssl_certfile"] = str(cluster.tls.client.certificate)
            config["ssl_keyfile"] = str(cluster.tls.client.key)
    return config


class Topics:
    """Makes topics and records on a cluster, through its PLAINTEXT listener."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._admin: KafkaAdminClient | None = None

    @property
    def admin(self) -> KafkaAdminClient:
        """kafka-python's admin client, connected at first use."""
        if self._admin is None:
            self._admin = KafkaAdminClient(**client_config(self.cluster))
        return self._admin

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def create_topic(
        self,
        name: str = "topic",
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: int = 1,
    ) -> str:
        """Create a topic whose unique name begins with `name`; returns the name when it is up."""
        topic = f"{name}-{uuid.uuid4().hex[:12]}"
        self.create_named(topic, partitions, configs, replicas)
        return topic

    def create_named(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: int = 1,
    ) -> None:
        """Create a topic of exactly this name, also while the broker is still deleting another."""
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(configs or {}))

        def created() -> bool:
            try:
                self.admin.create_topics([new])
            except TopicAlreadyExistsError:
                return False
            return True

        wait_until(created)
        self._wait_for_partitions(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; returns when no broker knows it any more."""
        self.admin.delete_topics([topic])
        wait_until(lambda: topic not in self.admin.list_topics())

    def topic_id(self, topic: str) -> str:
        """In hexadecimal, as keyrange writes it."""
        [described] = self.admin.describe_topics([topic])
        return uuid.UUID(str(described["topic_id"])).hex

    def add_partitions(self, topic: str, count: int) -> None:
        """Raise a topic's number of partitions to `count`."""
        self.admin.create_partitions({topic: count})
        self._wait_for_partitions(topic, count)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records before an offset, by partition; -1 is the end of the partition."""
        self.admin.delete_records(
            {TopicPartition(topic, number): offset for number, offset in before.items()}
        )

    def produce(
        self, topic: str, records: Iterable[Record | bytes], **producer_config: Any
    ) -> list[tuple[int, int]]:
        """Send records (bytes are values without a key); returns (partition, offset) of each.

        `producer_config` goes to KafkaProducer, for example `compression_type="zstd"`.
        """
        with self.producer(**producer_config) as producer:
            return send(producer, topic, records)

    def produce_transaction(
        self, topic: str, records: Iterable[Record | bytes], commit: bool = True, **config: Any
    ) -> list[tuple[int, int]]:
        """Send records in a transaction of their own, then commit or abort it; returns when each
        partition has the marker of that, which the coordinator writes behind its answer."""
        identity = f"tx-{uuid.uuid4().hex[:12]}"
        with self.producer(transactional_id=identity, **config) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            placed = send(producer, topic, records)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        last = dict(sorted(placed))

        def is_marked() -> bool:
            ends = self.offsets(topic)
            return all(ends[partition][1] > offset + 1 for partition, offset in last.items())

        wait_until(is_marked)
        return placed

    def producer(self, **config: Any) -> KafkaProducer:
        """A producer with acks from all replicas; a context manager."""
        return KafkaProducer(**client_config(self.cluster), **({"acks": "all"} | config))

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """(first offset, end offset) of each partition."""
        with KafkaConsumer(**client_config(self.cluster)) as consumer:
            numbers = consumer.partitions_for_topic(topic) or set()
            partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
            first = consumer.beginning_offsets(partitions)
            end = consumer.end_offsets(partitions)
        return {each.partition: (first[each], end[each]) for each in partitions}

    def values(self, topic: str, partition: int = 0, **config: Any) -> list[bytes | None]:
        """All values of a partition, in offset order, as kafka-python's consumer reads them."""
        place = TopicPartition(topic, partition)
        with KafkaConsumer(**client_config(self.cluster), **config) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end = consumer.end_offsets([place])[place]
            values = []
            while consumer.position(place) < end:
                for records in consumer.poll(timeout_ms=1000).values():
                    values += [record.value for record in records]
        return values

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        def ready() -> bool:
            try:
                [described] = self.admin.describe_topics([topic])
            except UnknownTopicOrPartitionError:
                return False
            partitions = described["partitions"]
            return len(partitions) == count and all(
                each["leader_id"] >= 0 and each["error_code"] == 0 for each in partitions
            )

        wait_until(ready)


def send(
    producer: KafkaProducer, topic: str, records: Iterable[Record | bytes]
) -> list[tuple[int, int]]:
    """Send records with a producer and flush; returns (partition, offset) of each."""
    futures = []
    for each in records:
        record = Record(each) if isinstance(each, bytes) else each
        futures.append(
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
        )
    producer.flush()
    placed = [future.get(timeout=120) for future in futures]
    return [(metadata.partition, metadata.offset) for metadata in placed]


def flip_byte(node: BrokerNode, topic: str, value: bytes) -> None:
    """Change one byte of a value in a broker's log, while it runs: brokers read from the file."""
    log = next(node.log_dir.glob(f"{topic}-0/*.log"))
    at = log.read_bytes().index(value)
    with log.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value[0] ^ 1]))


def wait_until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    """Return when a condition holds; fail the test when it does not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout_s} s"
        time.sleep(0.05)


# Of which version the shared broker is, for tests/platforms.
KAFKA_VERSION = os.environ.get("KEYRANGE_TEST_KAFKA", jars.KAFKA_VERSION)


def kafka_is_before(*version: int) -> bool:
    """Whether the shared broker is older than a version such as 3, 6."""
    return tuple(map(int, re.findall(r"\d+", KAFKA_VERSION))) < version


NEEDS_TRANSACTIONS = pytest.mark.skipif(kafka_is_before(2, 5), reason="transactions need Kafka 2.5")


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One broker for the session with all listeners. Never stop or kill it: start your own.

    One that needs ZooKeeper has a single listener.
    """
    if kafka_is_before(3, 3):
        chosen: EmbeddedBroker = OldBroker(KAFKA_VERSION, SHARED_SETTINGS.properties)
    else:
        chosen = SecuredBroker(replace(SHARED_SETTINGS, version=KAFKA_VERSION))
    with chosen as started:
        yield started


@pytest.fixture(scope="session")
def topics(broker: EmbeddedBroker) -> Iterator[Topics]:
    """Topics and records on the shared broker. In the end nothing hangs there that was sent in
    transactions, wherever a test has killed whoever sent it."""
    made = Topics(broker)
    yield made
    found = [] if kafka_is_before(3) or not _has_transactions(made) else _hanging(made)
    made.close()
    assert found == []


def _has_transactions(topics: Topics) -> bool:
    """Whether somebody has sent some."""
    return any(topics.admin.list_transactions().values())


def _hanging(topics: Topics) -> list[list[str]]:
    [node] = topics.cluster.nodes
    return hanging(topics.cluster.bootstrap_servers, node.node_id)
