"""`keyrange volumes` as processes beside real brokers, and a producer that feels the guard."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from brokers.real_broker import Topics, wait_until
from commands import commanding
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.errors import KeyrangeError
from keyrange.guard.client_quotas import alter_quotas, read_quotas
from keyrange.guard.model.lease import Lease, read_lease
from keyrange.guard.model.quota_entities import RATE, Alteration, QuotaEntity, Quotas
from keyrange.kafka.cluster import Cluster
from spark.sources import client

TIMEOUT_MS = 20_000
ALICE, APP, EVERYBODY = (
    QuotaEntity("alice", None),
    QuotaEntity(None, "app"),
    QuotaEntity(None, ""),
)
PRIOR: Quotas = {
    ALICE: {RATE: 4_000_000.0, "consumer_byte_rate": 123_456_789.0},
    QuotaEntity("", None): {"request_percentage": 312.5},
    APP: {RATE: 2_000_000.0},
}
# A guard whose throttle begins in half a second, and is dead after 22.
QUICK = {
    "guard.enforce": "true",
    "guard.reaper": "a test",
    "guard.lease.ms": "22000",
    "storage.check.interval": "PT0.5S",
}


class ClusterQuotas:
    """The quotas of a cluster, as they are when asked for."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = Cluster(client(cluster))

    def __call__(self) -> Quotas:
        """Brokers that are killed meanwhile are asked again."""
        for _ in range(5):
            try:
                return read_quotas(self._cluster, TIMEOUT_MS)
            except KeyrangeError:
                time.sleep(0.5)
        return read_quotas(self._cluster, TIMEOUT_MS)

    def rate(self, entity: QuotaEntity) -> float | None:
        return self().get(entity, {}).get(RATE)

    @property
    def lease(self) -> Lease | None:
        return read_lease(self())

    def write(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        alter_quotas(self._cluster, [Alteration(entity, key, value)], False, TIMEOUT_MS)

    def become(self, quotas: Quotas) -> None:
        """Write these, and wait until they and no others are there."""
        there = self()
        gone = [
            Alteration(entity, key, None)
            for entity, values in there.items()
            for key in values
            if key not in quotas.get(entity, {})
        ]
        wanted = [
            Alteration(entity, key, value)
            for entity, values in quotas.items()
            for key, value in values.items()
        ]
        alter_quotas(self._cluster, [*gone, *wanted], False, TIMEOUT_MS)
        wait_until(lambda: self() == quotas)

    def close(self) -> None:
        self._cluster.close()


@contextmanager
def quotas_at(cluster: EmbeddedCluster, prior: Quotas = PRIOR) -> Iterator[ClusterQuotas]:
    """At first these, and no others."""
    made = ClusterQuotas(cluster)
    made.become(prior)
    yield made
    made.close()


def command(servers: str, *arguments: str, program: Sequence[str] = ()) -> list[str]:
    begin = [sys.executable, "-P", *(program or ("-m", "keyrange.cli.main"))]
    return [*begin, "volumes", *arguments, "--bootstrap-servers", servers]


def named(options: Mapping[str, str]) -> list[str]:
    """Options as arguments of a command."""
    return [part for each in options.items() for part in ("--option", "=".join(each))]


def by_file(factor: Path) -> dict[str, str]:
    return {"throttle.factor.source": "file", "throttle.factor.file": str(factor)}


@contextmanager
def guarding(
    cluster: EmbeddedCluster,
    log: Path,
    options: Mapping[str, str],
    program: Sequence[str] = (),
    servers: str = "",
    metrics_port: int = 0,
) -> Iterator[subprocess.Popen[bytes]]:
    """A guard beside a cluster; what it says goes to `log`. It is killed at the end."""
    shown = ("--metrics-port", str(metrics_port))
    begin = command(servers or cluster.bootstrap_servers, "guard", *shown, program=program)
    arguments = [*begin, *named(QUICK | dict(options))]
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, stdout=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(log: Path, what: str) -> list[dict[str, Any]]:
    """All that a guard has said of one kind."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return [line for line in lines if line["what"] == what]


def run(cluster: EmbeddedCluster, *arguments: str, code: int = 0) -> list[str]:
    """What a command has said that ends with an exit code."""
    servers = ("--bootstrap-servers", cluster.bootstrap_servers)
    done = commanding.run("volumes", *arguments, *servers)
    assert done.exit_code == code, (done.output, done.exception)
    return [json.loads(line)["what"] for line in done.stdout.splitlines()]


class Producing:
    """A producer in a thread that sends at a rate, one request after the other."""

    def __init__(self, topics: Topics, topic: str, rate: int, record_bytes: int = 40_000) -> None:
        self._topics, self._topic = topics, topic
        self._record = bytes(record_bytes)
        self._pause_s = record_bytes / rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        # When each record was acknowledged, in seconds since 1970.
        self.acked: list[float] = []

    def __enter__(self) -> Producing:
        self._thread.start()
        wait_until(lambda: len(self.acked) > 5)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(120)

    def _run(self) -> None:
        with self._topics.producer(request_timeout_ms=120_000, client_id="load") as producer:
            while not self._ended.is_set():
                before = time.time()
                producer.send(self._topic, self._record).get(timeout=120)
                self.acked.append(time.time())
                time.sleep(max(self._pause_s - (self.acked[-1] - before), 0))

    def rate(self, since_s: float, until_s: float) -> float:
        """Bytes a second that were acknowledged."""
        count = sum(since_s <= at < until_s for at in self.acked)
        return count * len(self._record) / (until_s - since_s)

    @property
    def longest_mute_s(self) -> float:
        """Also the one that goes on still."""
        return max(after - before for before, after in pairwise([*self.acked, time.time()]))
