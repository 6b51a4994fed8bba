"""The properties of Kafka's producer: mapped, ignored or refused, and what connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.options.kafka_properties import ClientSettings, parse_client_options
from keyrange.options.producer_properties import (
    PRODUCER_PROPERTIES,
    ProducerSettings,
    parse_producer_options,
)
from keyrange.options.value_parsers import Violations

SOURCE = {"bootstrap.servers": "source:1", "sasl.username": "u", "client.id": "reader"}


def parse(**options: str) -> tuple[ProducerSettings, ClientSettings, list[str]]:
    """Names with _ for each dot, and the prefix, which is left out here."""
    source, violations = parse_client_options(SOURCE, Violations()), Violations()
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    own, client = parse_producer_options(named, source, violations)
    return own, client, violations.messages


@pytest.mark.parametrize(("version", "count"), [("3.9.2", 95), ("4.3.1", 113)])
def test_every_property_of_javas_producer_has_a_row(version: str, count: int) -> None:
    """What ProducerConfig.configNames() of kafka-clients prints: of Spark 4.2's, and of 4.3.1."""
    golden = Path(__file__).parents[2] / "golden" / f"producer-properties-{version}.txt"
    names = golden.read_text().split()
    assert len(names) == count
    assert [name for name in names if name not in PRODUCER_PROPERTIES] == []


def test_what_is_said_of_records_is_taken() -> None:
    own, _, wrong = parse(
        acks="-1",
        enable_idempotence="TRUE",
        batch_size="1",
        compression_type="zstd",
        compression_zstd_level="7",
        compression_lz4_level="3",
        linger_ms="5",
        transaction_timeout_ms="1000",
    )
    assert wrong == []
    assert (own.batch_bytes, own.compression, own.compression_level) == (1, "zstd", 7)
    assert own.transaction_timeout_ms == 1000
    assert ProducerSettings().compression_level is None


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("acks", "1", "must be all"),
        ("enable_idempotence", "false", "must be true"),
        ("transactional_id", "mine", "each query has its own"),
        ("partitioner_class", "x.Y", "a column partition"),
        ("value_serializer", "x.Y", "is not supported"),
        ("max_poll_records", "1", "is not a property of Kafka's producer"),
        ("compresion_type", "lz4", "kafka.compression.type"),
        ("batch_size", "many", "must be a whole number"),
    ],
)
def test_what_would_be_something_else_is_refused(option: str, value: str, said: str) -> None:
    [message] = parse(**{option: value})[2]
    assert f"'kafka.{option.replace('_', '.')}'" in message
    assert said in message


def test_a_topic_is_on_the_sources_cluster_unless_it_names_brokers() -> None:
    _, client, wrong = parse(client_id="writer")
    assert wrong == []
    assert client.bootstrap_servers == (("source", 1),)
    assert client.client_id == "writer"
    assert client.sasl_username.reveal() == "u"
    _, other, wrong = parse(bootstrap_servers="there:2")
    assert wrong == []
    assert (other.bootstrap_servers, bool(other.sasl_username)) == ((("there", 2),), False)


def test_an_option_without_kafkas_prefix_is_named() -> None:
    violations = Violations()
    parse_producer_options({"acks": "all"}, ClientSettings(), violations)
    [message] = violations.messages
    assert "option 'acks'" in message
    assert "kafka.acks" in message
