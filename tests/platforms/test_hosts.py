"""Several hosts: a broker and a worker on each of three, the driver on a fourth, and networks that
part two of them, one from all, or one from a single service of another.

One query goes on through all of it: it counts the records of each key by its state and commits
individually. After each fault every record is in its table once, and each key was counted in order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.real_broker import Topics
from faults.key_feeder import Feeder
from platforms.counted_hosts import GIVEN, PARTITIONS, PAUSE_S, SESSION_S, Counting
from platforms.host_cluster import (
    BINDING,
    INSIDE,
    WORKERS,
    HostBrokers,
    SparkHosts,
    host_cluster,
    topics_on,
)
from platforms.hosts import Network, needs_hosts
from queries.pinned_checks import restart

pytestmark = needs_hosts

# What a task says that could not ask.
UNREACHABLE = (
    "[BINDING_UNREACHABLE] the query's planning process at "
    f"driver.hosts.example:{BINDING} was asked 3 times what this task reads: timed out"
)
# A driver that is cut off for less does not lose its executors.
STEADFAST = {"spark.network.timeout": "180s"}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("driver", "master", *WORKERS) as made:
        yield made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def brokers(network: Network, home: Path) -> HostBrokers:
    made = HostBrokers(network, home)
    made.start()
    return made


@pytest.fixture(scope="module")
def topics(brokers: HostBrokers) -> Iterator[Topics]:
    made = topics_on(brokers)
    yield made
    made.close()


@pytest.fixture(scope="module")
def counting(
    network: Network, brokers: HostBrokers, topics: Topics, home: Path
) -> Iterator[Counting]:
    hosts = SparkHosts(network, home)
    hosts.start()
    topic = topics.create_topic("counted", PARTITIONS, replicas=3)
    with (
        host_cluster(network, topics, home, hosts) as cluster,
        Feeder(topics, topic, PARTITIONS, per_second=50) as feeder,
    ):
        run = cluster.start_counting("counted", topic, pause_s=PAUSE_S, **GIVEN)
        found = Counting(network, hosts, brokers, topics, run, feeder)
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


def test_an_executor_that_cannot_ask_the_driver_what_it_reads(counting: Counting) -> None:
    """Its host reaches the brokers and Spark's own ports of the driver, so it keeps its name and
    its key ranges; others read them until it can ask again."""
    network = counting.network
    before, two = counting.settle(), network["two"]
    with counting.cut_port(two, network["driver"], BINDING) as said:
        counting.run.wait(lambda: UNREACHABLE in said(), timeout_s=60)
        counting.run.wait(lambda: counting.foreign() > 0, timeout_s=60)
        counting.run.more_batches(1)
    counting.run.wait(lambda: counting.foreign() == 0, timeout_s=60)
    assert counting.settle() == before
    counting.holds()


def test_a_strict_pin_waits_for_the_executor_that_cannot_ask(counting: Counting) -> None:
    """Nobody else may read its key ranges. It asks for a quarter of a minute."""
    network = counting.network
    two, driver = network["two"], network["driver"]
    before = counting.settle()
    counting.again(pin="strict", **{"pin.wait.ms": "1000"})
    assert counting.settle() == before
    with counting.cut_port(two, driver, BINDING) as said:
        counting.run.wait(lambda: two.knocks(BINDING), timeout_s=60)
        waits = counting.run.status()["batch"]
        until = time.monotonic() + 7
        counting.run.wait(lambda: time.monotonic() >= until)
        assert counting.run.status()["batch"] == waits
        assert "Lost task" not in said()
    counting.run.more_batches()
    with counting.cut_port(two, driver, BINDING) as said:
        failure = counting.run.failure(timeout_s=240)
    # Which of them is the last of all attempts depends on the executors that Spark chose.
    assert re.search(
        rf"{re.escape(UNREACHABLE)}|PIN_REFUSED\] .* pinned to \S*two\.hosts\.example", failure
    )
    assert UNREACHABLE in said()
    counting.again()
    assert counting.settle() == before
    counting.holds()


def test_an_executor_that_cannot_reach_the_leader_of_what_it_reads(counting: Counting) -> None:
    """Driver, other brokers and the coordinator of its group answer it, so it keeps its key ranges.
    Its tasks fail soon, and Spark has others do their work meanwhile."""
    counting.again(**{"kafkaConsumer.pollTimeoutMs": "8000"})
    before, partition = counting.settle(), 0
    reader = counting.owner(before, partition)
    coordinator = counting.leader("__consumer_offsets", 0)
    hosts = (counting.network[name] for name in WORKERS)
    leader = next(host for host in hosts if host not in (reader, coordinator))
    counting.lead(partition, leader)
    counting.run.more_batches()
    with counting.cut_port(reader, leader, INSIDE) as said:
        failure = (
            rf"REQUEST_TIMED_OUT\] no records for 8000 ms, last: .*{leader.hostname}:{INSIDE}.*"
            rf"\(topic={counting.run.topic}, partition={partition}, offset=\d+\)"
        )
        counting.run.wait(lambda: re.search(failure, said()) is not None, timeout_s=90)
        counting.run.more_batches(1)
    counting.run.more_batches(1)
    assert counting.settle() == before
    counting.holds()


def test_an_executor_that_is_killed_on_one_of_several_hosts(counting: Counting) -> None:
    """Spark starts another on the host, which has the name, and so the key ranges."""
    run, before = counting.run, counting.settle()
    members = run.members()
    pid = next(pid for pid, each in members.items() if "two.hosts.example" in each.name)
    [victim] = [each for each in run.cluster.executors() if each.pid == pid]
    restart(run.cluster, run, victim)
    assert counting.settle() == before
    [name] = [each.name for each in run.members().values() if "two.hosts.example" in each.name]
    assert name == members[pid].name
    counting.holds()


def test_the_broker_of_a_leader_is_killed_and_comes_back(counting: Counting) -> None:
    """Another host's broker leads its partitions, and the one that is back catches up."""
    before, brokers = counting.settle(), counting.brokers
    assert counting.in_sync() == 3
    host = counting.network["one"]
    counting.lead(0, host)
    brokers.kill(host)
    try:
        counting.run.wait(lambda: counting.leader(counting.run.topic, 0) is not host, 60)
        counting.run.more_batches()
        counting.holds()
    finally:
        brokers.start_one(host)
    counting.run.wait(lambda: counting.in_sync() == 3, 60)
    counting.lead(0, host)
    counting.run.more_batches()
    assert counting.settle() == before
    counting.holds()


def test_a_driver_that_another_has_replaced(counting: Counting, tmp_path: Path) -> None:
    """It is cut off while its tasks run. When it is back it ends, and it has written nothing."""
    counting.settle()
    counting.run.cluster.close()
    with counting.driver(tmp_path / "first", "driver", **STEADFAST) as cluster:
        first = counting.taken_over(cluster, pause_s=0.05)
        first.run.more_batches()
        counting.spark.start_worker("master", cores=3)
        with counting.driver(tmp_path / "second", "master") as another:
            first.run.wait(first.all_work)
            before = first.writers()
            counting.network.unplug(counting.network["driver"])
            try:
                second = first.taken_over(another)
                second.run.wait(lambda: second.writers() != before)
            finally:
                counting.network.plug(counting.network["driver"])
            failure = first.run.failure(timeout_s=150)
            # Its executors would keep their names.
            cluster.close()
            second.settle()
            second.holds()
    assert re.search(r"COMMITS_FENCED\] run \w+ writes the commits of this query", failure)
    assert f"and run {before[-1]} is not to write any more" in failure
    assert second.writers()[:-1] == before
