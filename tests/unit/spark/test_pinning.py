"""The planning process's view of members: what it writes, and what a batch is planned by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keyrange.client_options import ClientSettings
from keyrange.core.checkpoint import CommitMark
from keyrange.core.commits.intake import IntakeLimits, plan_intake
from keyrange.core.commits.state import fresh
from keyrange.core.members.metadata import MemberMetadata
from keyrange.core.offsets import OffsetRange, TopicPartition
from keyrange.core.pinned_plan import plan_pinned
from keyrange.core.splits import Split
from keyrange.delta.assignments import AssignmentTable, open_assignments
from keyrange.delta.members_by_hand import open_members, write_command
from keyrange.errors import KeyrangeError
from keyrange.intakes import spans_of
from keyrange.kafka.membership import GroupMemberView, GroupView
from keyrange.kafka.view import ClusterView, Leader, Topic
from keyrange.options import parse_options
from keyrange.spark import pinning as module
from keyrange.spark.binding.caller import Caller, greet
from keyrange.spark.pinning import Pinning, route_to
from keyrange.spark.read import BoundTask, ReadTask, read_bound_task
from keyrange.spark.tasks import TaskPlans

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
SIZES = dict.fromkeys(PARTITIONS, 1000.0)


class Stage:
    """A pinning whose Kafka group and clocks a test sets."""

    def __init__(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: list[str] = []
        self.state = "Stable"
        self.now_ms = 1_000_000
        self.removed: list[str] = []
        self.table = table
        monkeypatch.setattr(module, "describe_members", lambda *_: self.group())
        monkeypatch.setattr(
            module, "remove_member", lambda _, __, name: self.removed.append(name) or True
        )
        monkeypatch.setattr(module, "_passed_ms", lambda: self.now_ms)
        self.made: list[Pinning] = []

    def group(self) -> GroupView:
        """In a rebalance the coordinator tells nobody's metadata."""
        is_stable = self.state == "Stable"
        told = {name: MemberMetadata(name, "h", "0", 2.0).to_bytes() for name in self.there}
        members = [
            GroupMemberView(f"id-{name}", name, "/10.0.0.1", data if is_stable else b"")
            for name, data in told.items()
        ]
        return GroupView(self.state, tuple(members))

    def pinning(self, **given: str) -> Pinning:
        self.given = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "splitBy": "keyRange",
            "pin": "prefer",
            "memberTable": str(self.table),
            "memberGroup": "g",
            "heartbeat.interval.ms": "1",
            "expansion.timeout.ms": "1000",
            "registration.timeout.ms": "60000",
            **given,
        }
        parsed = parse_options(self.given, "stream")
        made = Pinning(parsed, None)  # type: ignore[arg-type]  # what it asks is set above
        self.made.append(made)
        return made

    def look(self, pinning: Pinning, *there: str, after_ms: int = 0) -> None:
        self.there = list(there)
        self.now_ms += after_ms
        pinning._look_again_at = 0.0
        pinning.look()

    def rows(self) -> AssignmentTable:
        return open_assignments(str(self.table), "g", {})


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(tmp_path / "members", monkeypatch)
    yield stage
    for each in stage.made:
        each.close()


def assigned(stage: Stage, *names: str, **given: str) -> Pinning:
    """A pinning whose members are taken in."""
    pinning = stage.pinning(**given)
    pinning.take_in(SIZES, PARTITIONS)
    stage.look(pinning, *names)
    stage.look(pinning, *names, after_ms=1000)
    return pinning


def owners(pinning: Pinning) -> dict[TopicPartition, list[str]]:
    assert pinning.assignment is not None
    return {
        partition: [each.slot for each in owned]
        for partition, owned in pinning.assignment.owners.items()
    }


def test_members_are_gathered_and_taken_in_once(stage: Stage) -> None:
    pinning = stage.pinning()
    pinning.take_in(SIZES, PARTITIONS)

    stage.look(pinning, "a")
    stage.look(pinning, "a", "b", after_ms=400)
    assert pinning.assignment is None
    stage.look(pinning, "a", "b", after_ms=600)

    assert pinning.assignment is not None
    assert pinning.assignment.epoch == 1
    assert pinning.assignment.slots == ["a", "b"]
    last = stage.rows().last()
    assert last is not None
    assert last.assignment == pinning.assignment
    assert [(m.slot, m.host, m.state) for m in last.members] == [
        ("a", "h", "ASSIGNED"),
        ("b", "h", "ASSIGNED"),
    ]


def test_a_member_that_comes_back_finds_its_ranges(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b")
    before = pinning.assignment

    stage.look(pinning, "a", after_ms=1000)
    stage.look(pinning, "a", "b", after_ms=50_000)

    assert pinning.assignment == before


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_rebalance_of_the_group_is_waited_for(stage: Stage, state: str) -> None:
    """Who joins is not missed meanwhile, and keeps the time since which it is gathered."""
    pinning = stage.pinning()
    pinning.take_in(SIZES, PARTITIONS)
    stage.look(pinning, "a")
    written = stage.rows().last()

    stage.state = state
    stage.look(pinning, "a", "b", after_ms=900)
    assert stage.rows().last() == written
    stage.state = "Stable"
    stage.look(pinning, "a", "b", after_ms=100)

    assert pinning.assignment is not None
    assert pinning.assignment.slots == ["a", "b"]


def test_one_that_stays_away_loses_them_once(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b")

    stage.look(pinning, "a", after_ms=1000)
    stage.look(pinning, "a", after_ms=59_999)
    assert pinning.assignment is not None
    assert pinning.assignment.epoch == 1
    stage.look(pinning, "a", after_ms=1)

    assert pinning.assignment.epoch == 2
    assert pinning.assignment.slots == ["a"]


def test_another_run_goes_on_with_what_is_written(stage: Stage) -> None:
    """Also where it has read of one partition only: nothing moves, and nothing is forgotten."""
    before = assigned(stage, "a", "b").assignment
    again = stage.pinning()
    again.take_in({PARTITIONS[0]: 5.0}, [])

    stage.look(again, "a", "b", after_ms=5_000)
    assert again.assignment == before
    stage.look(again, "a", "b", "c", after_ms=1000)
    stage.look(again, "a", "b", "c", after_ms=1000)

    assert again.assignment is not None
    assert again.assignment.epoch == 2
    assert set(again.assignment.owners) == set(PARTITIONS)


def test_the_run_before_stops(stage: Stage) -> None:
    first = assigned(stage, "a", "b")
    second = stage.pinning()
    stage.look(second, "a", after_ms=1)

    with pytest.raises(KeyrangeError, match="ASSIGNMENT_CHANGED"):
        stage.look(first, "a", "b", after_ms=1)


def test_new_partitions_are_taken_in_at_once(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b")
    before = owners(pinning)
    new = TopicPartition("t", 9)

    pinning.take_in(SIZES, [*PARTITIONS, new])

    after = owners(pinning)
    assert {p: after[p] for p in before} == before
    assert after[new]


def test_partitions_without_a_record_belong_to_somebody_too(stage: Stage) -> None:
    pinning = stage.pinning()
    pinning.take_in({PARTITIONS[0]: 5.0}, PARTITIONS)

    stage.look(pinning, "a", "b")
    stage.look(pinning, "a", "b", after_ms=1000)
    pinning.take_in(SIZES, PARTITIONS)

    assert set(owners(pinning)) == set(PARTITIONS)
    assert pinning.assignment is not None
    assert pinning.assignment.epoch == 1


def test_commands_are_taken_between_batches(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b")
    table = open_members(str(stage.table), {})
    write_command(table, "remove", "b", why="gone for good", who="somebody", now_ms=1)

    stage.look(pinning, "a", "b", after_ms=1)

    assert stage.removed == ["b"]
    assert pinning.assignment is not None
    assert pinning.assignment.slots == ["a"]
    last = stage.rows().last()
    assert last is not None
    assert last.commands_until == 1


def test_nothing_is_bound_before_executors_have_come(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    pinning = assigned(stage, "a", "b")

    for _ in range(5):
        greeting = pinning.greeting()
        assert pinning.owners(PARTITIONS) is None
    assert caplog.text.count("no executor has reached this process") == 1
    assert "pin.driver.host" in caplog.text

    greet(greeting.address, "a")
    assert pinning.owners(PARTITIONS) == pinning.assignment


def bound_first(stage: Stage, **given: str) -> tuple[Pinning, list[BoundTask]]:
    """A run whose first batch is planned before anybody has come, and its bound tasks."""
    pinning = stage.pinning(**given)
    stage.look(pinning, after_ms=1)
    return pinning, bound_now(pinning)


def bound_now(pinning: Pinning) -> list[BoundTask]:
    pinning.take_in(SIZES, PARTITIONS)
    pinning.greeting()
    assignment = pinning.owners(PARTITIONS)
    if assignment is None:
        return []
    ranges = dict.fromkeys(PARTITIONS, OffsetRange(0, 2_000_000))
    sizes = dict.fromkeys(PARTITIONS, 9.0)
    portions = plan_pinned(
        ranges, assignment.owners, sizes, lambda _: [], pinning.shape, lambda: str
    )
    return pinning.bind(portions, lambda each: ReadTask(each.splits, [], [], {}))


def reached_once(stage: Stage) -> None:
    """A run whose executors have reached its driver."""
    pinning = assigned(stage, "a", "b")
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    stage.look(pinning, "a", "b", after_ms=1)


@pytest.mark.parametrize("rule", ["prefer", "strict"])
def test_the_first_batch_of_the_next_run_waits_for_its_executors(stage: Stage, rule: str) -> None:
    """They get their names when their first tasks run; who does not come is not waited for."""
    reached_once(stage)

    pinning, tasks = bound_first(stage, pin=rule, **{"pin.wait.ms": "400"})

    # As many as the slots had cores.
    assert len(tasks) == 4
    slots = iter(["", "", "a"])
    first = Caller(tasks[0].greeting.address, tasks[0].plan, 0)
    found = [each["slot"] for each in first.portions(lambda: next(slots, "a"))]
    assert found[:2] == ["a", "a"]
    assert sorted(found) == ["a", "a", "b", "b"]
    stage.look(pinning, "a", after_ms=1)
    last = stage.rows().last()
    assert last is not None
    assert last.reached == "yes"


def test_the_first_batch_is_bound_where_it_is_one_of_the_run_before(stage: Stage) -> None:
    """Which is planned before anything was looked at."""
    reached_once(stage)

    assert len(bound_now(stage.pinning())) == 4


def test_a_run_whose_driver_was_not_reached_is_followed_by_one_that_says_so(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    reached_once(stage)
    assert bound_first(stage)[1]
    assert "whoever is free" not in caplog.text

    pinning, tasks = bound_first(stage)

    assert not tasks
    assert caplog.text.count("the first batch is read by whoever is free") == 1
    greet(pinning.greeting().address, "a")
    stage.look(pinning, "a", "b", after_ms=1)
    assert bound_now(pinning)
    assert bound_first(stage)[1]


def test_the_first_batch_is_not_bound_for_names_that_are_made_up(stage: Stage) -> None:
    reached_once(stage)

    assert not bound_first(stage, memberNames="dynamic")[1]


def test_only_the_first_batch_waits_for_executors_that_do_not_come(stage: Stage) -> None:
    reached_once(stage)
    pinning, _ = bound_first(stage)

    assert not bound_now(pinning)


def test_bound_tasks_are_told_their_portions(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b", pin="strict")
    address = pinning.greeting().address
    for slot in ("a", "b"):
        greet(address, slot)
    assignment = pinning.owners(PARTITIONS)
    assert assignment is not None
    ranges = dict.fromkeys(PARTITIONS, OffsetRange(0, 2_000_000))
    portions = plan_pinned(
        ranges, assignment.owners, dict.fromkeys(PARTITIONS, 9.0), lambda _: [], pinning.shape,
        lambda: str,
    )  # fmt: skip

    tasks = pinning.bind(portions, lambda each: ReadTask(each.splits, [(1, "h", 9)], [], {}))

    # A task for each of the four cores, and as many portions.
    assert [(task.number, task.epoch) for task in tasks] == [(n, 1) for n in range(4)]
    read: list[Split] = []
    for task, slot in zip(tasks, "abab", strict=True):
        caller = Caller(task.greeting.address, task.plan, task.number)
        for document in caller.portions(lambda slot=slot: slot):
            assert document["slot"] == slot
            read += read_bound_task(document).splits
    assert sorted(map(str, read)) == sorted(str(s) for each in portions for s in each.splits)
    assert pinning.metrics() == {
        "epoch": 1,
        "members": 2,
        "reached": 2,
        "ownPortions": 4,
        "foreignPortions": 0,
        "unownedPortions": 0,
    }
    found: dict[str, Any] = Caller(address, tasks[0].plan, 0).ranges("a")
    assert found.keys() == {"t"}


def test_what_is_handed_out_is_bound_where_it_is_cut_for_the_assignment(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b", "c")
    address = pinning.greeting().address
    for slot in ("a", "b", "c"):
        greet(address, slot)
    options = parse_options(stage.given, "stream")
    view = ClusterView("", {}, {"t": Topic("", {n: Leader(1, 0) for n in range(4)})})

    def planned(cuts: Mapping[TopicPartition, tuple[int, ...]]) -> list[type]:
        mark = CommitMark("s", 0, cuts=cuts)
        spans = {p: spans_of(p, mark, options) for p in PARTITIONS}
        intakes = {
            p: plan_intake(fresh("", 0), spans[p], 2_000_000, -1, IntakeLimits())
            for p in PARTITIONS
        }
        tasks = TaskPlans(options, pinning).deliver(
            intakes, spans, dict.fromkeys(PARTITIONS, 9.0), lambda _: [], view, {}
        )
        return sorted({type(task) for task in tasks}, key=str)

    cuts = pinning.cuts(PARTITIONS)
    assert pinning.assignment is not None
    for partition, owned in pinning.assignment.owners.items():
        assert {each.span.from_hash for each in owned[1:]} <= {*cuts.get(partition, ())}
    assert any(len(owned) > 1 for owned in pinning.assignment.owners.values())

    assert planned(cuts) == [BoundTask]
    # A replay whose batch was cut before anything was assigned, or by another assignment.
    assert planned({}) == [ReadTask]
    assert planned({p: (at[0] + 1,) for p, at in cuts.items()}) == [ReadTask]


def test_a_batch_that_is_not_bound_is_a_gap_in_what_slots_have_read(stage: Stage) -> None:
    """Before executors have come, and where the batch was cut for another assignment."""
    pinning = assigned(stage, "a", "b")
    address = pinning.greeting().address
    greet(address, "a")

    def last(batch: int) -> int:
        """What the first task is told: the last batch before that may have had something of a."""
        assert pinning.assignment is not None
        sizes = dict.fromkeys(PARTITIONS, 9.0)
        ranges = dict.fromkeys(PARTITIONS, OffsetRange(0, 2_000_000))
        portions = plan_pinned(
            ranges, pinning.assignment.owners, sizes, lambda _: [], pinning.shape, lambda: str
        )
        [task, *_] = pinning.bind(portions, lambda each: ReadTask(each.splits, [], [], {}))
        return int(next(Caller(address, task.plan, 0, batch).portions(lambda: "a"))["last"])

    assert last(4) == 3
    # A batch without anything for a slot would be no gap: this one may have had.
    pinning.pass_over()
    assert last(9) == 8
    assert last(12) == 9


def test_the_address_is_the_one_towards_the_brokers() -> None:
    assert route_to(ClientSettings(bootstrap_servers=(("127.0.0.1", 9),))) == "127.0.0.1"


def test_the_service_listens_where_it_is_told_to(stage: Stage) -> None:
    given = {"pin.driver.host": "driver.example", "pin.driver.bind.address": "127.0.0.1"}
    pinning = stage.pinning(**given)

    address = pinning.greeting().address
    assert address.host == "driver.example"
    greet(replace(address, host="127.0.0.1"), "a")
