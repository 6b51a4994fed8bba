"""Queries in one process, by seeds: planner, tasks, verdicts, commits and assignments as they are,
through what Spark calls, while all around them fails."""

from __future__ import annotations

import os
from random import Random

import pytest

from keyrange.core.offsets import TopicPartition
from simulation import invariants
from simulation.faults import Chances, Crash, Faults
from simulation.schedule import Failed, Kind, Schedule, simulate

# More of them, and others each time, where KEYRANGE_HYPOTHESIS_PROFILE is soak.
_IS_SOAK = os.environ.get("KEYRANGE_HYPOTHESIS_PROFILE") == "soak"
_FIRST = Random().randrange(10**9) if _IS_SOAK else 0
_TIMES = 20 if _IS_SOAK else 1
_AT_A_TIME = 10

KINDS = {
    "batches": (Kind(individual=False), 30),
    "batches of a pattern": (Kind(individual=False, pattern=True), 30),
    "pinned batches": (Kind(individual=False, pinned=True), 10),
    "individual": (Kind(), 20),
    "individual, pinned": (Kind(pinned=True), 10),
    "individual, pinned, with a budget": (Kind(pinned=True, budget=True), 10),
    "individual, of a pattern": (Kind(pattern=True), 10),
    "individual, begun anew": (Kind(anew=True, clocks=True), 10),
}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, id=f"{name}-{seed}")
        for name, (kind, seeds) in KINDS.items()
        for seed in range(_FIRST, _FIRST + seeds * _TIMES, _AT_A_TIME)
    ],
)
def test_whatever_fails_everything_is_done_once_and_in_order(kind: Kind, seed: int) -> None:
    for each in range(seed, seed + _AT_A_TIME):
        simulate(each, kind)


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Schedule._body

    def twice(schedule: Schedule, batch: object, batch_id: int) -> None:
        written(schedule, batch, batch_id)
        schedule.world.sink.batches.append(schedule.world.sink.batches[-1])

    monkeypatch.setattr(Schedule, "_body", twice)
    with pytest.raises(Failed, match=r"(?s)doubled.*simulate\(3, Kind\(individual=False.*calm"):
        simulate(3, Kind(individual=False))


def test_the_same_seed_has_the_same_schedule() -> None:
    first, second = (simulate(5, Kind()) for _ in range(2))
    assert first.faults.counts() == second.faults.counts()
    assert first.sink.rows == second.sink.rows


def test_a_lost_and_a_doubled_record_are_found() -> None:
    a, b = ("t", 0, 1), ("t", 0, 2)
    invariants.each_once([a, b], [a], [b])
    with pytest.raises(AssertionError, match="lost"):
        invariants.each_once([a, b], [a], [])
    with pytest.raises(AssertionError, match="doubled"):
        invariants.each_once([a], [a], [a])
    with pytest.raises(AssertionError, match="foreign"):
        invariants.each_once([a], [a, b], [])


def test_a_key_out_of_order_is_found() -> None:
    invariants.keys_in_order([("t", 0, 2, "k"), ("t", 0, 1, "l"), ("t", 0, 3, None)])
    with pytest.raises(AssertionError, match="1 came after 2"):
        invariants.keys_in_order([("t", 0, 2, "k"), ("t", 0, 1, "k")])


def test_a_position_that_goes_back_or_is_forgotten_is_found() -> None:
    place = TopicPartition("t", 0)
    invariants.never_back([{}, {place: 1}, {place: 1}])
    with pytest.raises(AssertionError, match="from 2 back to 1"):
        invariants.never_back([{place: 2}, {place: 1}])
    with pytest.raises(AssertionError, match="from 2 back to -1"):
        invariants.never_back([{place: 2}, {}])


def test_faults_come_as_likely_as_they_are() -> None:
    from simulation.clock import Clock

    faults = Faults(Random(0), Clock(), Chances(crash=1.0))
    with pytest.raises(Crash):
        faults.at("a call")
    # A process that is not to be harmed now is not.
    faults.meanwhile(lambda: faults.at("a call"))
    assert faults.counts() == {"crash": 1}
