"""Several hosts: a broker and a worker on each of three, the driver on a fourth, and networks that
part two of them, or one from all.

One query goes on through all of it: it counts the records of each key by its state and commits
individually. After each fault every record is in its table once, and each key was counted in order.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers import Topics
from keyrange.members.model.assignment import Assignment
from pinned_cluster import Feeder, PinnedRun
from platforms.host_cluster import WORKERS, HostBrokers, SparkHosts, host_cluster, topics_on
from platforms.hosts import Network, needs_hosts

pytestmark = needs_hosts

PARTITIONS = 3
SESSION_S = 15.0
GIVEN = {
    "memberNames": "static",
    "session.timeout.ms": str(int(SESSION_S * 1000)),
    "registration.timeout.ms": "20000",
    "expansion.timeout.ms": "1000",
    "maxOffsetsPerTrigger": "300",
    "kafka.request.timeout.ms": "10000",
    "kafka.socket.connection.setup.timeout.ms": "4000",
}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("driver", *WORKERS) as made:
        yield made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def topics(network: Network, home: Path) -> Iterator[Topics]:
    brokers = HostBrokers(network, home)
    brokers.start()
    made = topics_on(brokers)
    yield made
    made.close()


@dataclass
class Counting:
    """The query, and the hosts that it runs on."""

    network: Network
    topics: Topics
    run: PinnedRun
    feeder: Feeder

    def settle(self) -> Assignment:
        """Until three executors are there, and have all key ranges."""
        return self.run.settle(3)

    def holds(self) -> None:
        """All that was sent until now is there once, and each key was counted in its order."""
        sent, path = self.feeder.sent, self.run.home / "table"
        self.run.wait(lambda: DeltaTable(path).to_pyarrow_dataset().count_rows() >= sent)
        offsets: dict[int, list[int]] = defaultdict(list)
        counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in DeltaTable(path).to_pyarrow_table().to_pylist():
            offsets[row["partition"]].append(row["offset"])
            counts[row["key"]].append((row["offset"], row["n"]))
        for partition, found in offsets.items():
            assert sorted(found) == [*range(len(found))], partition
        for key, found in counts.items():
            assert [n for _, n in sorted(found)] == [*range(1, len(found) + 1)], key

    def seconds_of_batches(self) -> float:
        started = time.monotonic()
        self.run.more_batches(3)
        return time.monotonic() - started

    def in_sync(self) -> int:
        """How many replicas of each partition are in sync, the fewest of any partition."""
        [told] = self.topics.admin.describe_topics([self.run.topic])
        return min(len(each["isr_nodes"]) for each in told["partitions"])

    def lasts(self, seconds: float, broken: Callable[[], None], mended: Callable[[], None]) -> None:
        """A fault that lasts for so long."""
        broken()
        try:
            until = time.monotonic() + seconds
            self.run.wait(lambda: time.monotonic() >= until)
        finally:
            mended()


@pytest.fixture(scope="module")
def counting(network: Network, topics: Topics, home: Path) -> Iterator[Counting]:
    hosts = SparkHosts(network, home)
    hosts.start()
    topic = topics.create_topic("counted", PARTITIONS, replicas=3)
    with (
        host_cluster(network, topics, home, hosts) as cluster,
        Feeder(topics, topic, PARTITIONS, per_second=50) as feeder,
    ):
        run = cluster.start_counting("counted", topic, pause_s=0.01, **GIVEN)
        found = Counting(network, topics, run, feeder)
        found.settle()
        yield found


def test_a_driver_that_cannot_reach_an_executor_for_longer_than_a_session(
    counting: Counting,
) -> None:
    """Both reach the brokers, so the executor keeps its name, and its key ranges their owner. Spark
    gives its tasks to others when it has not heard from it for spark.network.timeout."""
    network = counting.network
    ends = network["driver"], network["two"]
    before = counting.settle()
    counting.lasts(3 * SESSION_S, lambda: network.cut(*ends), lambda: network.heal(*ends))
    counting.run.more_batches()
    after = counting.settle()
    counting.holds()
    assert after.slots == before.slots


def test_a_link_that_is_slow(counting: Counting) -> None:
    """Batches take longer, and nothing else comes of it: neither names nor key ranges move."""
    before, network = counting.settle(), counting.network
    usual_s = counting.seconds_of_batches()
    network.slow(network["two"], kbit=256)
    try:
        slow_s = counting.seconds_of_batches()
    finally:
        waited = network.fast(network["two"])
    print(f"3 batches: {usual_s:.1f} s, with 256 kbit/s to one of 3 executors {slow_s:.1f} s")
    assert waited > 0
    after = counting.settle()
    counting.holds()
    assert (after.epoch, after.slots) == (before.epoch, before.slots)


def test_two_hosts_that_cannot_reach_each_other(counting: Counting) -> None:
    """The executor of each reads of the other's broker in vain, and neither broker copies from the
    other. Both reach the driver and the third broker."""
    network = counting.network
    ends = network["one"], network["two"]
    before = counting.settle()
    assert counting.in_sync() == 3
    network.cut(*ends)
    try:
        counting.run.wait(lambda: counting.in_sync() < 3)
        until = time.monotonic() + 2 * SESSION_S
        counting.run.wait(lambda: time.monotonic() >= until)
    finally:
        network.heal(*ends)
    counting.run.more_batches()
    after = counting.settle()
    counting.holds()
    assert after.slots == before.slots


def test_a_host_that_vanishes_and_comes_back(counting: Counting) -> None:
    """Others get its keys and their state, and it gets keys again when it is back."""
    before, host = counting.settle(), counting.network["two"]
    counting.network.unplug(host)
    try:
        counting.run.wait(
            lambda: (now := counting.run.assignment()) is not None and now.epoch > before.epoch
        )
        lost = counting.run.assignment()
        assert lost is not None
        assert len(lost.slots) == 2
        counting.run.more_batches()
    finally:
        counting.network.plug(host)
    counting.settle()
    counting.run.more_batches()
    counting.holds()
