"""The nemesis' schedules: the same for a seed, whole in a file, and of what a mode can suffer."""

from __future__ import annotations

import pytest

from nemesis.acts import ACTS
from nemesis.kinds import KINDS, possible
from nemesis.modes import MODES, mode_of
from nemesis.schedule import Fault, Met, explained, make_schedule, read_schedule
from nemesis.store import KINDS as STORES


def test_a_seed_says_everything() -> None:
    kinds = possible(MODES["pinned"].has(private=True))
    one, same = (make_schedule(5, "pinned", 600, kinds) for _ in range(2))
    assert one == same != make_schedule(6, "pinned", 600, kinds)
    assert read_schedule(one.written()) == one


def test_each_kind_comes_before_any_comes_again() -> None:
    kinds = possible(MODES["pinned"].has(private=True))
    faults = make_schedule(1, "pinned", 3_000, kinds).faults
    assert {fault.kind for fault in faults[: len(kinds)]} == set(kinds)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    for fault in faults:
        low, high = KINDS[fault.kind].hold_s
        assert low <= fault.hold_s <= high


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_suffers_only_what_it_can(mode: str) -> None:
    kinds = possible(MODES[mode].has(private=False))
    assert "kill-broker" in kinds
    assert not {"fill-memory", "fill-disk"} & set(kinds)
    assert ("kill-member" in kinds) == MODES[mode].pinned
    assert ("unclean-election" in kinds) == (MODES[mode].nodes == 3)
    assert ("reset-commits" in kinds) == (MODES[mode].job == "process")


def test_every_kind_can_be_done_and_some_mode_suffers_it() -> None:
    assert ACTS.keys() == KINDS.keys()
    suffered = {
        kind
        for mode in MODES.values()
        for store in STORES
        for kind in possible(mode.has(private=True, store=store))
    }
    assert suffered == KINDS.keys()


def test_a_driver_may_end_for_what_a_fault_explains_and_no_longer() -> None:
    kill = Met(Fault(10.0, "kill-driver", 0.0, 0.5), 10.0, 10.0)
    assert explained([kill], 11.0, -99.0) == {"KILLED"}
    assert explained([kill], 200.0, -99.0) == frozenset()
    assert (
        explained([Met(Fault(10.0, "kill-executor", 0.0, 0.5), 10.0, 10.0)], 11.0, -99.0)
        == frozenset()
    )


def test_a_driver_that_was_fenced_ends_when_it_commits_next() -> None:
    reset = Met(Fault(10.0, "reset-commits", 0.0, 0.5), 10.0, 10.0)
    assert "COMMITS_FENCED" in explained([reset], 500.0, 9.0)
    assert explained([reset], 500.0, 11.0) == frozenset()


def test_clients_may_give_up_when_no_broker_could_be_reached_for_long() -> None:
    hang = Fault(10.0, "hang", 15.0, 0.5)
    short, long = Met(hang, 10.0, 25.0), Met(hang, 30.0, float("inf"))
    assert explained([short], 30.0, -99.0) == frozenset()
    assert "BROKER_UNREACHABLE" not in explained([short, long], 40.0, -99.0)
    assert "BROKER_UNREACHABLE" in explained([short, long], 60.0, -99.0)
    # Who has just begun knows no broker yet, and waits less.
    assert "BROKER_UNREACHABLE" in explained([long], 40.0, 30.0)
    assert "BROKER_UNREACHABLE" not in explained([long], 40.0, 38.0)
    assert "BROKER_UNREACHABLE" in explained([short, long], 40.0, 30.0)


def test_clients_may_give_up_when_a_topic_is_away_for_long() -> None:
    fault = Fault(10.0, "recreate-topic", 2.0, 0.5)
    assert explained([Met(fault, 10.0, 12.0)], 12.0, -99.0) == frozenset()
    # A cluster that is only just back takes longer to create it.
    assert explained([Met(fault, 10.0, float("inf"))], 12.0, -99.0) == frozenset()
    late = Met(fault, 10.0, 15.0)
    assert explained([late], 15.0, -99.0) == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_all_modes_take_turns() -> None:
    assert {mode_of(seed).name for seed in range(len(MODES))} == set(MODES)
