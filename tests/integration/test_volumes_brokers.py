"""Three brokers, one of them on a small disk that fills while producers and a query run."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from brokers.java import PRODUCER, compiled
from brokers.real_broker import Topics, wait_until
from faults.small_volumes import KEPT_MB, MB, SMALL, SmallVolume, three_brokers
from guards.guard_processes import (
    EVERYBODY,
    PRIOR,
    ClusterQuotas,
    Producing,
    guarding,
    quotas_at,
    said,
)
from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.embedded.process import java_command
from keyrange.guard.clock import monotonic_ms
from keyrange.guard.factor_sources import ClusterVolumes
from keyrange.guard.log_dirs import LogDirReader
from keyrange.model.volumes import Limit, Policy, Recovery
from spark.sources import Collected, client, stream

INTERVAL_S = 2.0
MUTE_S = 22.0
BY_VOLUME = {
    "min.available.bytes": f"{KEPT_MB}m",
    "guard.dry.run": "false",
    "guard.max.mute.ms": f"{MUTE_S * 1000:.0f}",
    "guard.connections": "1",
}
# What is produced to these does not stay.
SHORT_LIVED = {"retention.bytes": str(2 * MB)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with three_brokers(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def topics(cluster: EmbeddedCluster) -> Iterator[Topics]:
    made = Topics(cluster)
    yield made
    made.close()


@pytest.fixture
def volume(cluster: EmbeddedCluster) -> Iterator[SmallVolume]:
    made = SmallVolume(cluster.nodes[SMALL - 1])
    yield made
    made.free()


@pytest.fixture
def quotas(cluster: EmbeddedCluster) -> Iterator[ClusterQuotas]:
    """At first PRIOR, and none after the test: others produce here too."""
    with quotas_at(cluster) as made:
        yield made
        made.become({})


@contextmanager
def sending(
    topics: Topics, pause_s: float, send: Callable[[KafkaProducer], object]
) -> Iterator[None]:
    """A producer in a thread, which sends again after each pause."""
    ended = threading.Event()

    def run() -> None:
        with topics.producer() as producer:
            while not ended.wait(pause_s):
                send(producer)
                producer.flush()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(120)


def filling(topics: Topics, topic: str) -> AbstractContextManager[None]:
    """About 4 MB a second into all three brokers."""

    def send(producer: KafkaProducer) -> None:
        for _ in range(4):
            producer.send(topic, bytes(100_000), partition=0)

    return sending(topics, 0.1, send)


def is_full(volume: SmallVolume) -> bool:
    return volume.usable_bytes <= KEPT_MB * MB


def test_producers_are_slowed_while_a_disk_is_full_and_released_exactly(
    cluster: EmbeddedCluster,
    topics: Topics,
    volume: SmallVolume,
    quotas: ClusterQuotas,
    tmp_path: Path,
) -> None:
    rate, floor, log = 381_302, 190_651, tmp_path / "log"
    fill = topics.create_topic("fill", replicas=3)
    load = topics.create_topic("load", replicas=3, configs=SHORT_LIVED)
    options = BY_VOLUME | {
        "storage.check.interval": "PT1S",
        "quota.producer.byte.rate": str(rate),
        "guard.request.max.bytes": "2m",
    }
    # Little is left to fill.
    volume.fill(KEPT_MB + 8)
    with Producing(topics, load, rate) as producing, guarding(cluster, log, options) as guard:
        with filling(topics, fill):
            wait_until(lambda: is_full(volume))
        wait_until(lambda: quotas.rate(EVERYBODY) == floor)
        # A quota is about the mean of a window.
        time.sleep(12)
        now_s = time.time()
        slowed = producing.rate(now_s - 11, now_s)
        volume.free()
        topics.delete_records(fill, {0: -1})
        wait_until(lambda: quotas() == PRIOR)
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0
        freed_s = time.time()
        wait_until(lambda: producing.rate(max(freed_s, time.time() - 3), time.time()) > floor)
    print(f"at the floor {slowed:.0f} B/s, longest mute {producing.longest_mute_s:.1f} s")
    assert ramp(log)[0][0] == floor
    assert slowed < 1.2 * floor
    assert producing.longest_mute_s <= MUTE_S
    assert quotas() == PRIOR


@contextmanager
def java_producer(cluster: EmbeddedCluster, topic: str, rate: int, home: Path) -> Iterator[Path]:
    """Kafka's own client, with the client id `app`; what was acknowledged goes to a file."""
    classes = [*jars.resolve(jars.kafka()), compiled("Steady", PRODUCER, home)]
    arguments = [cluster.bootstrap_servers, topic, "app", str(rate)]
    acked = home / "acked"
    with acked.open("wb") as out, (home / "errors").open("wb") as errors:
        process = subprocess.Popen(
            java_command(classes, "Steady", arguments, heap_mb=128),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
        )
        try:
            wait_until(lambda: acked.stat().st_size > 100)
            yield acked
            assert process.stdin is not None
            process.stdin.write(b"end\n")
            process.stdin.close()
            process.wait(120)
        finally:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_disk_that_a_producer_fills_and_that_is_full_again_during_recovery(
    cluster: EmbeddedCluster,
    topics: Topics,
    volume: SmallVolume,
    quotas: ClusterQuotas,
    tmp_path: Path,
) -> None:
    """Down the whole ramp; Kafka's Java client, which keeps to what it was told, goes along."""
    rate, floor, log = 2_000_000, 95_326, tmp_path / "log"
    fill = topics.create_topic("fill", replicas=3)
    load = topics.create_topic("load", replicas=3, configs=SHORT_LIVED)
    options = BY_VOLUME | {
        "storage.check.interval": "PT5S",
        "quota.producer.byte.rate": str(rate),
        "guard.request.max.bytes": "1m",
    }
    with (
        java_producer(cluster, load, 1_000_000, tmp_path) as acked,
        Producing(topics, fill, 1_500_000) as producing,
        guarding(cluster, log, options) as guard,
    ):
        wait_until(lambda: is_full(volume), 120)
        wait_until(lambda: quotas.rate(EVERYBODY) == floor, 150)
        time.sleep(12)
        topics.delete_records(fill, {0: -1})
        wait_until(lambda: "RECOVERING" in stages(log))
        volume.fill(KEPT_MB - 10)
        wait_until(lambda: stages(log)[-1] in ("RAMPING", "FLOOR"))
        refilled_s = time.time()
        wait_until(lambda: quotas.rate(EVERYBODY) == floor, 150)
        print(f"full again, and at the floor after {time.time() - refilled_s:.0f} s")
        volume.free()
        topics.delete_records(fill, {0: -1})
        wait_until(lambda: quotas() == PRIOR)
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0
    levels = ramp(log)
    print(f"stages {stages(log)}")
    for (level, since_s), (_, until_s) in pairwise(levels):
        print(f"{level:.0f} B/s: {producing.rate(since_s, until_s):.0f} B/s were acknowledged")
    java = [int(line) / 1000 for line in acked.read_text().splitlines()]
    longest_java_s = max(after - before for before, after in pairwise(java))
    print(f"longest mute: kafka-python {producing.longest_mute_s:.1f}, Java {longest_java_s:.1f} s")
    values = [level for level, _ in levels]
    assert values[:5] == [1_000_000, 500_000, 250_000, 125_000, floor]
    assert max(producing.longest_mute_s, longest_java_s) <= MUTE_S
    assert quotas() == PRIOR


def stages(log: Path) -> list[str]:
    return [each["to"] for each in said(log, "stage")]


def ramp(log: Path) -> list[tuple[float, float]]:
    """What the guard wrote for clients without a quota of their own, and when."""
    found = []
    for each in said(log, "altered"):
        for quota in each["quotas"]:
            if quota["entity"] == str(EVERYBODY) and quota["value"] is not None:
                at_s = time.mktime(time.strptime(each["at"][:19], "%Y-%m-%dT%H:%M:%S"))
                found.append((quota["value"], at_s - time.timezone))
    return found


def ticking(topics: Topics, topic: str) -> AbstractContextManager[None]:
    """Values that say when they were sent, 20 a second."""
    return sending(topics, 0.05, lambda each: each.send(topic, str(time.time()).encode()))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_query_holds_back_within_a_check_and_resumes(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    topics: Topics,
    volume: SmallVolume,
    tmp_path: Path,
) -> None:
    """From when the filesystem has crossed the limit to the last record that a trigger took in."""
    fill = topics.create_topic("fill", replicas=3)
    topic = topics.create_topic("orders", replicas=3)
    reader, sink = LogDirReader(client(cluster)), Collected()
    frame = stream(
        spark,
        topics,
        topic,
        startingOffsets="earliest",
        **{
            "guard.admission": "true",
            "kafka.admin.bootstrap.servers": cluster.bootstrap_servers,
            "min.available.bytes": f"{KEPT_MB}m",
            "storage.check.interval": f"PT{INTERVAL_S:g}S",
        },
    )
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def newest_s() -> float:
        """When the last record was sent that a trigger has taken in."""
        batches = [runs[-1] for _, runs in sorted(sink.batches.items()) if runs[-1]]
        return max(float(bytes(row[3])) for row in batches[-1]) if batches else 0.0

    try:
        with ticking(topics, topic):
            wait_until(lambda: newest_s() > 0)
            with filling(topics, fill):
                while not is_full(volume):
                    time.sleep(0.005)
                crossed_s = time.time()
            before = time.monotonic()
            reader.read(10_000)
            check_s = time.monotonic() - before
            wait_until(lambda: time.time() - newest_s() > 3 * INTERVAL_S)
            held_after_s = newest_s() - crossed_s
            assert query.isActive
            last = query.lastProgress
            assert last is not None
            allowed_s = INTERVAL_S + check_s + last["durationMs"]["triggerExecution"] / 1000
            print(f"held {held_after_s:.2f} s after the crossing, allowed are {allowed_s:.2f} s")
            topics.delete_records(fill, {0: -1})
            wait_until(lambda: not is_full(volume))
            freed_s = time.time()
            wait_until(lambda: newest_s() > freed_s, 120)
            print(f"takes in new records {newest_s() - freed_s:.1f} s after there was room")
        assert held_after_s <= allowed_s
        wait_until(lambda: len(sink.values) == topics.offsets(topic)[0][1])
    finally:
        query.stop()
        reader.close()


@pytest.mark.slow
def test_a_broker_that_leaves_is_remembered_for_the_validity_time_and_comes_back(
    cluster: EmbeddedCluster, volume: SmallVolume
) -> None:
    validity_ms = 15_000
    recovery = Recovery(readings=1, dwell_ms=0)
    limit = Limit(min_available_bytes=KEPT_MB * MB)
    source = ClusterVolumes(client(cluster), Policy(limit, 0.5, validity_ms, 1_000, recovery))

    def checked() -> tuple[float, int, bool]:
        source.check()
        figures = source.figures(monotonic_ms())
        brokers = {each.broker for each in figures.volumes}
        return figures.factor.value, figures.active_brokers, SMALL in brokers

    volume.fill(KEPT_MB - 10)
    node = cluster.nodes[SMALL - 1]
    try:
        wait_until(lambda: checked() == (0.0, 3, True))
        told_ms = monotonic_ms()
        assert checked() == (0.0, 3, True)
        node.kill()
        # While its session lasts it is a broker that does not answer; then it is none.
        wait_until(lambda: checked() == (0.0, 2, True))
        left_ms = monotonic_ms() - told_ms
        wait_until(lambda: checked() == (1.0, 2, False))
        forgotten_ms = monotonic_ms() - told_ms
        print(f"gone from the cluster after {left_ms} ms, and from the view after {forgotten_ms}")
        assert left_ms < validity_ms < forgotten_ms
        node.start()
        wait_until(lambda: checked() == (0.0, 3, True))
    finally:
        node.start()
        source.close()
