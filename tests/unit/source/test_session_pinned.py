"""The planning session of a pinned query, whichever way it commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.model.assignment import Assignment, Owned, Owners
from keyrange.members.model.copy_book import KnownState
from keyrange.members.model.pinned_plan import Shape, WorkUnit, portion_cuts
from keyrange.members.model.task_greeting import Address, Greeting
from keyrange.members.read_tasks import ReadTask
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.source.planning_session import PlanningSession
from queries.scripted import EARLIEST_START, GIVEN, T0, FixedSizes, ScriptedCluster
from tables.committing import INDIVIDUAL, Committed

MODES = pytest.mark.parametrize("mode", [{}, INDIVIDUAL])
GREETING = Greeting(Address("h", 1, b"s"), "run")


def assignment(*slots: str) -> Assignment:
    spans = split_evenly(SPACE, len(slots))
    return Assignment(1, {T0: tuple(map(Owned, spans, slots))})


class ScriptedPinning:
    """What a session asks of a pinning; a test says who has what."""

    shape = Shape({"a": 1, "b": 1})

    def __init__(self) -> None:
        self.assignment: Assignment | None = None
        self.asked: list[str] = []
        self.sizes: list[dict[TopicPartition, float]] = []
        self.bound: list[WorkUnit] = []

    def look(self) -> None:
        self.asked.append("look")

    def follow(self, state: KnownState | None) -> None:
        assert state is None, "the session keeps none"

    def close(self) -> None:
        self.asked.append("close")

    def pass_over(self) -> None:
        self.asked.append("pass_over")

    def take_in(
        self, sizes: Mapping[TopicPartition, float], partitions: Collection[TopicPartition]
    ) -> None:
        assert list(partitions) == [T0]
        self.sizes.append(dict(sizes))

    def greeting(self) -> Greeting:
        return GREETING

    def owners(self, partitions: Sequence[TopicPartition]) -> Owners | None:
        assert partitions == [T0]
        return self.assignment.owners if self.assignment is not None else None

    def cuts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
        owners = self.assignment.owners if self.assignment is not None else {}
        return portion_cuts({p: owners[p] for p in partitions if p in owners}, self.shape)

    def bind(
        self, portions: Sequence[WorkUnit], make: Callable[[WorkUnit], ReadTask]
    ) -> list[ReadTask]:
        self.bound = list(portions)
        return [make(each) for each in portions]

    def metrics(self) -> dict[str, int]:
        return {"epoch": 1}


def planned(
    pinning: ScriptedPinning, mode: Mapping[str, str], cluster: ScriptedCluster
) -> tuple[PlanningSession, dict[str, Any]]:
    """A session that has planned the end of its first batch."""
    given = {**GIVEN, **EARLIEST_START, "splitBy": "keyRange", "parallelism": "1", **mode}
    sizes: Any = FixedSizes()
    scripted: Any = cluster
    pinned: Any = pinning
    run = PlanningSession(
        parse_options(given, "stream"), scripted, sizes, Committed(), pinned, patience_s=0.0
    )
    return run, run.latest(run.initial().to_json(), limited=True)


def tasks_of(run: PlanningSession, end: Mapping[str, Any]) -> list[Any]:
    return list(run.plan(run.initial(), read_checkpoint(end)))


@MODES
def test_tasks_are_bound_to_slots_where_there_is_an_assignment(mode: dict[str, str]) -> None:
    pinning = ScriptedPinning()
    pinning.assignment = assignment("a", "b")
    run, end = planned(pinning, mode, ScriptedCluster(50))
    assert pinning.asked == ["look"], "before the batch is planned"
    tasks = tasks_of(run, end)
    assert [each.slot for each in pinning.bound] == ["a", "b"]
    assert [task.greeting for task in tasks] == [None, None]
    assert {(s.from_offset, s.until_offset) for task in tasks for s in task.splits} == {(0, 50)}
    assert pinning.sizes == [{T0: 5_000.0}]
    known = run.known_latest()
    assert known is not None
    metrics = known["@keyrange"]["metrics"]
    assert metrics["members"] == {"epoch": 1}
    assert metrics["plan"]["tasks"] == 2
    run.close()
    assert pinning.asked == ["look", "close"]


@MODES
def test_without_an_assignment_tasks_run_anywhere_and_are_greeted(mode: dict[str, str]) -> None:
    pinning = ScriptedPinning()
    run, end = planned(pinning, mode, ScriptedCluster(50))
    assert [task.greeting for task in tasks_of(run, end)] == [GREETING]
    assert (pinning.bound, pinning.asked) == ([], ["look"])
    assert pinning.sizes == [{T0: 5_000.0}], "the first assignment is by these"


def test_a_batch_that_was_cut_for_other_owners_runs_anywhere() -> None:
    pinning = ScriptedPinning()
    pinning.assignment = assignment("a", "b")
    run, end = planned(pinning, INDIVIDUAL, ScriptedCluster(50))
    pinning.assignment = assignment("a", "b", "a")
    assert {task.greeting for task in tasks_of(run, end)} == {GREETING}
    assert (pinning.bound, pinning.asked) == ([], ["look", "pass_over"])


def test_standbys_are_for_state() -> None:
    given = {"pin": "prefer", "memberTable": "/nowhere", "state.standby.replicas": "1"}
    with pytest.raises(KeyrangeError, match="replicas is for"):
        planned(ScriptedPinning(), given, ScriptedCluster(5))
