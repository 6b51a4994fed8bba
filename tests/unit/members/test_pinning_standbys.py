"""The planning process and its standbys: who reads for whom, and what is written of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.members.binding.caller import Caller, ask_for_copies, greet
from keyrange.members.model.assignment import ranges_by_slot
from keyrange.members.model.copy_book import KnownState
from keyrange.members.model.pinned_plan import WorkUnit, plan_pinned
from keyrange.members.model.standbys import standing_by
from keyrange.members.pinning import Pinning
from keyrange.members.read_tasks import BoundTask, ReadTask
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import OffsetRange
from queries.pinning_stage import PARTITIONS, Stage, assigned, staged

STANDBY = {"state.standby.replicas": "1"}
RUN = StateRun("source/a.parquet", (0, 1), SPACE, 0, 1, 1_000, 100_000_000, 0)
STATE = KnownState("source", dict.fromkeys(PARTITIONS, (RUN,)), str)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    yield from staged(tmp_path, monkeypatch)


def readers(pinning: Pinning) -> dict[str, set[str]]:
    """The slots whose tasks read the key ranges of each slot."""
    found: dict[str, set[str]] = {}
    for owned in (pinning.owners(PARTITIONS) or {}).values():
        for each in owned:
            found.setdefault(each.slot, set()).add(each.reader)
    return found


def bound(pinning: Pinning) -> tuple[Sequence[WorkUnit], list[BoundTask]]:
    """The portions of a batch, and the tasks that ask for them."""
    owners = pinning.owners(PARTITIONS)
    assert owners is not None
    ranges = dict.fromkeys(PARTITIONS, OffsetRange(0, 2_000_000))
    sizes = dict.fromkeys(PARTITIONS, 9.0)
    portions = plan_pinned(ranges, owners, sizes, lambda _: [], pinning.shape, lambda: str)
    return portions, pinning.bind(portions, lambda each: ReadTask(each.splits, [], [], {}))


def batch(pinning: Pinning, *asking: str) -> set[tuple[str, str]]:
    """A batch that tasks of some slots ask for; whose key ranges each has read."""
    _, tasks = bound(pinning)
    read = set()
    for task, slot in zip(tasks, asking, strict=False):
        caller = Caller(task.greeting.address, task.plan, task.number, 0)
        told = next(caller.portions(lambda slot=slot: slot))
        read.add((slot, told["slot"]))
    pinning.follow(STATE)
    return read


def test_who_is_away_is_read_by_its_standby_until_it_is_back(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b", **STANDBY)
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    assert readers(pinning) == {"a": {"a"}, "b": {"b"}}
    stage.look(pinning, "a", after_ms=1)
    assert readers(pinning) == {"a": {"a"}, "b": {"a"}}
    assert batch(pinning, "a") == {("a", "a")}
    stage.look(pinning, "a", "b", after_ms=1)
    assert readers(pinning) == {"a": {"a"}, "b": {"b"}}


def test_what_a_standby_reads_is_not_counted_as_its_owner_s(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b", **STANDBY)
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    stage.look(pinning, "a", after_ms=1)
    portions, tasks = bound(pinning)
    for task in tasks:
        list(Caller(task.greeting.address, task.plan, task.number, 0).portions(lambda: "a"))
    own = sum(each.slot == "a" for each in portions)
    told = pinning.metrics()
    assert 0 < own < len(portions)
    assert [told[f"{who}Portions"] for who in ("own", "standby", "foreign", "unowned")] == [
        *(own, len(portions) - own, 0, 0)
    ]


def test_who_did_not_come_for_a_batch_is_stood_for_in_the_next(stage: Stage) -> None:
    """The group believes for session.timeout.ms that it is there."""
    pinning = assigned(stage, "a", "b", **STANDBY)
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    assert batch(pinning, "a", "b") == {("a", "a"), ("b", "b")}
    batch(pinning, "a")
    assert readers(pinning) == {"a": {"a"}, "b": {"a"}}
    # One that has nothing to read any more says by asking that it is there.
    batch(pinning, "a", "a", "b")
    assert readers(pinning) == {"a": {"a"}, "b": {"b"}}


def test_a_standby_reads_in_the_same_batch_for_one_that_does_not_come(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b", **STANDBY, **{"pin.wait.ms": "2000"})
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    began = time.monotonic()
    portions, [task, *_] = bound(pinning)
    read = list(Caller(task.greeting.address, task.plan, task.number, 0).portions(lambda: "a"))
    assert len(read) == len(portions)
    assert 0.2 <= time.monotonic() - began < 2
    pinning.follow(STATE)
    assert readers(pinning) == {"a": {"a"}, "b": {"a"}}


def test_strictly_pinned_ranges_are_their_owners_while_it_is_in_the_group(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b", **STANDBY, pin="strict")
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    batch(pinning, "a")
    assert readers(pinning) == {"a": {"a"}, "b": {"b"}}
    stage.look(pinning, "a", after_ms=1)
    assert readers(pinning) == {"a": {"a"}, "b": {"a"}}


def test_without_standbys_nobody_reads_for_another(stage: Stage) -> None:
    pinning = assigned(stage, "a", "b")
    for slot in ("a", "b"):
        greet(pinning.greeting().address, slot)
    batch(pinning, "a")
    stage.look(pinning, "a", after_ms=1)
    assert readers(pinning) == {"a": {"a"}, "b": {"b"}}


def test_the_next_run_knows_who_stood_by_and_they_inherit(stage: Stage) -> None:
    first = assigned(stage, "a", "b", "c", **STANDBY)
    stored = stage.rows().last()
    assert stored is not None
    kept = stored.standbys
    assert kept
    again = stage.pinning(**STANDBY)
    again.take_in({PARTITIONS[0]: 99.0}, [])
    stage.look(again, "a", "b", "c", after_ms=1)
    assert stage.rows().last().standbys == kept  # type: ignore[union-attr]
    stage.look(again, "a", "b", after_ms=60_001)
    stage.look(again, "a", "b", after_ms=60_001)
    before, after = first.assignment, again.assignment
    assert before is not None
    assert after is not None
    assert after.epoch == 2
    for partition, owned in before.owners.items():
        for each in owned:
            for standby in kept[partition]:
                at = max(each.span.from_hash, standby.span.from_hash)
                if each.slot == "c" and each.span.contains(at) and standby.span.contains(at):
                    assert after.owner_of(partition, at) == standby.slot


def test_a_standby_is_in_another_rack_or_else_on_another_host(stage: Stage) -> None:
    stage.places = {"a": ("h1", "r1"), "b": ("h2", "r1"), "c": ("h3", "r2")}
    pinning = assigned(stage, "a", "b", "c", **STANDBY)
    assert stood_for_by(stage) == {"a": {"c"}, "b": {"c"}, "c": {"a", "b"}}
    # It has come back elsewhere, where nobody says which rack that is.
    stage.places["c"] = ("h1", "")
    stage.look(pinning, "a", "b", "c", after_ms=1)
    assert stood_for_by(stage) == {"a": {"b"}, "b": {"c"}, "c": {"b"}}
    stage.places = dict.fromkeys("abc", ("h1", "r1"))
    stage.look(pinning, "a", "b", "c", after_ms=1)
    assert all(stood_for_by(stage).values()), "where there is one host they are on it"


def stood_for_by(stage: Stage) -> dict[str, set[str]]:
    """The standbys of each slot, as they are written."""
    stored = stage.rows().last()
    assert stored is not None
    assert stored.assignment is not None
    found = standing_by(stored.assignment.owners, stored.standbys)
    return {slot: set(each) for slot, each in found.items()}


def test_key_ranges_with_state_wait_for_their_heir(stage: Stage) -> None:
    """And those without do not."""
    pinning = assigned(stage, "a", "b")
    address = pinning.greeting().address
    pinning.follow(STATE)
    stage.look(pinning, "a", "b", "c", after_ms=1)
    stage.look(pinning, "a", "b", "c", after_ms=1_000)
    assert pinning.assignment is not None
    assert pinning.assignment.epoch == 1, "it is announced"
    pinning.follow(STATE)
    told = ask_for_copies(address, "c", 0)
    assert told["announced"]
    assert told["orders"]
    stage.look(pinning, "a", "b", "c", after_ms=1)
    assert pinning.assignment.epoch == 1
    # What it has copied is what it gets, whatever batches weigh meanwhile.
    pinning.take_in({PARTITIONS[0]: 1e9}, PARTITIONS)
    ask_for_copies(address, "c", told["version"])
    stage.look(pinning, "a", "b", "c", after_ms=1)
    assert pinning.assignment.epoch == 2
    assert ranges_by_slot(pinning.assignment)["c"] == told["announced"]
