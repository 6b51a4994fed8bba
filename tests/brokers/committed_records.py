"""What a topic has for readers of committed records, as kafka-python reads it."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as Place

from brokers.real_broker import Topics, client_config, wait_until
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.open_transactions import held_back
from keyrange.options.kafka_properties import ClientSettings

PATIENCE_MS = 60_000


def client_settings(topics: Topics) -> ClientSettings:
    servers = topics.cluster.bootstrap_servers_of("PLAINTEXT").split(",")
    return ClientSettings(
        bootstrap_servers=tuple(
            (host, int(port)) for host, _, port in (each.rpartition(":") for each in servers)
        )
    )


def committed_records(
    topics: Topics, topic: str, partitions: int, patience_ms: int = PATIENCE_MS
) -> list[list[Any]]:
    """The records of each partition. `patience_ms`: for each call that a broker has to answer."""
    places = [Place(topic, number) for number in range(partitions)]
    found: dict[Place, list[Any]] = {place: [] for place in places}
    config = client_config(topics.cluster) | {"isolation_level": "read_committed"}
    with KafkaConsumer(**config, bootstrap_timeout_ms=patience_ms) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places, timeout_ms=patience_ms)
        while any((consumer.position(p, timeout_ms=patience_ms) or 0) < ends[p] for p in places):
            for place, records in consumer.poll(timeout_ms=1_000).items():
                found[place] += records
    return [found[place] for place in places]


# The broker aborts what is open for longer than a sender's transaction.timeout.ms, a minute.
_OVER_S = 30


def wait_until_all_are_over(topics: Topics, topic: str) -> None:
    """Until no transaction of a topic is open; fails where one stays."""
    cluster = Cluster(client_settings(topics))
    try:
        view = cluster.describe([topic])
        wait_until(lambda: not held_back(cluster, view, view.partitions()), _OVER_S)
    finally:
        cluster.close()
