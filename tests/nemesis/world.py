"""Where a run takes place: brokers, what is between them and the job, and directories."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from brokers.real_broker import Topics
from brokers.secured_brokers import SecuredCluster, SecuredSettings
from faults.tcp_proxy import TcpProxy
from nemesis.facts import Again, Gone, Place, ResetCommit, Start
from nemesis.feeder import Feeder
from nemesis.modes import Mode
from nemesis.store import Bucket, Files, Store
from nemesis.values import values_of

PARTITIONS = 3
USER = "nemesis"
_PROTOCOL = "SASL_PLAINTEXT"
_LAKE_BYTES = 256 << 20
MEMORY_BYTES = 128 << 20
MEMORY = Path("/dev/shm")


class World:
    """All that faults are done to, but for processes of Spark.

    `run` tells its records from those of other runs. `private` says that /dev/shm, and the lake
    where it keeps the tables, are file systems of this run alone. `now` are seconds since the query
    ran for the first time.
    """

    def __init__(
        self, home: Path, mode: Mode, seed: int, rate: int, private: bool, store: str = "files"
    ) -> None:
        self.home, self.mode, self.private = home, mode, private
        self.run = secrets.token_hex(4)
        self.password = f"never-{secrets.token_hex(8)}-logged"
        self.lake, self.logs = home / "lake", home / "logs"
        self.slots, self.clock = home / "slots", home / "clock"
        for path in (self.lake, self.logs, self.slots, home / "local", home / "tmp"):
            path.mkdir(mode=0o700, parents=True)
        self.clock.write_text("0")
        self.secret_file = home / "password"
        self.secret_file.write_text(self.password)
        if private:
            _mount(MEMORY, MEMORY_BYTES)
            if store == "files":
                _mount(self.lake, _LAKE_BYTES)
        self.store: Store = Files(self.lake) if store == "files" else Bucket(self.lake)
        self.gone: list[Gone] = []
        # What was handed out again, by the commit that says so.
        self.resets: dict[ResetCommit, Again] = {}
        # What was deleted behind the committed position, and what of it was asked for again.
        self.deleted: list[Gone] = []
        self.unreadable: set[Place] = set()
        # Numbers that nobody had acknowledged when a log was cut back.
        self.unsure_at_cuts: set[int] = set()
        self.complaints: list[tuple[str, str]] = []
        self.starts: list[Start] = []
        self.say: Callable[[str], None] = print
        self._began = time.monotonic()
        self.cluster = SecuredCluster(_settings(mode, self.password), home / "brokers")
        self.proxy: TcpProxy | None = None
        if mode.nodes == 1:
            self.proxy = TcpProxy(("127.0.0.1", self.cluster.nodes[0].port(_PROTOCOL)))
            own = self.cluster.nodes[0].port()
            listeners = f"PLAINTEXT://127.0.0.1:{own},{_PROTOCOL}://{self.proxy.address}"
            settings = self.cluster.settings
            properties = {**settings.properties, "advertised.listeners": listeners}
            self.cluster.settings = replace(settings, properties=properties)
        self.cluster.start()
        self.topics = Topics(self.cluster)
        self.topic = f"orders-{self.run}"
        self.partitions = PARTITIONS
        self.create_topic()
        self.copies_topic = f"copies-{self.run}" if mode.copies_topic else ""
        if self.copies_topic:
            self.topics.create_named(self.copies_topic, PARTITIONS, {}, min(2, mode.nodes))
        self.values = values_of(mode.values, self.run, self.topic)
        has_times = mode.time in ("session", "timers")
        self.feeder = Feeder(self.topics, self.topic, self.run, seed, rate, self.values, has_times)

    def create_topic(self) -> None:
        """Of two replicas where there are three brokers: then a third one keeps the quorum."""
        replicas = min(2, self.mode.nodes)
        self.topics.create_named(
            self.topic,
            self.partitions,
            {
                "unclean.leader.election.enable": "true",
                "retention.ms": "-1",
                # Clocks of producers may be wrong.
                "message.timestamp.after.max.ms": str(2**63 - 1),
            },
            replicas,
        )

    @property
    def bootstrap(self) -> str:
        if self.proxy is not None:
            return self.proxy.address
        return self.cluster.bootstrap_servers_of(_PROTOCOL)

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def begin(self) -> None:
        """The clock of the schedule starts now."""
        self._began = time.monotonic()

    def reconnect(self) -> None:
        """The tests' own admin client does not outlive a broker."""
        try:
            self.topics.close()
        except Exception as failure:
            self.topics._admin = None
            self.say(f"the admin client was given up: {failure!r}")

    def client_options(self) -> dict[str, str]:
        return {
            "kafka.security.protocol": _PROTOCOL,
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.username": USER,
            "kafka.sasl.password": f"@{self.secret_file}",
        }

    def keep(self) -> None:
        """Leave the tables where they are found when this file system is gone."""
        if self.private:
            shutil.copytree(self.lake, self.home / "kept-lake", dirs_exist_ok=True)

    def close(self) -> None:
        self.reconnect()
        if self.proxy is not None:
            self.proxy.close()
        self.cluster.kill()
        self.cluster.close()
        self.values.close()
        self.store.close()


def _settings(mode: Mode, password: str) -> SecuredSettings:
    return SecuredSettings(
        nodes=mode.nodes,
        listeners=(_PROTOCOL,),
        users={USER: password},
        heap_mb=256,
        properties={"log.retention.ms": "-1"},
    )


def _mount(path: Path, size: int) -> None:
    """A small file system of this run alone, gone with its mount namespace."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", str(path)]
    subprocess.run(command, check=True)
