"""Client quotas of a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokers.real_broker import wait_until
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.errors import KeyrangeError
from keyrange.guard.client_quotas import alter_quotas, quota_callback, read_quotas
from keyrange.guard.model.quota_entities import RATE, Alteration, QuotaEntity, Quotas
from keyrange.kafka.cluster import Cluster
from spark.sources import client

ENTITIES = [
    QuotaEntity("alice", None),
    QuotaEntity("", None),
    QuotaEntity(None, "app"),
    QuotaEntity(None, ""),
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", ""),
    QuotaEntity("", ""),
    QuotaEntity("a/b;c,d=é", "x y"),
]
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Of a broker of its own: quotas are everybody's."""
    with EmbeddedBroker() as broker:
        made = Cluster(client(broker))
        yield made
        made.close()


def become(cluster: Cluster, expected: Quotas) -> None:
    wait_until(lambda: read_quotas(cluster, TIMEOUT_MS) == expected)


def test_every_kind_of_entity_comes_back_as_it_was_written(cluster: Cluster) -> None:
    assert read_quotas(cluster, TIMEOUT_MS) == {}
    rates = {entity: float(1_000 + at) for at, entity in enumerate(ENTITIES)}
    rates[ENTITIES[0]] = float(2**53)
    written = [Alteration(entity, RATE, rate) for entity, rate in rates.items()]
    alter_quotas(cluster, written, True, TIMEOUT_MS)
    assert read_quotas(cluster, TIMEOUT_MS) == {}
    alter_quotas(cluster, written, False, TIMEOUT_MS)
    become(cluster, {entity: {RATE: rate} for entity, rate in rates.items()})
    more = Alteration(ENTITIES[0], "request_percentage", 12.5)
    alter_quotas(cluster, [more, Alteration(ENTITIES[1], RATE, None)], False, TIMEOUT_MS)
    wait_until(lambda: ENTITIES[1] not in read_quotas(cluster, TIMEOUT_MS))
    assert read_quotas(cluster, TIMEOUT_MS)[ENTITIES[0]] == {
        RATE: float(2**53),
        "request_percentage": 12.5,
    }
    keys = [Alteration(entity, RATE, None) for entity in ENTITIES]
    alter_quotas(cluster, [*keys, Alteration(more.entity, more.key, None)], False, TIMEOUT_MS)
    become(cluster, {})


@pytest.mark.parametrize("value", [0.5, 0.0, -1.0])
def test_what_kafka_refuses_is_named(cluster: Cluster, value: float) -> None:
    wrong = [Alteration(ENTITIES[0], RATE, value)]
    with pytest.raises(KeyrangeError, match=r"QUOTAS_REFUSED.*user alice.*INVALID_REQUEST"):
        alter_quotas(cluster, wrong, True, TIMEOUT_MS)
    assert read_quotas(cluster, TIMEOUT_MS) == {}


def test_a_broker_without_a_quota_plugin_has_none(cluster: Cluster) -> None:
    assert quota_callback(cluster) == ""
