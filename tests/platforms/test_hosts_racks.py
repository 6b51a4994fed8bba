"""Reading from brokers on hosts of their own: racks, and the addresses that brokers tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokers.real_broker import Topics
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.model.offsets import LATEST
from keyrange.options.kafka_properties import ClientSettings
from platforms.host_cluster import INSIDE, WORKERS, HostBrokers, topics_on
from platforms.hosts import Network, needs_hosts
from spark.sources import client, read_all

pytestmark = needs_hosts

VALUES = [b"%05d" % n + b"x" * 1_000 for n in range(5_000)]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("driver", *WORKERS) as made:
        yield made


@pytest.fixture(scope="module")
def topics(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    brokers = HostBrokers(network, tmp_path_factory.mktemp("brokers"))
    brokers.start()
    made = topics_on(brokers)
    yield made
    made.close()


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """A topic of one partition with a replica on each host, and 5 MB in it."""
    made = topics.create_topic("racks", replicas=3)
    topics.produce(made, VALUES)
    return made


def leader_of(topics: Topics, topic: str) -> str:
    [described] = topics.admin.describe_topics([topic])
    return WORKERS[described["partitions"][0]["leader_id"] - 1]


def read(topics: Topics, topic: str, **settings: object) -> None:
    found = read_all(client(topics.cluster, **settings), topic)
    assert [value for _, value in found[0]] == VALUES


def test_records_come_from_the_replica_in_the_readers_rack(
    network: Network, topics: Topics, topic: str
) -> None:
    leader = leader_of(topics, topic)
    for rack in WORKERS:
        before = {name: network[name].sent_bytes() for name in WORKERS}
        read(topics, topic, client_rack=rack)
        sent = {name: network[name].sent_bytes() - before[name] for name in WORKERS}
        assert max(sent, key=lambda name: sent[name]) == rack
        assert sent[rack] > 5_000_000
        if rack != leader:
            assert sent[leader] < 2_500_000


def test_a_replica_nearby_that_cannot_be_reached_is_left_for_the_leader(
    network: Network, topics: Topics, topic: str
) -> None:
    """The leader still holds it for in sync, since the brokers reach each other."""
    leader = leader_of(topics, topic)
    near = network[next(name for name in WORKERS if name != leader)]
    network.cut_console(near)
    try:
        read(
            topics,
            topic,
            client_rack=near.name,
            socket_connection_setup_timeout_ms=2_000,
            request_timeout_ms=5_000,
        )
    finally:
        network.heal_console(near)


def test_a_broker_that_tells_a_name_which_the_client_cannot_resolve_is_named(
    network: Network, topics: Topics, topic: str
) -> None:
    """This machine is not told the hosts' names."""
    bootstrap = tuple((network[name].address, INSIDE) for name in WORKERS)
    cluster = Cluster(ClientSettings(bootstrap_servers=bootstrap, request_timeout_ms=5_000))
    try:
        view = cluster.describe([topic])
        with pytest.raises(KeyrangeError, match=r"hosts\.example:9094.*advertised"):
            cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST))
    finally:
        cluster.close()
