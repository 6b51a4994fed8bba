"""A query on several hosts that counts the records of each key by its state, and commits
individually: how tests of hosts hurt it, and what holds whatever became of the hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from deltalake import DeltaTable
from kafka import KafkaAdminClient, TopicPartition

from brokers.real_broker import Topics, client_config
from faults.key_feeder import Feeder
from keyrange.members.model.assignment import Assignment
from keyrange.members.status import oldest_progress
from keyrange.options.members import MEMBERS_SUFFIX
from keyrange.ranges.sharing.shared_directory import name_of
from platforms.host_cluster import (
    WORKERS,
    HostBrokers,
    HostCluster,
    SparkHosts,
    host_cluster,
    shared_memory,
)
from platforms.hosts import Host, Network
from queries.pinned_checks import check_counts
from queries.pinned_cluster import PinnedRun

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
PAUSE_S = 0.01


@dataclass
class Counting:
    """The query, and the hosts that it runs on."""

    network: Network
    spark: SparkHosts
    brokers: HostBrokers
    topics: Topics
    run: PinnedRun
    feeder: Feeder

    def settle(self) -> Assignment:
        """Until three executors are there, and have all key ranges."""
        self.feeder.check()
        return self.run.settle(3)

    def holds(self) -> None:
        """All that was sent until now is there once, and each key was counted in its order."""
        self.feeder.check()
        sent, path = self.feeder.sent, self.run.place / "table"
        self.run.wait(lambda: DeltaTable(path).to_pyarrow_dataset().count_rows() >= sent)
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        for partition in range(PARTITIONS):
            offsets = sorted(row["offset"] for row in rows if row["partition"] == partition)
            assert offsets == [*range(len(offsets))], partition
        check_counts(rows)

    def again(self, **given: str) -> None:
        """Stop the query, also where it has failed, and start it with other options."""
        cluster, run = self.run.cluster, self.run
        cluster.do("stop", name=run.name)
        cluster.start_counting(run.name, run.topic, pause_s=PAUSE_S, **(GIVEN | given))

    @contextmanager
    def driver(self, home: Path, host: str, **confs: str) -> Iterator[HostCluster]:
        """Another driver, on a host."""
        home.mkdir()
        with host_cluster(self.network, self.topics, home, self.spark, host, **confs) as cluster:
            yield cluster

    def taken_over(self, cluster: HostCluster, pause_s: float = PAUSE_S) -> Counting:
        """The query as another driver goes on with it, whatever became of its last one."""
        topic, after = self.run.topic, self.run
        run = cluster.start_counting(cluster.home.name, topic, pause_s, after, **GIVEN)
        return replace(self, run=run)

    def all_work(self) -> bool:
        """Whether each of three executors has a task at this moment."""
        group = f"member-{name_of(self.run.topic + MEMBERS_SUFFIX)}"
        places = [
            place
            for pid in self.run.members()
            for place in shared_memory(pid).glob(f"keyrange-*/{pid}-*/{group}")
        ]
        busy = [place for place in places if oldest_progress(place) is not None]
        return len(busy) == len(WORKERS)

    def writers(self) -> list[str]:
        """The runs that wrote the commits, in their order, each where another's ends."""
        columns = ["commit_seq", "run_id"]
        rows = DeltaTable(self.run.place / "commits").to_pyarrow_table(columns=columns).to_pylist()
        runs = dict(sorted((row["commit_seq"], row["run_id"]) for row in rows))
        return [run for run, _ in groupby(runs.values())]

    def seconds_of_batches(self) -> float:
        started = time.monotonic()
        self.run.more_batches(3)
        return time.monotonic() - started

    def foreign(self) -> int:
        """How many portions of the last batch another executor has read than their own."""
        found: int = self.run.status()["members"]["foreignPortions"]
        return found

    def in_sync(self) -> int:
        """How many replicas of each partition are in sync, the fewest of any partition, as one of
        the brokers says. A new client asks another one: a broker that is cut off from the
        controller repeats what it last heard."""
        with closing(KafkaAdminClient(**client_config(self.topics.cluster))) as admin:
            [told] = admin.describe_topics([self.run.topic])
        return min(len(each["isr_nodes"]) for each in told["partitions"])

    def leader(self, topic: str, partition: int) -> Host:
        """The host whose broker leads a partition."""
        [told] = self.topics.admin.describe_topics([topic])
        [found] = [each for each in told["partitions"] if each["partition_index"] == partition]
        return self.brokers.host(found["leader_id"])

    def lead(self, partition: int, host: Host) -> None:
        """Let the broker of a host lead a partition of the query's topic."""
        node, place = self.brokers.node(host), TopicPartition(self.run.topic, partition)
        others = [each for each in range(1, len(WORKERS) + 1) if each != node]
        self.topics.admin.alter_partition_reassignments({place: [node, *others]})

        def leads() -> bool:
            named = {self.run.topic: [partition]}
            self.topics.admin.elect_leaders(0, named, raise_errors=False)
            return self.leader(self.run.topic, partition) is host

        self.run.wait(leads, timeout_s=60)

    def owner(self, assignment: Assignment, partition: int) -> Host:
        """The host whose executor has a partition, or its lowest keys."""
        [slot, *_] = [
            owned[0].slot for at, owned in assignment.owners.items() if at.partition == partition
        ]
        return next(host for name in WORKERS if (host := self.network[name]).hostname in slot)

    def lasts(self, seconds: float, broken: Callable[[], None], mended: Callable[[], None]) -> None:
        """A fault that lasts for so long."""
        broken()
        try:
            until = time.monotonic() + seconds
            self.run.wait(lambda: time.monotonic() >= until)
        finally:
            mended()

    @contextmanager
    def cut_port(self, near: Host, far: Host, port: int) -> Iterator[Callable[[], str]]:
        """What one host sends to a port of another vanishes; yields what gives the driver's log
        since then."""
        begins = len(self.run.cluster.text())
        self.network.cut_port(near, far, port)
        try:
            yield lambda: self.run.cluster.text()[begins:]
        finally:
            self.network.heal_port(near, far, port)
