"""Who takes part and when key ranges are assigned anew: the proposal's timelines, and the rest."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.model.membership_states import (
    ASSIGNED,
    TRANSITIONS,
    MemberEvent,
    MembershipState,
)
from keyrange.members.model.reassignment_timing import Membership, Present, Reassign, Timeouts

MINUTE = 60_000
# The proposal's: 15 minutes for who is away, 5 minutes for who joins.
PROPOSED = Timeouts(registration_ms=15 * MINUTE, expansion_ms=5 * MINUTE)


def static(*names: str, capacity: float = 1.0) -> list[Present]:
    return [Present(name, True, capacity) for name in names]


def dynamic(*names: str) -> list[Present]:
    return [Present(name, False) for name in names]


class Driver:
    """Looks once a minute, and notes when what was assigned."""

    def __init__(self, *names: str, timeouts: Timeouts = PROPOSED) -> None:
        self.membership = Membership(timeouts)
        self.log: list[tuple[int, set[str]]] = []
        if names:
            self.membership.observe(static(*names), -timeouts.expansion_ms)
            self.look(static(*names), 0)
            assert self.assigned == set(names)
            self.log.clear()

    @property
    def assigned(self) -> set[str]:
        states = self.membership.members.items()
        return {name for name, state in states if state.standing in ASSIGNED}

    def look(self, present: Collection[Present], now_ms: int) -> Reassign | None:
        self.membership.observe(present, now_ms)
        found = self.membership.due(now_ms)
        if found is not None:
            self.membership.applied(found, now_ms)
            self.log.append((now_ms, set(found.members)))
        return found

    def watch(self, present: Collection[Present], begin: int, end: int) -> None:
        """The same members from one minute up to but not including another."""
        for minute in range(begin, end):
            self.look(present, minute * MINUTE)

    def stands(self, name: str) -> MembershipState:
        return self.membership.members[name].standing


def test_absences_end_in_one_reassignment_counted_from_the_earliest() -> None:
    """A drops at 00:00, B at 00:10, A is back at 00:14, B is gone for too long at 00:25."""
    driver = Driver("A", "B", "C")
    driver.watch(static("B", "C"), 0, 10)
    driver.watch(static("C"), 10, 14)
    driver.watch(static("A", "C"), 14, 60)

    assert driver.log == [(25 * MINUTE, {"A", "C"})]


def test_joins_are_gathered_from_the_first() -> None:
    """A joins at 00:00 and B at 00:03, both are in at 00:05; C joins at 00:06, and is at 00:11."""
    driver = Driver()
    driver.watch(static("A"), 0, 3)
    driver.watch(static("A", "B"), 3, 6)
    driver.watch(static("A", "B", "C"), 6, 60)

    assert driver.log == [(5 * MINUTE, {"A", "B"}), (11 * MINUTE, {"A", "B", "C"})]


def test_an_absence_that_is_over_in_time_changes_nothing() -> None:
    driver = Driver("A", "B")
    driver.watch(static("A"), 0, 15)
    assert driver.stands("B") is MembershipState.ABSENT
    driver.watch(static("A", "B"), 15, 100)

    assert driver.log == []
    assert driver.stands("B") is MembershipState.ASSIGNED


def test_a_rolling_restart_changes_nothing() -> None:
    names = ["A", "B", "C", "D"]
    driver = Driver(*names)
    for at, name in enumerate(names):
        others = static(*(each for each in names if each != name))
        driver.watch(others, 14 * at, 14 * at + 13)
        driver.watch(static(*names), 14 * at + 13, 14 * at + 14)

    assert driver.log == []


def test_a_scale_down_gives_one_reassignment() -> None:
    """Four members go one after the other: all are out when the first has been away for long."""
    driver = Driver(*"ABCDEFGH")
    for minute in range(4):
        driver.watch(static(*"ABCDEFGH"[minute + 1 :]), minute, minute + 1)
    driver.watch(static(*"EFGH"), 4, 100)

    assert driver.log == [(15 * MINUTE, set("EFGH"))]


def test_a_scale_down_by_command_waits_for_nothing() -> None:
    driver = Driver(*"ABCD")
    driver.look(static("A", "B"), MINUTE)
    driver.membership.force(MINUTE)
    found = driver.look(static("A", "B"), 2 * MINUTE)

    assert found == Reassign("forced; lost: C, D", {"A": 1.0, "B": 1.0})
    assert found.forced
    driver.watch(static("A", "B"), 3, 100)
    assert len(driver.log) == 1


def test_a_rebalance_by_command_is_one_whoever_is_there() -> None:
    driver = Driver("A", "B")
    driver.membership.force(MINUTE)

    assert driver.look(static("A", "B"), MINUTE) == Reassign("forced", {"A": 1.0, "B": 1.0})
    assert driver.look(static("A", "B"), 2 * MINUTE) is None


def test_a_member_that_is_removed_by_command_is_out_at_once_and_alone() -> None:
    """Another one that is away keeps its time."""
    driver = Driver("A", "B", "C")
    driver.look(static("A"), MINUTE)
    assert driver.membership.remove("B", MINUTE)
    assert not driver.membership.remove("X", MINUTE)
    driver.watch(static("A"), 2, 15)
    assert driver.log == [(2 * MINUTE, {"A", "C"})]
    driver.watch(static("A", "C"), 15, 40)
    assert len(driver.log) == 1


def test_a_removed_member_that_is_alive_joins_again() -> None:
    driver = Driver("A", "B")
    driver.membership.remove("B", 0)
    driver.watch(static("A", "B"), 1, 30)

    assert driver.log == [(1 * MINUTE, {"A"}), (7 * MINUTE, {"A", "B"})]


def test_dynamic_members_that_vanish_are_out_at_once_and_static_ones_stay() -> None:
    driver = Driver()
    driver.watch([*static("A", "B"), *dynamic("x", "y")], 0, 6)
    assert driver.log.pop() == (5 * MINUTE, {"A", "B", "x", "y"})
    driver.watch([*static("A"), *dynamic("y")], 6, 10)
    assert driver.log == [(6 * MINUTE, {"A", "B", "y"})]
    driver.watch([*static("A", "B"), *dynamic("y")], 10, 60)
    assert len(driver.log) == 1


def test_joiners_come_with_any_reassignment() -> None:
    driver = Driver()
    driver.watch([*static("A"), *dynamic("x")], 0, 6)
    driver.watch([*static("A"), *dynamic("x", "y")], 6, 8)
    driver.watch([*static("A"), *dynamic("y")], 8, 60)

    assert driver.log[1:] == [(8 * MINUTE, {"A", "y"})]


def test_a_join_takes_nothing_from_who_is_away() -> None:
    driver = Driver("A", "B")
    driver.watch(static("A"), 0, 1)
    driver.watch(static("A", "C"), 1, 10)
    driver.watch(static("A", "B", "C"), 10, 60)

    assert driver.log == [(6 * MINUTE, {"A", "B", "C"})]


def test_a_joiner_that_is_gone_again_is_forgotten() -> None:
    driver = Driver("A")
    driver.watch(static("A", "B"), 0, 2)
    driver.watch(static("A", "C"), 2, 60)

    assert driver.log == [(7 * MINUTE, {"A", "C"})]


def test_nothing_is_taken_away_while_nobody_is_there() -> None:
    """A restart of everything that takes longer than anybody's time."""
    driver = Driver("A", "B")
    driver.watch([], 0, 60)
    assert driver.membership.next_due_ms() is None
    driver.watch(static("A", "B"), 60, 90)

    assert driver.log == []


def test_a_capacity_that_changes_waits_as_a_join_does() -> None:
    driver = Driver("A", "B")
    driver.look(static("A", "B"), 0)
    driver.watch([*static("A"), *static("B", capacity=4)], 1, 3)
    driver.watch([*static("A", "B")], 3, 20)
    assert driver.log == []
    driver.membership.observe([*static("A"), *static("B", capacity=4)], 20 * MINUTE)
    assert driver.membership.due(24 * MINUTE) is None

    assert driver.membership.due(25 * MINUTE) == Reassign("resized: B", {"A": 1.0, "B": 4.0})


def test_what_came_between_the_decision_and_its_writing_is_not_lost() -> None:
    membership = Driver("A", "B", "C").membership
    membership.observe(static("A", "D"), 0)
    found = membership.due(15 * MINUTE)
    assert found is not None
    assert found.members.keys() == {"A", "D"}
    membership.observe(static("A", "B"), 15 * MINUTE)
    membership.applied(found, 15 * MINUTE)

    stands = {name: state.standing for name, state in membership.members.items()}
    assert stands == {
        "A": MembershipState.ASSIGNED,
        "B": MembershipState.JOINING,
        "D": MembershipState.ABSENT,
    }


def test_a_capacity_that_changes_between_the_decision_and_its_writing_counts() -> None:
    membership = Membership(PROPOSED)
    membership.observe(static("A"), 0)
    found = membership.due(5 * MINUTE)
    assert found is not None
    membership.observe(static("A", capacity=2), 5 * MINUTE)
    membership.applied(found, 5 * MINUTE)

    assert membership.members["A"].standing is MembershipState.RESIZED
    assert membership.due(10 * MINUTE) == Reassign("resized: A", {"A": 2.0})


def test_what_is_due_is_due_until_it_is_written() -> None:
    membership = Driver("A", "B").membership
    membership.observe(static("A"), 0)
    assert membership.next_due_ms() == 15 * MINUTE
    assert membership.due(15 * MINUTE - 1) is None
    first = membership.due(15 * MINUTE)
    assert first == membership.due(16 * MINUTE) == Reassign("lost: B", {"A": 1.0})
    assert membership.next_due_ms() == 16 * MINUTE


@pytest.mark.parametrize("step", [-30 * MINUTE, -1])
def test_a_clock_that_steps_back_shortens_and_lengthens_no_timer(step: int) -> None:
    driver = Driver("A", "B")
    driver.watch(static("A"), 0, 10)
    now_ms = 9 * MINUTE + step
    driver.membership.observe(static("A"), now_ms)
    assert driver.membership.members["B"].since_ms == step
    assert driver.membership.next_due_ms() == now_ms + 6 * MINUTE
    assert driver.membership.due(now_ms + 6 * MINUTE - 1) is None
    assert driver.membership.due(now_ms + 6 * MINUTE) is not None


def test_a_driver_that_restarts_goes_on_with_what_was_left_of_the_timers() -> None:
    driver = Driver("A", "B")
    driver.watch([*static("A"), *dynamic("x")], 0, 5)
    document = json.loads(json.dumps(driver.membership.to_json()))

    membership = Membership.from_json(document, PROPOSED, 1_000 * MINUTE)
    assert membership.to_json() == document
    assert membership.next_due_ms() == 1_001 * MINUTE
    membership.observe([*static("A"), *dynamic("x")], 1_000 * MINUTE)
    assert membership.due(1_001 * MINUTE) == Reassign("joined: x", {"A": 1.0, "B": 1.0, "x": 1.0})


def test_a_command_survives_the_restart_of_the_driver() -> None:
    driver = Driver("A")
    driver.membership.force(0)
    membership = Membership.from_json(driver.membership.to_json(), PROPOSED, 0)
    assert membership.due(0) == Reassign("forced", {"A": 1.0})


def test_after_a_restart_of_driver_and_members_nobody_loses_anything() -> None:
    driver = Driver("A", "B", "C")
    driver.watch(static("B", "C"), 0, 5)
    driver.membership = Membership.from_json(driver.membership.to_json(), PROPOSED, 500 * MINUTE)
    driver.watch([], 500, 502)
    driver.watch(static("B"), 502, 504)
    driver.watch(static("A", "B", "C"), 504, 600)

    assert driver.log == []


@pytest.mark.parametrize(
    ("present", "condition"),
    [
        (static("A", "A"), "DUPLICATE_STATIC_MEMBER"),
        ([*static("A"), *dynamic("A")], "DUPLICATE_STATIC_MEMBER"),
        (static("A", ""), "NO_STATIC_MEMBER_INFO_SET"),
        (static(" "), "NO_STATIC_MEMBER_INFO_SET"),
    ],
)
def test_names_are_there_and_are_there_once(present: list[Present], condition: str) -> None:
    driver = Driver("A", "B")
    before = driver.membership.to_json()
    with pytest.raises(KeyrangeError, match=condition):
        driver.membership.observe(present, 5)
    assert driver.membership.to_json() == before


def test_a_capacity_is_above_nothing() -> None:
    with pytest.raises(ValueError, match="capacity 0"):
        Membership(PROPOSED).observe(static("A", capacity=0), 0)


def damaged(**changes: Any) -> dict[str, Any]:
    document = Driver("A").membership.to_json()
    document["members"]["A"] |= changes
    return document


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"version": 2, "forced": False, "members": {}},
        {"version": 1, "forced": 0, "members": {}},
        {"version": 1, "forced": False, "members": []},
        {"version": 1, "forced": False, "members": {"": damaged()["members"]["A"]}},
        damaged(standing="UNKNOWN"),
        damaged(standing="x"),
        damaged(standing="JOINING"),
        damaged(assignedCapacity=None),
        damaged(assignedCapacity=0),
        damaged(capacity=-1),
        damaged(capacity="1"),
        damaged(capacity=True),
        damaged(capacity=10**400),
        damaged(capacity=float("nan")),
        damaged(static=1),
        damaged(forMs=-1),
        damaged(forMs=1.5),
    ],
)
def test_a_damaged_state_is_refused(document: Any) -> None:
    with pytest.raises(KeyrangeError, match=r"\[INVALID_ASSIGNMENT\]"):
        Membership.from_json(document, PROPOSED, 0)


def test_the_table_has_an_answer_to_every_sign() -> None:
    """But for what cannot come to a name that has no share, or is not kept."""
    missing = {
        (standing, sign)
        for standing in MembershipState
        for sign in MemberEvent
        if (standing, sign) not in TRANSITIONS
    }
    assert missing == {
        (MembershipState.JOINING, MemberEvent.SEEN_RESIZED),
        *(
            (MembershipState.UNKNOWN, sign)
            for sign in (
                MemberEvent.SEEN_RESIZED,
                MemberEvent.MISSING,
                MemberEvent.REMOVE,
                MemberEvent.LEFT_OUT,
            )
        ),
    }


def test_what_is_stored_says_for_people_when_something_is_due() -> None:
    driver = Driver("A", "B")
    assert driver.membership.to_json()["dueInMs"] is None
    driver.look(static("A"), 1 * MINUTE)
    driver.look(static("A"), 5 * MINUTE)
    assert driver.membership.to_json()["dueInMs"] == 11 * MINUTE
