"""A driver that looks at members that crash, pause, come and go, with a clock that steps and a
process that restarts: what is never to happen, checked after every step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from keyrange.members.model.assignment import Assignment, assign, moved
from keyrange.members.model.membership_states import ASSIGNED, MembershipState
from keyrange.members.model.reassignment_timing import Membership, Present, Reassign, Timeouts
from keyrange.model.offsets import TopicPartition
from project.forms import by_form
from tables.assignment_changes import changes

SECOND = 1_000
TIMEOUTS = Timeouts(registration_ms=300 * SECOND, expansion_ms=45 * SECOND)
NAMES = [f"static-{number}" for number in range(8)]


@dataclass
class Stored:
    """What the driver has written last, and how much time had passed for it then."""

    assignment: Assignment | None = None
    membership: str = json.dumps(Membership(TIMEOUTS).to_json())
    passed_ms: int = 0


@dataclass
class World:
    random: Random
    clock_ms: int = 10**12
    # Time that passed for the driver: while it ran, forward.
    passed_ms: int = 0
    weights: dict[TopicPartition, float] = field(default_factory=dict)
    alive: dict[str, Present] = field(default_factory=dict)
    stored: Stored = field(default_factory=Stored)
    made_up: int = 0
    # Since when names were seen or missing without a break, by passed_ms.
    seen_since: dict[str, int] = field(default_factory=dict)
    missing_since: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    forced: bool = False
    # How many members there are to be: as the option says it, or a command since.
    option: int | None = None
    expected: int | None = None
    last_loss_ms: int | None = None
    last_join_ms: int | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.membership = Membership(TIMEOUTS)
        self.weights = {TopicPartition("t", number): 1.0 for number in range(4)}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def step(self) -> None:
        happens: dict[Any, float] = {
            self.starts: 3,
            self.crashes: 1.5,
            self.restarts_all_in_turn: 0.2,
            self.everybody_crashes: 0.1,
            self.clock_steps: 0.5,
            self.driver_restarts: 0.5,
            self.commands: 0.2,
            self.partition_comes: 0.1,
            self.resizes: 0.1,
            self.nothing: 8,
        }
        self.random.choices(list(happens), list(happens.values()))[0]()
        self.passes(self.random.choice([0, 1, 3, 10, 60]) * SECOND)
        self.looks()

    def nothing(self) -> None:
        pass

    def starts(self) -> None:
        """A static member that is away, often one that has been in, or a dynamic one."""
        if self.random.random() < 0.2 and len(self.alive) < 8:
            self.made_up += 1
            name = f"dynamic-{self.made_up}"
            self.alive[name] = Present(name, False)
        else:
            name = self.random.choice(NAMES)
            self.alive.setdefault(name, Present(name, True))

    def crashes(self) -> None:
        """Or pauses for longer than its session: to the driver that is the same."""
        if self.alive:
            del self.alive[self.random.choice(sorted(self.alive))]

    def everybody_crashes(self) -> None:
        self.alive.clear()

    def restarts_all_in_turn(self) -> None:
        for name in sorted(self.alive):
            present = self.alive.pop(name)
            self.passes(self.random.randint(0, 30) * SECOND)
            self.looks()
            if present.is_static:
                self.alive[name] = present
                self.looks()

    def resizes(self) -> None:
        if self.alive:
            name = self.random.choice(sorted(self.alive))
            capacity = self.random.choice([1.0, 2.0])
            self.alive[name] = Present(name, self.alive[name].is_static, capacity)

    def clock_steps(self) -> None:
        """Forward counts as time, whatever it was; back does not."""
        step_ms = self.random.choice([-3_600, -10, -1, 1, 10]) * SECOND
        self.clock_ms += step_ms
        self.passed_ms += max(step_ms, 0)
        self.membership.next_due_ms()
        self.membership.due(self.clock_ms)

    def driver_restarts(self) -> None:
        self.clock_ms += self.random.randint(-100, 3_600) * SECOND
        document = json.loads(self.stored.membership)
        if self.random.random() < 0.3:
            self.option = self.random.choice([None, 3, 5])
        if self.option != document["expectedByOption"]:
            self.expected = self.option
        else:
            self.expected = document["expected"]
        self.membership = Membership.from_json(document, TIMEOUTS, self.clock_ms, self.option)
        assert self.membership.expected == self.expected
        self.passed_ms = self.stored.passed_ms
        for since in (self.seen_since, self.missing_since):
            for name in [name for name, at_ms in since.items() if at_ms > self.passed_ms]:
                del since[name]
        self.count("restarts")

    def commands(self) -> None:
        if self.random.random() < 0.4:
            self.expected = self.random.randint(1, 8)
            self.membership.scale(self.expected, self.clock_ms)
            self.count("scaled")
        elif self.random.random() < 0.5:
            self.membership.force(self.clock_ms)
            self.forced = True
        else:
            name = self.random.choice([*NAMES, *self.alive])
            if self.membership.remove(name, self.clock_ms) and name in self.assigned():
                self.removed.add(name)
        self.save()

    def partition_comes(self) -> None:
        self.weights[TopicPartition("t", len(self.weights))] = 1.0

    def passes(self, ms: int) -> None:
        self.clock_ms += ms
        self.passed_ms += ms

    def save(self) -> None:
        self.stored.membership = json.dumps(self.membership.to_json())
        self.stored.passed_ms = self.passed_ms

    def looks(self) -> None:
        """What the driver does between two batches; now and then it dies in the middle."""
        self.membership.observe(list(self.alive.values()), self.clock_ms)
        self.notes()
        self.checks_timers()
        found = self.membership.due(self.clock_ms)
        self.checks_due(found)
        assert found is None or self.membership.next_due_ms() == self.clock_ms
        if found is not None and self.random.random() < 0.1:
            self.driver_restarts()
            return
        if found is not None:
            self.applies(found)
        self.save()

    def notes(self) -> None:
        for name in self.alive:
            self.seen_since.setdefault(name, self.passed_ms)
            self.missing_since.pop(name, None)
        for name in {*self.seen_since, *self.assigned()} - self.alive.keys():
            self.seen_since.pop(name, None)
            self.missing_since.setdefault(name, self.passed_ms)

    def assigned(self) -> dict[str, float]:
        states = self.membership.members.items()
        return {
            name: state.assigned_capacity or 0.0
            for name, state in states
            if state.standing in ASSIGNED
        }

    def checks_timers(self) -> None:
        """Who is missing is known to be so since then, whatever the clock did."""
        for name, state in self.membership.members.items():
            if state.standing is MembershipState.ABSENT:
                assert state.since_ms <= self.clock_ms
                assert name not in self.alive
            elif state.standing is not MembershipState.REMOVED:
                assert name in self.alive
        due_ms = self.membership.next_due_ms()
        assert due_ms is None or due_ms >= self.clock_ms

    @property
    def is_complete(self) -> bool:
        """Whether as many are there as there are to be."""
        there = self.alive.keys() - self.removed
        return self.expected is not None and len(there) == self.expected

    def checks_due(self, found: Reassign | None) -> None:
        """Against the members' own history: nothing without a cause, and nothing too late."""
        before = self.assigned()
        overdue = [
            name
            for name in before.keys() - self.alive.keys()
            if name.startswith("dynamic")
            or self.passed_ms - self.missing_since[name] >= TIMEOUTS.registration_ms
        ]
        if found is None:
            assert not (overdue and self.alive.keys() - self.removed)
            assert not self.is_complete or before.keys() == self.alive.keys() - self.removed
            return
        if self.is_complete:
            assert found.members.keys() == self.alive.keys() - self.removed
            self.count("complete")
        out = before.keys() - found.members.keys()
        joined = found.members.keys() - before.keys()
        resized = {
            name for name in before.keys() & found.members if before[name] != found.members[name]
        }
        assert out or joined or resized or self.forced
        assert joined <= self.alive.keys()
        assert not out & (self.alive.keys() - self.removed)
        for name in out:
            waits = name.startswith("static") and name not in self.removed and not self.forced
            assert not waits or self.is_complete or any(it.startswith("static") for it in overdue)

    def applies(self, found: Reassign) -> None:
        before, was = self.stored.assignment, self.assigned()
        after = assign(self.weights, found.members, before, before.epoch + 1 if before else 1)
        self.checks_assignment(before, after, was, found.members)
        self.checks_how_often(was, found)
        self.membership.applied(found, self.clock_ms)
        assert self.assigned() == found.members
        assert self.membership.due(self.clock_ms) is None
        self.stored.assignment = Assignment.from_json(json.loads(json.dumps(after.to_json())))
        if self.forced:
            self.forced = False
        self.removed -= was.keys() - found.members.keys()
        self.count("reassignments")

    def checks_assignment(
        self,
        before: Assignment | None,
        after: Assignment,
        was: Mapping[str, float],
        members: Mapping[str, float],
    ) -> None:
        """Each hash has one owner: Assignment refuses anything else. The owners are members."""
        assert after.owners.keys() == self.weights.keys()
        assert set(after.slots) == members.keys()
        if before is None:
            return
        assert after.epoch == before.epoch + 1
        stay = [name for name in members if was.get(name) == members[name]]
        came = [name for name in members if name not in was]
        if was.keys() <= members.keys() and len(stay) + len(came) == len(members) and came:
            share = sum(Fraction(members[name]) for name in came)
            bound = share / sum(map(Fraction, members.values()))
            assert moved(before, after, self.weights) <= float(bound)
            self.count("growth")
        if members.keys() <= was.keys() and len(stay) == len(members) != len(was):
            for name in stay:
                assert changes(before, after, name).revoked == {}
            self.count("shrinking")

    def checks_how_often(self, was: Mapping[str, float], found: Reassign) -> None:
        """One reassignment for each time that somebody is away, and for each time of gathering."""
        out = was.keys() - found.members.keys()
        lost = {name for name in out - self.removed if name.startswith("static")}
        joined = found.members.keys() - was.keys()
        if lost and not self.forced and not self.is_complete:
            if self.last_loss_ms is not None:
                assert self.passed_ms - self.last_loss_ms >= TIMEOUTS.registration_ms
            self.count("losses")
        if joined and not out and not self.forced and not self.is_complete:
            if self.last_join_ms is not None:
                assert self.passed_ms - self.last_join_ms >= TIMEOUTS.expansion_ms
            self.count("joins")
        if lost:
            self.last_loss_ms = self.passed_ms
        if joined:
            self.last_join_ms = self.passed_ms


@pytest.mark.parametrize("seed", range(by_form(2, 10, 100)))
def test_members_come_and_go(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(400):
        world.step()
    assert min(world.counts[each] for each in ("reassignments", "restarts", "joins")) >= 3


@pytest.mark.ordinary
def test_the_simulation_goes_everywhere() -> None:
    counts: dict[str, int] = {}
    for seed in range(100, 105):
        world = World(Random(seed))
        for _ in range(400):
            world.step()
        for what, count in world.counts.items():
            counts[what] = counts.get(what, 0) + count
    assert {what for what, count in counts.items() if count >= 3} == {
        "reassignments",
        "restarts",
        "joins",
        "losses",
        "growth",
        "shrinking",
        "scaled",
        "complete",
    }


@pytest.mark.parametrize("seed", range(by_form(3, 6, 50)))
def test_a_rolling_restart_moves_nothing_whatever_the_clock_does(seed: int) -> None:
    world = World(Random(seed))
    world.alive = {name: Present(name, True) for name in NAMES}
    for _ in range(10):
        world.passes(30 * SECOND)
        world.looks()
    before = world.stored.assignment
    assert before is not None
    assert set(before.slots) == set(NAMES)
    for _ in range(3):
        world.clock_ms -= world.random.randint(0, 3_600) * SECOND
        world.restarts_all_in_turn()
        world.driver_restarts()
    assert world.stored.assignment == before
