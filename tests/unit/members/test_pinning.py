"""The planning process's view of members: what it writes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.table.assignment_admin import open_members, write_command
from keyrange.model.offsets import TopicPartition
from queries.pinning_stage import PARTITIONS, SIZES, Stage, assigned, owners, staged


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    yield from staged(tmp_path, monkeypatch)


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


def test_how_many_there_are_to_be_is_kept_over_reassignments(stage: Stage) -> None:
    pinning = stage.pinning()
    pinning.take_in(SIZES, PARTITIONS)
    stage.look(pinning, "a")
    stage.look(pinning, "a", after_ms=1_000)
    members = open_members(str(stage.table), {})
    write_command(members, "scale", "", why="a second one", who="somebody", now_ms=1, count=2)
    stage.look(pinning, "a", after_ms=1)
    stage.look(pinning, "a", "b", after_ms=1)
    assert pinning.assignment is not None
    assert pinning.assignment.slots == ["a", "b"], "nobody was waited for"
    stage.look(pinning, "a", after_ms=1)
    stage.look(pinning, "a", "c", after_ms=1)
    assert pinning.assignment.slots == ["a", "c"]
    again = stage.pinning()
    stage.look(again, "a", "c", after_ms=1)
    stage.look(again, "a", "d", after_ms=1)
    assert again.assignment is not None
    assert again.assignment.slots == ["a", "d"]


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
