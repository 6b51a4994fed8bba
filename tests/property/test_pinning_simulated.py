"""A driver whose assignment table fails at any call, with members that come and go.

What is never to happen is checked after every look; and what has to be, once the table can be
written again."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from faults.failing_store import FailingStore, Fault
from keyrange.errors import KeyrangeError
from keyrange.kafka.subscribed_topics import retrying
from keyrange.members import pinning as module
from keyrange.members.coordinator_client import GroupView
from keyrange.members.model.group_messages import Peer
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.pinning import Pinning
from keyrange.members.table.assignments import AssignmentTable
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from project.forms import by_form, everyday

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
NAMES = ["a", "b", "c", "d"]
EXPANSION_MS, REGISTRATION_MS = 1_000, 60_000
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "subscribe": "t",
    "splitBy": "keyRange",
    "pin": "prefer",
    "memberTable": "/nowhere",
    "memberGroup": "g",
    "heartbeat.interval.ms": "1",
    "expansion.timeout.ms": str(EXPANSION_MS),
    "registration.timeout.ms": str(REGISTRATION_MS),
}


class Cluster:
    """What `retrying` asks of one."""

    contacted = True

    def close(self) -> None:
        pass


class Driver:
    """Runs of a query over one table; `there` are the members of its Kafka group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = FailingStore()
        self.there: list[str] = []
        self.now_ms = 1_000_000
        self.failed: set[str] = set()
        self.partitions = list(PARTITIONS)
        monkeypatch.setattr(module, "open_assignments", lambda *_: AssignmentTable(self.store, "g"))
        monkeypatch.setattr(module, "describe_members", lambda *_: self.group())
        monkeypatch.setattr(module, "passed_ms", lambda: self.now_ms)
        self.start()

    def start(self) -> None:
        self.pinning = Pinning(parse_options(OPTIONS, "stream"), None)  # type: ignore[arg-type]

    def group(self) -> GroupView:
        told = {name: MemberMetadata(name, "h", "0", 2.0).to_bytes() for name in self.there}
        members = [Peer(name, name, data, "/10.0.0.1") for name, data in told.items()]
        return GroupView("Stable", tuple(members))

    def looks(self) -> None:
        """As the planning session does, which asks again where something may pass by itself."""
        self.pinning._look_again_at = 0.0
        self.asks(self.pinning.look)

    def plans(self) -> None:
        sizes = dict.fromkeys(self.partitions, 1000.0)
        self.asks(lambda: self.pinning.take_in(sizes, self.partitions))

    def asks(self, ask: object) -> None:
        try:
            retrying(Cluster(), 2, 0, ask)  # type: ignore[arg-type]
        except KeyrangeError as failure:
            if failure.condition.name not in ("ASSIGNMENT_UNWRITABLE", "ASSIGNMENT_UNREADABLE"):
                raise
        self.checks()

    def checks(self) -> None:
        """What batches are planned by is in the table, and the table is one history."""
        fault, self.store.fault = self.store.fault, lambda _: None
        rows = list(AssignmentTable(self.store, "g").history())
        self.store.fault = fault
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        epochs = [row.epoch for row in rows]
        assert all(after - before in (0, 1) for before, after in pairwise([0, *epochs]))
        if self.pinning.assignment is not None:
            assert self.pinning.assignment in [row.assignment for row in rows]

    def owners(self) -> set[str]:
        assignment = self.pinning.assignment
        return set(assignment.slots) if assignment is not None else set()

    def settles(self) -> None:
        """With a table that can be written, everybody who is there is taken in, and nobody else."""
        self.store.fault = lambda _: None
        for passes_ms in (0, EXPANSION_MS, REGISTRATION_MS, EXPANSION_MS):
            self.now_ms += passes_ms
            self.looks()
            self.plans()
        assert self.owners() == set(self.there)
        assert self.pinning.assignment is not None
        assert set(self.pinning.assignment.owners) == set(self.partitions)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


@pytest.mark.parametrize("fault", everyday(*Fault))
@pytest.mark.parametrize("at", range(12))
def test_a_failure_at_any_call_of_the_table_is_mended(
    driver: Driver, at: int, fault: Fault
) -> None:
    """One call fails, of those that a reassignment and a new partition make."""
    driver.there = ["a", "b"]
    driver.settles()
    first = len(driver.store.calls)
    driver.store.fault = lambda _: fault if len(driver.store.calls) == first + at + 1 else None

    driver.there = ["a", "b", "c"]
    for _ in range(3):
        driver.now_ms += EXPANSION_MS
        driver.looks()
    driver.partitions.append(TopicPartition("t", 9))
    driver.plans()

    assert len(driver.store.calls) > first + 5
    driver.settles()


@pytest.mark.parametrize("seed", range(by_form(1, 10, 20)))
def test_a_table_that_fails_now_and_then_loses_nothing(driver: Driver, seed: int) -> None:
    random = Random(seed)

    def fails(call: str) -> Fault | None:
        # The first of each kind fails, so that every seed has met both.
        if call in driver.failed and random.random() > 0.3:
            return None
        driver.failed.add(call)
        return random.choice(list(Fault))

    driver.store.fault = fails
    for _ in range(40):
        driver.there = [name for name in NAMES if random.random() < 0.7] or ["a"]
        driver.now_ms += random.choice([0, 100, EXPANSION_MS, REGISTRATION_MS])
        if random.random() < 0.1 and len(driver.partitions) < 8:
            driver.partitions.append(TopicPartition("t", len(driver.partitions)))
        if random.random() < 0.05:
            driver.start()
        random.choice([driver.looks, driver.looks, driver.plans])()
    driver.settles()
    assert {"refresh", "write"} <= driver.failed
