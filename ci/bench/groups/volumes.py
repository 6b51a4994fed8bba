"""Group `volumes`: what a look at many volumes costs, how much longer a batch is planned beside it,
and how long a producer is muted while the guard slows it down."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from queue import Queue
from unittest import mock

from kafka import KafkaProducer

from bench import topics
from bench.companions import companion
from bench.delays import delay_figures, paired_plans
from bench.figures import Figure, at_most, from_runs
from bench.log_dir_brokers import HOST
from bench.registry import Bench, Group
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.guard import log_dirs
from keyrange.guard.client_quotas import read_quotas
from keyrange.guard.factor_sources import ClusterVolumes
from keyrange.guard.log_dirs import yield_gil
from keyrange.guard.model.quota_ramp import WINDOW_MS, floor_rate
from keyrange.kafka.cluster import Cluster
from keyrange.model.volumes import Limit, Policy
from keyrange.options.kafka_properties import ClientSettings

_DIRECTORIES = 10
_RECORD_BYTES = 15_000
_PATIENCE_S = 300.0
_MUTE_MS = 60_000
_FLOOR = floor_rate(_MUTE_MS, connections=1, request_bytes=1 << 20)


def run(bench: Bench) -> Iterator[Figure]:
    brokers = bench.pick(full=100, quick=100, tiny=5)
    with _many(brokers) as settings:
        policy = Policy(Limit(min_available_ratio=0.1), interval_ms=200)
        yield from _check(bench, settings, policy, brokers * _DIRECTORIES)
        pairs = bench.pick(full=100, quick=40, tiny=3)
        yield from delay_figures(paired_plans(ClusterVolumes(settings, policy), bench.runs, pairs))
    with EmbeddedBroker() as broker:
        yield _mute(bench, broker)


@contextmanager
def _many(brokers: int) -> Iterator[ClientSettings]:
    said: Queue[str] = Queue()
    with companion("bench.log_dir_brokers", brokers, _DIRECTORIES, heard=said.put):
        port = int(said.get(timeout=_PATIENCE_S))
        yield ClientSettings(bootstrap_servers=((HOST, port),))


def _check(
    bench: Bench, settings: ClientSettings, policy: Policy, volumes: int
) -> Iterator[Figure]:
    """The CPU of a check, and how much of it comes without a pause: what others may wait for."""
    marks: list[float] = []

    def noted() -> None:
        marks.append(time.thread_time())
        yield_gil()

    seconds, stretches = [], []
    with mock.patch.object(log_dirs, yield_gil.__name__, noted):
        source = ClusterVolumes(settings, policy)
        for number in range(-1, 2 * bench.runs):
            before = time.process_time()
            marks[:] = [time.thread_time()]
            source.check()
            marks.append(time.thread_time())
            if number >= 0:  # the first one connects
                seconds.append(time.process_time() - before)
                stretches.append(max(after - since for since, after in pairwise(marks)) * 1e3)
    seen = source.figures(0).active_log_dirs
    source.close()
    if seen != volumes:
        raise RuntimeError(f"{seen} volumes were seen, not {volumes}")
    yield from_runs("volumes.check_1000.cpu_seconds", seconds, "s")
    yield from_runs("volumes.check_1000.stretch.ms", stretches, "ms")


def _mute(bench: Bench, broker: EmbeddedBroker) -> Figure:
    """The longest time without an acknowledgement, from full rate to the floor and back."""
    rate = bench.pick(full=2_000_000, quick=1_000_000, tiny=200_000)
    factor = bench.directory / "factor"
    factor.write_text("0")
    topic = topics.create_topic(broker.bootstrap_servers, "mute", 1)
    cluster = Cluster(_client(broker))
    acked: list[float] = []
    ended = threading.Event()
    producing = threading.Thread(
        target=_produce, args=(broker.bootstrap_servers, topic, rate, acked, ended)
    )
    producing.start()
    guard = subprocess.Popen(_guard(broker, factor, rate), stdout=sys.stderr)
    try:
        _until(lambda: _rate(cluster) == _FLOOR, guard)
        time.sleep(WINDOW_MS / 1000)
        factor.write_text("1")
        _until(lambda: _rate(cluster) is None, guard)
        time.sleep(5)
    finally:
        ended.set()
        guard.terminate()
        guard.wait()
        producing.join()
        cluster.close()
    longest = max(after - before for before, after in pairwise(acked))
    return from_runs("volumes.longest_mute.seconds", [longest], "s")


def _until(reached: Callable[[], bool], guard: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not reached():
        if guard.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the guard did not get there")
        time.sleep(0.5)


def _rate(cluster: Cluster) -> float | None:
    """What the guard has set for all clients."""
    quotas = read_quotas(cluster, 10_000)
    rates = [each["producer_byte_rate"] for who, each in quotas.items() if who.client_id == ""]
    return rates[0] if rates else None


def _guard(broker: EmbeddedBroker, factor: Path, rate: int) -> list[str]:
    given = {
        "guard.enforce": "true",
        "guard.dry.run": "false",
        "guard.reaper": "this benchmark",
        "guard.connections": "1",
        "guard.max.mute.ms": str(_MUTE_MS),
        "quota.producer.byte.rate": str(rate),
        "throttle.factor.source": "file",
        "throttle.factor.file": str(factor),
        "storage.check.interval": "PT1S",
    }
    options = [part for each in given.items() for part in ("--option", "=".join(each))]
    command = [sys.executable, "-m", "keyrange.cli.main", "volumes", "guard"]
    return [*command, "--bootstrap-servers", broker.bootstrap_servers, *options]


def _produce(
    servers: str, topic: str, rate: int, acked: list[float], ended: threading.Event
) -> None:
    """Records at a rate, one after the other; the time of each acknowledgement."""
    pause_s = _RECORD_BYTES / rate
    with KafkaProducer(bootstrap_servers=servers, request_timeout_ms=120_000) as producer:
        while not ended.is_set():
            before = time.monotonic()
            producer.send(topic, bytes(_RECORD_BYTES)).get(timeout=_PATIENCE_S)
            acked.append(time.monotonic())
            time.sleep(max(pause_s - (acked[-1] - before), 0))


def _client(broker: EmbeddedBroker) -> ClientSettings:
    host, _, port = broker.bootstrap_servers.partition(":")
    return ClientSettings(bootstrap_servers=((host, int(port)),))


GROUP = Group(
    order=11,
    run=run,
    targets={
        "volumes.check_1000.cpu_seconds": at_most(1),
        "volumes.check_1000.stretch.ms": at_most(5),
        "volumes.batch_delay.ms": at_most(5),
        "volumes.longest_mute.seconds": at_most(_MUTE_MS / 1000),
    },
    own_broker=True,
)
