"""Kafka brokers of the time of ZooKeeper, which newer embedded brokers run without."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from keyrange.embedded import jars
from keyrange.embedded.broker import BrokerNode, EmbeddedBroker
from keyrange.embedded.process import HOST, JavaProcess, free_ports, java_command
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import KeyrangeError

# The oldest version that keyrange reads from.
OLDEST = "2.3.1"
# A broker that stands still for longer than its session (as all do on a busy machine) is declared
# dead; one of 2.3 comes back from that without a coordinator for groups.
_SESSION_MS = 30_000


@dataclass(frozen=True, slots=True)
class OldSettings(BrokerSettings):
    version_min: ClassVar[tuple[int, int]] = (2, 3)
    version: str = OLDEST


class OldBroker(EmbeddedBroker):
    """A broker of version 2.3.1, or of one before 3.3, with a ZooKeeper beside it."""

    def __init__(
        self, version: str = OLDEST, properties: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(OldSettings(version=version, properties=properties))
        [self._zookeeper_port] = free_ports(1, [self.nodes[0].port()])
        self._zookeeper = JavaProcess("ZooKeeper", self.directory / "zookeeper.log")

    def jar_set(self) -> jars.JarSet:
        """Kafka 2.4 was the first to be published for Scala 2.13, and the ZooKeeper client that
        came with 2.3 cannot look up a host on Java 14 or newer."""
        newer = super().jar_set()
        server, *others = newer.modules
        zookeeper = jars.JarModule("org.apache.zookeeper", "zookeeper", "3.5.10")
        return replace(newer, modules=(replace(server, name="kafka_2.12"), *others, zookeeper))

    def properties_of(self, node: BrokerNode) -> dict[str, str]:
        found = super().properties_of(node)
        quorum = ("node.id", "process.roles", "controller.", "broker.heartbeat", "broker.session")
        plain = {name: text for name, text in found.items() if not name.startswith(quorum)}
        listeners = plain["advertised.listeners"]
        return plain | {
            "listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "broker.id": str(node.node_id),
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
            "zookeeper.session.timeout.ms": str(_SESSION_MS),
        }

    def format(self, properties_path: Path, *arguments: str) -> None:
        """Such a broker formats its storage by itself."""

    def start_nodes(self) -> None:
        self._start_zookeeper()
        # ZooKeeper holds the name of a broker that was killed until its session is over.
        deadline = time.monotonic() + 2 * _SESSION_MS / 1_000
        while True:
            try:
                super().start_nodes()
                return
            except KeyrangeError as failure:
                if "NodeExists" not in failure.message or time.monotonic() > deadline:
                    raise

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()

    def kill(self) -> None:
        super().kill()
        self._zookeeper.kill()

    def _start_zookeeper(self) -> None:
        if self._zookeeper.running:
            return
        configuration = self.directory / "zookeeper.properties"
        data = self.directory / "zookeeper"
        configuration.write_text(
            f"dataDir={data}\nclientPort={self._zookeeper_port}\nclientPortAddress={HOST}\n"
            f"tickTime=500\nmaxSessionTimeout={_SESSION_MS}\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        self._zookeeper.cleanup = self.cleanup
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        # Its log4j beans need a log4j that is not among the jars.
        options = [
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper=warn",
        ]
        self._zookeeper.run(
            java_command(self.jars, main_class, [str(configuration)], 128, options),
            ready=lambda: _accepts(self._zookeeper_port),
            timeout_s=self.settings.start_timeout_s,
        )


def _accepts(port: int) -> bool:
    """Whether something listens on a port."""
    with contextlib.suppress(OSError):
        socket.create_connection((HOST, port), timeout=2).close()
        return True
    return False
