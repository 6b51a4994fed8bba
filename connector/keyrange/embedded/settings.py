"""What an embedded broker is to be like, and the server.properties that say so.

Rule of this file: pure. Ports and paths come in as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from keyrange.embedded.jars import KAFKA_VERSION
from keyrange.embedded.process import HOST
from keyrange.errors import invalid_options


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """An embedded cluster. `properties` are server properties that win over all others.

    `racks` names one rack per node, and turns fetching from the closest replica on. `jvm_options`
    go to the brokers' JVMs. The version is 3.3 at least. Raises INVALID_OPTIONS with all that is
    wrong.
    """

    # Before it a broker needed ZooKeeper.
    version_min: ClassVar[tuple[int, int]] = (3, 3)
    version: str = KAFKA_VERSION
    nodes: int = 1
    racks: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 512
    jvm_options: tuple[str, ...] = ()
    start_timeout_s: float = 90

    def __post_init__(self) -> None:
        if violations := self.violations():
            raise invalid_options(violations)

    def violations(self) -> list[str]:
        """What is wrong with them, each in a sentence."""
        found = []
        version = re.fullmatch(r"(\d+)\.(\d+)\.\d+", self.version)
        if not version:
            found.append(f"version {self.version!r} is not three numbers such as {KAFKA_VERSION}")
        elif (int(version[1]), int(version[2])) < self.version_min:
            found.append(f"version {self.version} is older than 3.3 and would need ZooKeeper")
        if self.nodes < 1:
            found.append(f"nodes is {self.nodes}, must be at least 1")
        if self.racks and len(self.racks) != self.nodes:
            found.append(f"{len(self.racks)} racks are named for {self.nodes} nodes")
        return found

    @property
    def protocols(self) -> tuple[str, ...]:
        """The listeners, PLAINTEXT first, each once."""
        return ("PLAINTEXT",)


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node: one for each listener, and one for the controller."""

    listeners: Mapping[str, int]
    controller: int


def server_properties(
    settings: BrokerSettings, node: int, ports: Sequence[NodePorts], data: Path
) -> dict[str, str]:
    """The server.properties of node number `node` (from 0; its node id is one more)."""
    own = ports[node]
    replicas = min(3, settings.nodes)
    listeners = [f"{name}://{HOST}:{port}" for name, port in own.listeners.items()]
    properties = {
        "log.dirs": str(data),
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "inter.broker.listener.name": "PLAINTEXT",
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
    properties |= _quorum(settings, node, ports)
    if settings.racks:
        properties["broker.rack"] = settings.racks[node]
        properties["replica.selector.class"] = (
            "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        )
    return properties


def _quorum(settings: BrokerSettings, node: int, ports: Sequence[NodePorts]) -> dict[str, str]:
    # With three voters one may die; two would be worse than one.
    voters = 3 if settings.nodes >= 3 else 1
    quorum = {
        "node.id": str(node + 1),
        "process.roles": "broker,controller" if node < voters else "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{number + 1}@{HOST}:{ports[number].controller}" for number in range(voters)
        ),
        # Every 0.5 s, as it is by default, takes a fifth of an idle broker's CPU.
        "metadata.max.idle.interval.ms": "5000",
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
