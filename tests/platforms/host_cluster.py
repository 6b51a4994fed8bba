"""Brokers, a Spark standalone cluster and the driver of queries, each on a host of its own.

Host `driver` has the driver, `master` Spark's master; `one`, `two` and `three` have a broker and a
worker each. Clients inside know all of them by name; this machine reaches the brokers by address.
Files are those of this machine: the store that a cluster's hosts share. Slots are the host's own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from brokers.real_broker import Topics, wait_until
from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.embedded.process import java_command, run_java
from keyrange.embedded.settings import BrokerSettings, NodePorts, server_properties
from keyrange.members.status import MemberStatus, read_status
from keyrange.options.members import MEMBERS_SUFFIX
from keyrange.ranges.sharing.shared_directory import name_of
from platforms.hosts import Host, Network, log_to
from queries.pinned_cluster import PinnedCluster, PinnedRun
from spark.worker_python import WORKER_PYTHON

WORKERS = ("one", "two", "three")
# For this machine by address, for clients on the hosts by name, and for the brokers themselves.
CONSOLE, INSIDE, _BETWEEN, _QUORUM = 9092, 9094, 9095, 9093
# Where tasks ask the driver.
BINDING = 7078
_MASTER = 7077
# What a cluster gives up on within seconds, so that a test need not wait for minutes.
_SPARK = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "4s",
    "spark.worker.timeout": "15",
    "spark.rpc.askTimeout": "30s",
    "spark.executor.memory": "640m",
    "spark.python.unix.domain.socket.enabled": "true",
}


class HostBrokers:
    """Three brokers, each in a rack that is called by its host."""

    def __init__(self, network: Network, home: Path) -> None:
        self._hosts = [network[name] for name in WORKERS]
        self._home = home
        self._jars = jars.resolve(jars.kafka(jars.KAFKA_VERSION))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cluster_id = "c2V2ZXJhbC1ob3N0cy0wMA"

    @property
    def bootstrap_servers(self) -> str:
        """As this machine reaches them."""
        return ",".join(f"{host.address}:{CONSOLE}" for host in self._hosts)

    def bootstrap_servers_of(self, protocol: str) -> str:
        assert protocol == "PLAINTEXT"
        return self.bootstrap_servers

    def start(self) -> None:
        for host in self._hosts:
            named = ["format", "-t", self._cluster_id, "-c", str(self._make_properties(host))]
            run_java(self._jars, "kafka.tools.StorageTool", named)
            self._begin(host)
        for host in self._hosts:
            self._await(host, 1)

    def start_one(self, host: Host) -> None:
        """Start a broker that was killed; returns when it serves."""
        self._begin(host)
        self._await(host, 2)

    def kill(self, host: Host) -> None:
        host.end(self._processes[host.name])

    def node(self, host: Host) -> int:
        """The node id of a host's broker."""
        return self._hosts.index(host) + 1

    def host(self, node: int) -> Host:
        return self._hosts[node - 1]

    def _place(self, host: Host) -> Path:
        return self._home / f"broker-{host.name}"

    def _make_properties(self, host: Host) -> Path:
        place = self._place(host)
        place.mkdir(parents=True)
        lines = [f"{name}={value}" for name, value in self._properties(host, place).items()]
        properties = place / "server.properties"
        properties.write_text("\n".join(lines) + "\n")
        return properties

    def _begin(self, host: Host) -> None:
        place = self._place(host)
        properties = str(place / "server.properties")
        command = java_command(self._jars, "kafka.Kafka", [properties], heap_mb=256)
        with log_to(place / "server.log") as log:
            self._processes[host.name] = host.start(command, stdout=log, stderr=log)

    def _await(self, host: Host, times: int) -> None:
        """Until a broker has said so often that it is started."""
        log = self._place(host) / "server.log"
        wait_until(lambda: log.read_text().count("Kafka Server started") >= times)

    def _properties(self, host: Host, place: Path) -> dict[str, str]:
        settings = BrokerSettings(nodes=3, racks=WORKERS)
        ports = [NodePorts({"PLAINTEXT": CONSOLE}, _QUORUM)] * 3
        listeners = {
            "PLAINTEXT": (host.address, CONSOLE),
            "INSIDE": (host.hostname, INSIDE),
            "BETWEEN": (host.hostname, _BETWEEN),
        }
        told = [f"{name}://{where}:{port}" for name, (where, port) in listeners.items()]
        bound = [f"{name}://{host.address}:{port}" for name, (_, port) in listeners.items()]
        bound.append(f"CONTROLLER://{host.address}:{_QUORUM}")
        voters = [f"{n}@{each.address}:{_QUORUM}" for n, each in enumerate(self._hosts, 1)]
        return server_properties(settings, self.node(host) - 1, ports, place / "data") | {
            "listeners": ",".join(bound),
            "advertised.listeners": ",".join(told),
            "inter.broker.listener.name": "BETWEEN",
            "controller.quorum.voters": ",".join(voters),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in (*listeners, "CONTROLLER")
            ),
            "replica.lag.time.max.ms": "6000",
        }


def topics_on(brokers: HostBrokers) -> Topics:
    cluster: EmbeddedCluster = brokers
    return Topics(cluster)


class SparkHosts:
    """A master on host `master`, and a worker on each of those with a broker."""

    def __init__(self, network: Network, home: Path) -> None:
        self._network, self._home = network, home
        self.master = f"spark://{network['master'].hostname}:{_MASTER}"
        self.slots = home / "slots"
        self.slots.mkdir(parents=True, exist_ok=True)
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        host = self._network["master"]
        address = ("--host", host.hostname, "--port", str(_MASTER))
        self._start(host, "master.Master", *address)
        log = self._home / "spark-master.log"
        wait_until(lambda: "I have been elected leader" in log.read_text(errors="replace"))
        for name in WORKERS:
            self.start_worker(name)

    def start_worker(self, name: str, cores: int = 1) -> None:
        """One that has room for an executor of one core for each of its cores."""
        host = self._network[name]
        work = ("--work-dir", str(self._home / f"work-{name}"))
        size = ("--cores", str(cores), "--memory", f"{cores}g")
        at = ("--host", host.hostname)
        worker = self._start(host, "worker.Worker", *at, *size, *work, self.master)
        self._workers.append(worker)

    def _start(self, host: Host, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        confs = " ".join(f"-D{name}={value}" for name, value in _SPARK.items())
        with log_to(self._home / f"spark-{host.name}.log") as log:
            return host.start(
                [
                    str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{what}",
                    *("--webui-port", "0", *arguments),
                ],
                {self.slots: self._home / f"slots-{host.name}"},
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": WORKER_PYTHON,
                    "SPARK_DAEMON_JAVA_OPTS": confs,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_HOSTNAME": host.hostname,
                },
            )

    @property
    def roots(self) -> list[int]:
        return [each.pid for each in self._workers]


def shared_memory(pid: int) -> Path:
    """/dev/shm as a process sees it: each host has its own."""
    return Path("/proc", str(pid), "root", "dev", "shm")


class HostRun(PinnedRun):
    """A query whose executors are on hosts of their own."""

    def member(self, executor: psutil.Process) -> MemberStatus | None:
        group = name_of(f"{self.topic}{MEMBERS_SUFFIX}")
        for place in shared_memory(executor.pid).glob(
            f"keyrange-*/{executor.pid}-*/member-{group}"
        ):
            return read_status(place)
        return None


class HostCluster(PinnedCluster):
    """The driver on its host, which executors know by a name and which listens at its address."""

    run_of = HostRun

    def __init__(
        self,
        network: Network,
        topics: Topics,
        home: Path,
        spark: SparkHosts,
        driver: Host,
        confs: Mapping[str, str],
    ) -> None:
        confs = {
            **_SPARK,
            **confs,
            "spark.driver.host": driver.hostname,
            "spark.driver.bindAddress": driver.address,
            "spark.cores.max": "3",
            "spark.executor.cores": "1",
            # The next attempt goes to another host, as deploy.md says.
            "spark.excludeOnFailure.taskAndStage.enabled": "true",
        }
        self.names = ",".join(f"{network[name].hostname}:{INSIDE}" for name in WORKERS)
        self.driver_name, self.driver_address = driver.hostname, driver.address
        prefix = driver.prefix()
        super().__init__(topics, home, spark.master, confs, spark.roots, prefix=prefix)

    def _options(self, name: str, topic: str, given: Mapping[str, str]) -> dict[str, str]:
        return super()._options(
            name,
            topic,
            {
                "kafka.bootstrap.servers": self.names,
                "pin.driver.host": self.driver_name,
                "pin.driver.bind.address": self.driver_address,
                "pin.driver.port": str(BINDING),
                **given,
            },
        )


@contextmanager
def host_cluster(
    network: Network,
    topics: Topics,
    home: Path,
    spark: SparkHosts,
    driver: str = "driver",
    **confs: str,
) -> Iterator[HostCluster]:
    """A driver that is ready for queries. `confs` are Spark's."""
    cluster = HostCluster(network, topics, home, spark, network[driver], confs)
    try:
        cluster.answered(0)
        yield cluster
    finally:
        cluster.close()
