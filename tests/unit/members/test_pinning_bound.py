"""What a batch is planned by that slots read, and when it is bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from keyrange.individual_commits.batch_deliveries import spans_of
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.kafka.cluster_view import ClusterView, Leader, Topic
from keyrange.members.binding.caller import Caller, greet
from keyrange.members.binding.own_address import route_to
from keyrange.members.model.pinned_plan import plan_pinned
from keyrange.members.model.unreached import BATCHES
from keyrange.members.pinning import Pinning
from keyrange.members.read_tasks import BoundTask, ReadTask, read_bound_task
from keyrange.model.checkpoint import CommitMark
from keyrange.model.commit_settings import DeliveryLimits
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.options.kafka_properties import ClientSettings
from keyrange.source.planning import Deliveries
from keyrange.source.tasks import PinnedTaskPlans, TaskMaker
from queries.pinning_stage import PARTITIONS, SIZES, Stage, assigned, staged
from tables.commit_model import plan_delivery


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    yield from staged(tmp_path, monkeypatch)


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
    assert pinning.assignment is not None
    assert pinning.owners(PARTITIONS) == pinning.assignment.owners


def bound_first(stage: Stage, **given: str) -> tuple[Pinning, list[BoundTask]]:
    """A run whose first batch is planned before anybody has come, and its bound tasks."""
    pinning = stage.pinning(**given)
    stage.look(pinning, after_ms=1)
    return pinning, bound_now(pinning)


def bound_now(pinning: Pinning) -> list[BoundTask]:
    pinning.take_in(SIZES, PARTITIONS)
    pinning.greeting()
    owners = pinning.owners(PARTITIONS)
    if owners is None:
        return []
    ranges = dict.fromkeys(PARTITIONS, OffsetRange(0, 2_000_000))
    sizes = dict.fromkeys(PARTITIONS, 9.0)
    portions = plan_pinned(ranges, owners, sizes, lambda _: [], pinning.shape, lambda: str)
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
    owners = pinning.owners(PARTITIONS)
    assert owners is not None
    ranges = dict.fromkeys(PARTITIONS, OffsetRange(0, 2_000_000))
    portions = plan_pinned(
        ranges, owners, dict.fromkeys(PARTITIONS, 9.0), lambda _: [], pinning.shape,
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
        "standbyPortions": 0,
    }
    found = Caller(address, tasks[0].plan, 0).holding("a", "").ranges
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
        deliveries = {
            p: plan_delivery(fresh("", 0), spans[p], 2_000_000, -1, DeliveryLimits())
            for p in PARTITIONS
        }
        reads = Deliveries(deliveries, spans, options)
        tasks = PinnedTaskPlans(options, pinning).plan(
            reads, dict.fromkeys(PARTITIONS, 9.0), lambda _: [], TaskMaker(view, {})
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


def test_of_a_batch_that_is_not_bound_no_portion_is_counted(stage: Stage) -> None:
    """Those of the batch before it were counted as of that one."""
    pinning = assigned(stage, "a", "b")
    greet(pinning.greeting().address, "a")
    [task, *_] = bound_now(pinning)
    list(Caller(task.greeting.address, task.plan, task.number, 0).portions(lambda: "a"))
    assert pinning.metrics()["ownPortions"] > 0
    stage.look(pinning, after_ms=1)
    assert pinning.owners(PARTITIONS) is None
    told = pinning.metrics()
    assert {name: told[name] for name in told if name.endswith("Portions")} == dict.fromkeys(
        ("ownPortions", "foreignPortions", "unownedPortions", "standbyPortions"), 0
    )


def test_members_that_never_come_are_named(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Those of another query of the group own key ranges, and nobody comes for them."""
    pinning = assigned(stage, "a", "b", "c")
    greet(pinning.greeting().address, "a")
    for batch in range(3 * BATCHES):
        if batch == BATCHES // 2:
            greet(pinning.greeting().address, "b")
        pinning.owners(PARTITIONS)
    [said] = [each.getMessage() for each in caplog.records if "memberGroup" in each.getMessage()]
    assert said.startswith("c of group g.members: none of their tasks has come")


def test_the_address_is_the_one_towards_the_brokers() -> None:
    assert route_to(ClientSettings(bootstrap_servers=(("127.0.0.1", 9),))) == "127.0.0.1"


def test_the_service_listens_where_it_is_told_to(stage: Stage) -> None:
    given = {"pin.driver.host": "driver.example", "pin.driver.bind.address": "127.0.0.1"}
    pinning = stage.pinning(**given)

    address = pinning.greeting().address
    assert address.host == "driver.example"
    greet(replace(address, host="127.0.0.1"), "a")
