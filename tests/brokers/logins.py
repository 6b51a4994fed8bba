"""Logins of tests: options as users write them, and reading that outlives a login."""

from __future__ import annotations

import time

import pytest

from brokers.real_broker import Topics
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.security import sasl_handshake
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import LATEST, TopicPartition
from keyrange.options.kafka_properties import ClientSettings, parse_client_options
from keyrange.options.value_parsers import Violations
from keyrange.wire.chunk_decoder import DecodeSettings

KAFKA = "org.apache.kafka.common.security."
PLAIN = f"{KAFKA}plain.PlainLoginModule required "
SCRAM = f"{KAFKA}scram.ScramLoginModule required "
OAUTH = f"{KAFKA}oauthbearer.OAuthBearerLoginModule required "
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required "


# How many records a topic of numbers has.
COUNT = 3000


def create_numbers(topics: Topics, name: str) -> str:
    """A topic of one partition with COUNT records of 1 kB in batches of some 16: each value begins
    with its number in five digits."""
    made = topics.create_topic(name)
    topics.produce(made, [b"%05d" % n + b"x" * 1000 for n in range(COUNT)], batch_size=16_000)
    return made


def login_options(topics: Topics, mechanism: str, jaas: str, tls: bool = False) -> dict[str, str]:
    protocol = "SASL_SSL" if tls else "SASL_PLAINTEXT"
    options = {
        "bootstrap.servers": topics.cluster.bootstrap_servers_of(protocol),
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    if tls:
        assert topics.cluster.tls is not None
        options["ssl.truststore.location"] = str(topics.cluster.tls.ca)
    return options


def parsed(options: dict[str, str]) -> ClientSettings:
    violations = Violations()
    client = parse_client_options(options, violations)
    assert violations.messages == []
    return client


def for_spark(options: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in options.items()}


def ends(client: ClientSettings, topic: str) -> int:
    cluster = Cluster(client)
    try:
        place = TopicPartition(topic, 0)
        return cluster.list_offsets(cluster.describe([topic]), {place: LATEST})[place][0]
    finally:
        cluster.close()


def read_slowly(client: ClientSettings, topic: str, count: int, seconds: float) -> list[int]:
    """The offsets of a partition, read in small chunks over so many seconds."""
    cluster = Cluster(client)
    try:
        reader = SplitReader(
            cluster, cluster.describe([topic]), ReadSettings(DecodeSettings(), True, 60_000)
        )
        offsets: list[int] = []
        began = time.monotonic()
        for each in reader.read([Split(TopicPartition(topic, 0), 0, count, 0)]):
            offsets += each.column("offset").to_pylist()
            left_s = seconds * len(offsets) / count - (time.monotonic() - began)
            time.sleep(max(left_s, 0))
        return offsets
    finally:
        cluster.close()


class Watched:
    """How many connections were made, and how many broke."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.lost = 0
        authenticate, receive = sasl_handshake.authenticate, Connection.receive

        def counted(connection: Connection, settings: ClientSettings) -> float:
            self.made += 1
            return authenticate(connection, settings)

        def received(connection: Connection, *given: object, **context: object) -> object:
            try:
                return receive(connection, *given, **context)  # type: ignore[arg-type]
            except ConnectionLost:
                self.lost += 1
                raise

        monkeypatch.setattr(sasl_handshake, "authenticate", counted)
        monkeypatch.setattr(Connection, "receive", received)
