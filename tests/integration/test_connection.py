"""Connections to a real broker's listeners, and what is said where they cannot be made."""

from __future__ import annotations

import socket
import time

import pytest
from pyspark.sql import SparkSession

from brokers.logins import parsed
from brokers.real_broker import PASSWORD, USER, Topics
from brokers.secured_brokers import SecuredBroker
from brokers.serving import answers, server
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from spark.sources import batch

NAMED_WITHIN_S = 45.0


def settings(broker: SecuredBroker, protocol: str, **given: str) -> ClientSettings:
    assert broker.tls is not None
    options = {
        "bootstrap.servers": broker.bootstrap_servers_of(protocol),
        "security.protocol": protocol,
    }
    if protocol.startswith("SASL"):
        options |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    if protocol.endswith("SSL"):
        options["ssl.ca.location"] = str(broker.tls.ca)
    return parsed(options | {name.replace("_", "."): value for name, value in given.items()})


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SSL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_listeners(broker: SecuredBroker, topics: Topics, protocol: str, mechanism: str) -> None:
    topic = topics.create_topic("listener")
    topics.produce(topic, [b"x"] * 3)
    given = {"sasl_mechanism": mechanism} if mechanism else {}
    cluster = Cluster(settings(broker, protocol, **given))

    view = cluster.describe([topic])
    offsets = cluster.list_offsets(view, {TopicPartition(topic, 0): LATEST})
    cluster.close()

    assert offsets == {TopicPartition(topic, 0): (3, 0)}


def test_reading_over_tls_and_scram(
    spark: SparkSession, broker: SecuredBroker, topics: Topics
) -> None:
    """With the JVM's way of naming credentials, through Spark."""
    assert broker.tls is not None
    topic = topics.create_topic("secure")
    topics.produce(topic, [b"%d" % n * 1000 for n in range(500)])
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";'
    )

    frame = batch(
        spark,
        topics,
        topic,
        **{
            "kafka.bootstrap.servers": broker.bootstrap_servers_of("SASL_SSL"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": jaas,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(broker.tls.ca),
        },
    )

    assert frame.distinct().count() == 500


def refused(client: ClientSettings) -> str:
    """What a first contact fails with, within the promised time."""
    cluster = Cluster(client)
    began = time.monotonic()
    with pytest.raises(KeyrangeError) as failure:
        cluster.describe([])
    assert time.monotonic() - began < NAMED_WITHIN_S
    cluster.close()
    return str(failure.value)


def test_wrong_password(broker: SecuredBroker) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        client = settings(
            broker, "SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_password="not-it"
        )
        text = refused(client)
        assert text.startswith("[SASL_AUTHENTICATION_FAILED]")
        assert f"mechanism={mechanism}, user={USER}" in text
        assert "not-it" not in text


def test_mechanism_that_the_listener_lacks(broker: SecuredBroker) -> None:
    """Kafka names what it offers; the embedded broker offers PLAIN and SCRAM only."""
    client = settings(broker, "SASL_PLAINTEXT")
    object.__setattr__(client, "sasl_mechanism", "OAUTHBEARER")

    text = refused(client)

    assert "SASL_AUTHENTICATION_FAILED" in text
    assert "PLAIN" in text
    assert "not OAUTHBEARER" in text


def test_tls_against_plaintext(broker: SecuredBroker) -> None:
    client = settings(broker, "SSL", bootstrap_servers=broker.bootstrap_servers_of("PLAINTEXT"))

    text = refused(client)

    assert "[TLS_FAILED]" in text
    assert "kafka.security.protocol is SSL: set it to PLAINTEXT" in text


def test_plaintext_against_tls(broker: SecuredBroker) -> None:
    client = settings(broker, "PLAINTEXT", bootstrap_servers=broker.bootstrap_servers_of("SSL"))

    text = refused(client)

    assert "with a login to SASL_SSL" in text
    assert "kafka.security.protocol" in text


def test_plaintext_against_sasl(broker: SecuredBroker) -> None:
    client = settings(
        broker, "PLAINTEXT", bootstrap_servers=broker.bootstrap_servers_of("SASL_PLAINTEXT")
    )

    text = refused(client)

    assert "a listener with SASL does so: set kafka.security.protocol to SASL_PLAINTEXT" in text


def test_tls_against_sasl_with_tls(broker: SecuredBroker) -> None:
    client = settings(broker, "SSL", bootstrap_servers=broker.bootstrap_servers_of("SASL_SSL"))

    assert "set kafka.security.protocol to SASL_SSL" in refused(client)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_sasl_against_a_listener_without(broker: SecuredBroker, protocol: str) -> None:
    with_sasl = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
    client = settings(broker, with_sasl, bootstrap_servers=broker.bootstrap_servers_of(protocol))

    text = refused(client)

    assert text.startswith("[SASL_AUTHENTICATION_FAILED]")
    assert f"has no SASL, and kafka.security.protocol is {with_sasl}: set it to {protocol}" in text


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_sasl_without_tls_against_tls(broker: SecuredBroker, protocol: str) -> None:
    client = settings(
        broker, "SASL_PLAINTEXT", bootstrap_servers=broker.bootstrap_servers_of(protocol)
    )

    text = refused(client)

    assert "kafka.security.protocol" in text
    assert "SASL_SSL, or without a login to SSL" in text


def test_untrusted_certificate(broker: SecuredBroker) -> None:
    """Without the broker's own authority, the system's are asked, and they do not know it."""
    client = parsed(
        {
            "bootstrap.servers": broker.bootstrap_servers_of("SSL"),
            "security.protocol": "SSL",
        }
    )

    text = refused(client)

    assert "[TLS_FAILED]" in text
    assert "certificate" in text


def test_unreachable(broker: SecuredBroker) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    text = refused(parsed({"bootstrap.servers": f"127.0.0.1:{port}"}))

    assert "[BROKER_UNREACHABLE]" in text
    assert f"127.0.0.1:{port}" in text


def soon_given_up(port: int) -> ClientSettings:
    """Nothing changes by trying a foreign server for longer."""
    return parsed({"bootstrap.servers": f"127.0.0.1:{port}", "default.api.timeout.ms": "1500"})


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        (-5).to_bytes(4, "big", signed=True),
        (2**31 - 1).to_bytes(4, "big") + b"x" * 100,
        (100).to_bytes(4, "big") + b"\x00\x00\x00\x01" + b"\xff" * 96,
        (100).to_bytes(4, "big") + b"cut off",
        b"",
    ],
)
def test_a_server_that_is_no_broker(answer: bytes) -> None:
    """Hostile or foreign bytes end in a typed error, in time."""
    with server(answers(answer)) as port:
        text = refused(soon_given_up(port))

    assert f"127.0.0.1:{port}" in text


def test_offsets_of_an_empty_partition(broker: SecuredBroker, topics: Topics) -> None:
    topic = topics.create_topic("empty")
    cluster = Cluster(settings(broker, "PLAINTEXT"))
    view = cluster.describe([topic])

    first = cluster.list_offsets(view, {TopicPartition(topic, 0): EARLIEST})
    cluster.close()

    assert first[TopicPartition(topic, 0)][0] == 0
