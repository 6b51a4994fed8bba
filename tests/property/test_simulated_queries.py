"""Queries in one process, by seeds: planner, tasks, verdicts, commits and assignments as they are,
through what Spark calls, while all around them fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from random import Random

import pytest

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.table import keyed_state_rows
from keyrange.model.offsets import TopicPartition
from project.forms import by_form
from simulation import invariants
from simulation.faults import Chances, Crash, Faults
from simulation.kinds import Kind
from simulation.schedule import Failed, Schedule, simulate
from simulation.topics import Place

# Others each time in the long form.
_FIRST = by_form(0, 0, Random().randrange(10**9))
# How many of them.
_SHARE = by_form(0.02, 0.05, 20)
_AT_A_TIME = by_form(1, 1, 10)

KINDS = {
    "batches": (Kind(individual=False), 100),
    "batches of a pattern": (Kind(individual=False, pattern=True), 100),
    "pinned batches": (Kind(individual=False, pinned=True), 10),
    "individual": (Kind(), 10),
    "individual, pinned": (Kind(pinned=True), 10),
    "individual, pinned, with a budget": (Kind(pinned=True, budget=True), 10),
    "individual, of a pattern": (Kind(pattern=True), 10),
    "batches, other options": (Kind(individual=False, changes=True), 100),
    "individual, other options": (Kind(changes=True), 60),
    "individual, pinned, other options": (Kind(pinned=True, changes=True), 10),
    "individual, begun anew": (Kind(anew=True, clocks=True), 10),
    "batches with losses": (Kind(individual=False, loses=True), 100),
    "individual, with losses": (Kind(loses=True), 10),
    "individual, with losses, of a pattern": (Kind(loses=True, pattern=True), 10),
    "individual, set by hand": (Kind(by_hand=True), 10),
    "individual, set by hand, with losses": (Kind(by_hand=True, loses=True), 10),
    "with timers": (Kind(timed=True), 10),
    "with timers, pinned": (Kind(timed=True, pinned=True), 10),
    "with timers, other clocks": (Kind(timed=True, clocks=True), 10),
    "with timers, with losses": (Kind(timed=True, loses=True), 10),
    "with timers, with a budget": (Kind(timed=True, budget=True), 10),
    "with timers, set by hand, with a budget": (Kind(timed=True, by_hand=True, budget=True), 10),
    "with timers, set by hand": (Kind(timed=True, by_hand=True), 10),
    "with timers, begun anew": (Kind(timed=True, anew=True, budget=True), 10),
    "with timers, of two topics": (Kind(timed=True, shared=True), 10),
    "with timers, of two topics, pinned": (Kind(timed=True, shared=True, pinned=True), 10),
    "with timers, of two topics, with a budget": (Kind(timed=True, shared=True, budget=True), 10),
    # 145 and 158 are quiet enough that nobody is to lose ranges.
    "consumers of one group": (Kind(consumers=True), 160),
    "consumers of one group, by offset": (Kind(consumers=True, by_offset=True), 10),
}

# The everyday loop has these few, which have most traits of a query between them.
_EVERY_DAY = {
    "batches of a pattern",
    "individual, pinned, with a budget",
    "individual, set by hand, with losses",
    "with timers, begun anew",
    "with timers, of two topics, pinned",
}


# Likewise of the ordinary run: the dearest, and with a budget they are there.
_SLOW = {"with timers", "with timers, set by hand", "with timers, of two topics"}


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    longer = ((pytest.mark.ordinary, name not in _EVERY_DAY), (pytest.mark.slow, name in _SLOW))
    return tuple(mark for mark, is_so in longer if is_so)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, id=f"{name}-{seed}", marks=_marks(name))
        for name, (kind, seeds) in KINDS.items()
        for seed in range(_FIRST, _FIRST + max(int(seeds * _SHARE), _AT_A_TIME), _AT_A_TIME)
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


@pytest.mark.slow  # it is about the simulation
def test_state_that_does_not_go_back_with_its_records_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stays(_: object, known: Snapshot, partition: TopicPartition, *__: object) -> object:
        return known.runs[partition]

    monkeypatch.setattr(keyed_state_rows, "runs_to_return_to", stays)
    with pytest.raises(Failed, match=r"its state has .* more than once"):
        simulate(503, Kind(timed=True, by_hand=True, budget=True))


_SAID = """
import logging, sys
from simulation.kinds import Kind
from simulation.schedule import simulate
logging.lastResort = None
for kind in (Kind(pinned=True), Kind(individual=False, pattern=True), Kind(consumers=True)):
    world = simulate(2, kind)
    print(*world.faults.noted, *world.sink.rows, sep="\\n")
"""


@pytest.mark.slow  # it is about the simulation
def test_the_same_seed_has_the_same_schedule_in_every_process() -> None:
    """Also where sets are in another order."""

    def said(hash_seed: str) -> str:
        path = os.pathsep.join(sys.path)
        surroundings = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        command = [sys.executable, "-P", "-c", _SAID]
        ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
        home = re.compile(r"tmp[a-z0-9_]{8}")
        return home.sub("home", ran.stdout)

    first = said("1")
    assert len(first.splitlines()) > 20
    assert first == said("2")


def test_a_lost_and_a_doubled_record_are_found() -> None:
    a, b = Place("t", 0, 1, 0), Place("t", 0, 2, 0)
    invariants.each_once([a, b], [a, b])
    invariants.each_once([a, b], [a], accounted=[b])
    invariants.each_once([a, b], [a, a, b], again=[a])
    with pytest.raises(AssertionError, match="lost"):
        invariants.each_once([a, b], [a])
    with pytest.raises(AssertionError, match="doubled"):
        invariants.each_once([a], [a, a])
    with pytest.raises(AssertionError, match="foreign"):
        invariants.each_once([a], [a, b])


def test_a_key_out_of_order_is_found() -> None:
    first, second = Place("t", 0, 1, 0), Place("t", 0, 2, 0)
    anew = first._replace(generation=1)
    invariants.keys_in_order([(second, "k"), (first, "l"), (second, None), (anew, "k")])
    with pytest.raises(AssertionError, match="1 came after 2"):
        invariants.keys_in_order([(second, "k"), (first, "k")])


def test_a_position_that_goes_back_or_is_forgotten_is_found() -> None:
    place = TopicPartition("t", 0)
    was, now = {"t": "was"}, {"t": "now"}
    invariants.never_back([({}, {}), (was, {place: 1}), (was, {place: 1}), (now, {place: 0})])
    with pytest.raises(AssertionError, match="from 2 back to 1"):
        invariants.never_back([(was, {place: 2}), (was, {place: 1})])
    with pytest.raises(AssertionError, match="from 2 back to -1"):
        invariants.never_back([(was, {place: 2}), (was, {})])


def test_faults_come_as_likely_as_they_are() -> None:
    from simulation.clock import Clock

    faults = Faults(Random(0), Clock(), Chances(crash=1.0))
    with pytest.raises(Crash):
        faults.at("a call")
    # A process that is not to be harmed now is not.
    faults.meanwhile(lambda: faults.at("a call"))
    assert faults.counts() == {"crash": 1}
