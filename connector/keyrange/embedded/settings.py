"""What an embedded broker is to be like, and the server.properties that say so.

Rule of this file: pure. Ports, paths and certificates come in as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from keyrange.embedded.jars import KAFKA_VERSION
from keyrange.embedded.process import HOST
from keyrange.embedded.tls import PASSWORD, TlsFiles
from keyrange.errors import invalid_options

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_KRAFT_MIN = (3, 3)
_SCRAM_MIN = (3, 5)
_MODULE = "org.apache.kafka.common.security.{}LoginModule required"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """An embedded cluster. `properties` are server properties that win over all others.

    `racks` names one rack per node, and turns fetching from the closest replica on. `listeners` is
    added to PLAINTEXT, which is always there. `users` (name to password) log in with PLAIN and, on
    Kafka 3.5 or newer, SCRAM. `mutual_tls` lets the SSL listeners ask for client certificates.
    `jvm_options` go to the brokers' JVMs.
    """

    version: str = KAFKA_VERSION
    nodes: int = 1
    racks: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    mutual_tls: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 512
    jvm_options: tuple[str, ...] = ()
    start_timeout_s: float = 90

    def __post_init__(self) -> None:
        violations = []
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version):
            violations.append(f"version {self.version!r} is not three numbers such as 4.3.1")
        if self.nodes < 1:
            violations.append(f"nodes is {self.nodes}, must be at least 1")
        if self.racks and len(self.racks) != self.nodes:
            violations.append(f"{len(self.racks)} racks are named for {self.nodes} nodes")
        unknown = [name for name in self.listeners if name not in PROTOCOLS]
        if unknown:
            violations.append(f"listeners {unknown} are none of {list(PROTOCOLS)}")
        if self.sasl and not self.users:
            violations.append("SASL listeners need at least one user")
        if any('"' in part or "," in part for user in self.users.items() for part in user):
            violations.append("names and passwords of users may hold no quotes and commas")
        if violations:
            raise invalid_options(violations)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The listeners, PLAINTEXT first, each once."""
        return tuple(dict.fromkeys(("PLAINTEXT", *self.listeners)))

    @property
    def sasl(self) -> bool:
        return any(name.startswith("SASL") for name in self.listeners)

    @property
    def tls(self) -> bool:
        return any(name.endswith("SSL") for name in self.listeners)

    @property
    def kraft(self) -> bool:
        """Whether this version runs without ZooKeeper (before 3.3 that was not finished)."""
        return self._minor >= _KRAFT_MIN

    @property
    def scram(self) -> bool:
        """Whether users can be made when the storage is formatted."""
        return self.sasl and self._minor >= _SCRAM_MIN

    @property
    def _minor(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node: one for each listener, and one for the controller."""

    listeners: Mapping[str, int]
    controller: int


def server_properties(
    settings: BrokerSettings,
    node: int,
    ports: Sequence[NodePorts],
    data: Path,
    tls: TlsFiles | None,
    zookeeper_port: int | None,
) -> str:
    """The server.properties of node number `node` (from 0; its node id is one more)."""
    own = ports[node]
    replicas = min(3, settings.nodes)
    listeners = [f"{name}://{HOST}:{port}" for name, port in own.listeners.items()]
    properties = {
        "log.dirs": str(data),
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in settings.protocols),
        # Small and quick: one partition to load at each start, and no waiting for more members.
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": "1",
        "default.replication.factor": str(replicas),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "500",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "200",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.recovery.threads.per.data.dir": "2",
    }
    properties |= _quorum(settings, node, ports, zookeeper_port)
    if settings.racks:
        properties["broker.rack"] = settings.racks[node]
        properties["replica.selector.class"] = (
            "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        )
    properties |= _sasl(settings) | _tls(tls) | dict(settings.properties)
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _quorum(
    settings: BrokerSettings, node: int, ports: Sequence[NodePorts], zookeeper_port: int | None
) -> dict[str, str]:
    if zookeeper_port is not None:
        return {
            "broker.id": str(node + 1),
            "zookeeper.connect": f"{HOST}:{zookeeper_port}",
            # A broker that was killed comes back under its id only when its session is over.
            "zookeeper.session.timeout.ms": "2000",
        }
    # With three voters one may die; two would be worse than one.
    voters = 3 if settings.nodes >= 3 else 1
    quorum = {
        "node.id": str(node + 1),
        "process.roles": "broker,controller" if node < voters else "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{number + 1}@{HOST}:{ports[number].controller}" for number in range(voters)
        ),
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }
    mapped = ",".join(f"{name}:{name}" for name in settings.protocols)
    quorum["listener.security.protocol.map"] = f"{mapped},CONTROLLER:PLAINTEXT"
    if node < voters:
        listeners = [f"{name}://{HOST}:{port}" for name, port in ports[node].listeners.items()]
        listeners.append(f"CONTROLLER://{HOST}:{ports[node].controller}")
        quorum["listeners"] = ",".join(listeners)
    return quorum


def _sasl(settings: BrokerSettings) -> dict[str, str]:
    if not settings.sasl:
        return {}
    mechanisms = ["PLAIN", *(SCRAM_MECHANISMS if settings.scram else ())]
    users = " ".join(f'user_{name}="{password}"' for name, password in settings.users.items())
    properties = {"sasl.enabled.mechanisms": ",".join(mechanisms)}
    for protocol in settings.protocols:
        if protocol.startswith("SASL"):
            prefix = f"listener.name.{protocol.lower()}"
            properties[f"{prefix}.plain.sasl.jaas.config"] = (
                f"{_MODULE.format('plain.Plain')} {users};"
            )
            for mechanism in mechanisms[1:]:
                name = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
                properties[name] = f"{_MODULE.format('scram.Scram')};"
    return properties


def _tls(tls: TlsFiles | None) -> dict[str, str]:
    if tls is None:
        return {}
    properties = {
        "ssl.keystore.location": str(tls.keystore),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    if tls.truststore is not None:
        properties |= {
            "ssl.truststore.location": str(tls.truststore),
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": PASSWORD,
            # Asked for, not demanded: the same listener serves clients without one.
            "ssl.client.auth": "requested",
        }
    return properties
