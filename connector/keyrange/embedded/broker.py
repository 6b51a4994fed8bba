"""Real Kafka brokers on loopback, for tests, benchmarks and first steps.

Rule of this file: it composes. A cluster owns a directory and its cleanup; a node one Java process.
Ports and data stay the same over stop, kill and start; `close()` ends all of it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from keyrange.embedded import jars
from keyrange.embedded.orphan_cleanup import OrphanCleanup
from keyrange.embedded.process import (
    HOST,
    JavaProcess,
    answers_api_versions,
    free_ports,
    is_free,
    java_command,
    run_java,
)
from keyrange.embedded.settings import BrokerSettings, NodePorts, server_properties
from keyrange.errors import KeyrangeError

_START_ATTEMPTS = 3
# What a broker prints when it serves: by KRaft, and with a ZooKeeper.
_STARTED = re.compile(r"\] (Kafka Server )?started$", re.MULTILINE)


class BrokerNode(JavaProcess):
    """One broker of a cluster. Data and ports stay when it is stopped, or killed as by a crash."""

    def __init__(self, cluster: EmbeddedCluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self.node_id = number + 1
        directory = cluster.directory / f"node-{self.node_id}"
        # One directory, as the brokers call it: partitions are folders in here.
        self.log_dir = directory / "data"
        self._properties_path = directory / "server.properties"
        log_path = directory / "server.log"
        super().__init__(f"broker {self.node_id}", log_path, inherited=cluster.inherited)

    def port(self, protocol: str = "PLAINTEXT") -> int:
        """The port of a listener. KeyError when the cluster has no such listener."""
        return self._cluster.ports[self._number].listeners[protocol]

    def _prepare(self) -> None:
        """Write server.properties, and format the storage the first time (about 2 s)."""
        cluster = self._cluster
        self.log_dir.mkdir(parents=True, exist_ok=True)
        properties = cluster.properties_of(self) | dict(cluster.settings.properties)
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        self._properties_path.write_text(text)
        if not (self.log_dir / "meta.properties").exists():
            cluster.format(self._properties_path)

    def start(self) -> None:
        """Start this node with its ports and data; wait until it answers. Fine when it is running.

        Raises BROKER_NOT_STARTED with the end of the log.
        """
        if self.running:
            return
        self._prepare()
        settings = self._cluster.settings
        self.cleanup = self._cluster.cleanup
        self.run(
            java_command(
                self._cluster.jars,
                "kafka.Kafka",
                [str(self._properties_path)],
                settings.heap_mb,
                settings.jvm_options,
            ),
            # Another server may answer at a port that this one is still to find taken.
            ready=lambda: (
                _STARTED.search(self.printed()) is not None and answers_api_versions(self.port())
            ),
            timeout_s=settings.start_timeout_s,
        )


class EmbeddedCluster:
    """`settings.nodes` Kafka brokers. A context manager: entering starts, leaving closes.

    Without `directory` everything lives in a temporary one that goes with `close()` or with this
    process, however it ends. With `directory` data, ports and cluster id stay there for next time.
    `detached` lets the brokers outlive this process; `inherited` are descriptors they keep open.
    """

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        directory: Path | None = None,
        report: jars.Report = jars.report_nothing,
        detached: bool = False,
        inherited: tuple[int, ...] = (),
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.inherited = inherited
        self._temporary = directory is None
        self._report = report
        self._detached = detached
        self.directory = directory or Path(tempfile.mkdtemp(prefix="keyrange-broker-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self.cleanup: OrphanCleanup | None = None
        self.jars: list[Path] = []
        self.nodes = [BrokerNode(self, number) for number in range(self.settings.nodes)]
        self._load_identity()

    @property
    def bootstrap_servers(self) -> str:
        """The PLAINTEXT addresses, separated by commas."""
        return self.bootstrap_servers_of("PLAINTEXT")

    def bootstrap_servers_of(self, protocol: str) -> str:
        """The addresses of a listener. KeyError when the cluster has no such listener."""
        return ",".join(f"{HOST}:{node.port(protocol)}" for node in self.nodes)

    def start(self) -> Self:
        """Start all nodes, and return when each answers (about 6 s). Fine when they are running.

        Raises JAVA_NOT_FOUND, JARS_NOT_RESOLVED, or BROKER_NOT_STARTED with the end of the log.
        """
        self.jars = jars.resolve(self.jar_set(), self._report)
        if self.cleanup is None and not self._detached:
            self.cleanup = OrphanCleanup(self.directory if self._temporary else None)
        for attempt in range(_START_ATTEMPTS):
            try:
                self.start_nodes()
                return self
            except KeyrangeError as failure:
                self.kill()
                # Someone took a port between its choice and now. Data is only tied to ports
                # while several nodes know each other by them, and that is written at each start.
                taken = "already in use" in failure.message
                if not taken or attempt == _START_ATTEMPTS - 1:
                    self._keep_logs()
                    raise
                self._choose_ports()
        raise AssertionError("unreachable")

    def start_nodes(self) -> None:
        """Start all nodes at once, when the jars are there."""
        self._each_node(BrokerNode.start)

    def jar_set(self) -> jars.JarSet:
        """What the nodes run."""
        return jars.kafka(self.settings.version)

    def properties_of(self, node: BrokerNode) -> dict[str, str]:
        """The server.properties of a node, but for those of the settings."""
        return server_properties(self.settings, node.node_id - 1, self.ports, node.log_dir)

    def format(self, properties_path: Path, *arguments: str) -> None:
        """Format the storage that server.properties name. `arguments` go to Kafka's tool."""
        named = ["format", "-t", self.cluster_id, "-c", str(properties_path), *arguments]
        run_java(self.jars, "kafka.tools.StorageTool", named)

    def stop(self) -> None:
        """End all nodes in order; data and ports stay for `start()`."""
        self._each_node(BrokerNode.stop)

    def kill(self) -> None:
        """End all nodes with SIGKILL; data and ports stay for `start()`."""
        for node in self.nodes:
            node.kill()

    def close(self) -> None:
        """End everything, without waiting for an orderly end when the data goes anyway."""
        if self._temporary:
            self.kill()
        else:
            self.stop()
        if self.cleanup is not None:
            self.cleanup.close()
            self.cleanup = None
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _each_node(self, action: Callable[[BrokerNode], None]) -> None:
        if len(self.nodes) == 1:
            action(self.nodes[0])  # in this thread, so that Ctrl-C ends the wait
            return
        # At once: three voters wait for each other, at start and at an orderly end.
        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(action, self.nodes))

    def _load_identity(self) -> None:
        """Take cluster id and ports of an earlier run of this directory, else make new ones."""
        identity: dict[str, object] = {}
        with contextlib.suppress(OSError, ValueError):
            identity = json.loads((self.directory / "cluster.json").read_text())
        self.cluster_id = str(identity.get("cluster_id") or _new_cluster_id())
        numbers = identity.get("ports")
        wanted = self._port_count
        if isinstance(numbers, list) and len(numbers) == wanted and all(map(is_free, numbers)):
            self._assign_ports(numbers)
        else:
            self._choose_ports()

    @property
    def _port_count(self) -> int:
        return self.settings.nodes * (1 + len(self.settings.protocols))

    def _choose_ports(self) -> None:
        self._assign_ports(free_ports(self._port_count))

    def _assign_ports(self, numbers: list[int]) -> None:
        remaining = iter(numbers)
        self.ports = [
            NodePorts({name: next(remaining) for name in self.settings.protocols}, next(remaining))
            for _ in self.nodes
        ]
        (self.directory / "cluster.json").write_text(
            json.dumps({"cluster_id": self.cluster_id, "ports": numbers})
        )

    def _keep_logs(self) -> None:
        """Keep the logs of a failed start, whose directory is about to go."""
        kept = jars.cache_dir() / "failed-broker-logs"
        kept.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            with contextlib.suppress(OSError):
                shutil.copyfile(node.log_path, kept / f"node-{node.node_id}.log")


class EmbeddedBroker(EmbeddedCluster):
    """A cluster of one: what most tests need."""

    @property
    def pid(self) -> int:
        """The broker's process id. Raises BROKER_NOT_STARTED when it does not run."""
        return self.nodes[0].pid

    @property
    def log_dir(self) -> Path:
        """The broker's data directory: each partition is a folder in it."""
        return self.nodes[0].log_dir

    @property
    def log_path(self) -> Path:
        """What the broker printed."""
        return self.nodes[0].log_path


def _new_cluster_id() -> str:
    """A Kafka uuid. A leading dash would look like an option to Kafka's tools."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else _new_cluster_id()
