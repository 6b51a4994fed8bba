"""The protocol of individual commits as a whole, simulated with crashes at every step."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from keyrange.individual_commits.model.commit import CommitKind, known_at
from project.forms import by_form
from tables.commit_simulation import STEPS, World, check_sinks, run

SEEDS = range(by_form(1, 3, 12))


def simulate(seed: int, keeps_order: bool, steps: int = 120) -> World:
    random = Random(seed)
    pending_max, lag_max = random.choice([2, 6, 10_000]), random.choice([None, None, 60])
    world = World(random, keeps_order, pending_max, lag_max)
    run(world, steps)
    return world


@pytest.mark.parametrize("keeps_order", [True, False], ids=["keep", "skipAhead"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_settled_once_whatever_crashes(seed: int, keeps_order: bool) -> None:
    world = simulate(seed, keeps_order)
    check_sinks(world)
    assert sum(len(log) for log in world.log.values()) > 100
    # Each batch is committed once, in order.
    assert [c.batch_id for c in world.store if c.kind is CommitKind.BATCH] == sorted(world.sink)
    assert known_at(world.store, len(world.store)) == world.table.known()


@pytest.mark.slow  # it is about the simulation
def test_the_simulation_crashes_at_every_step_and_uses_all_that_may_happen() -> None:
    worlds = [simulate(seed, True) for seed in range(100, 108)]
    crashed = Counter(step for world in worlds for step in world.crashed)
    assert set(crashed) == set(STEPS)
    assert all(any(world.dead.values()) for world in worlds)
    assert any(v.handed_back for w in worlds for s in w.verdicts.values() for v in s.said.values())
    states = [s for world in worlds for commit in world.store for s in commit.states.values()]
    assert any(len({piece.scanned for piece in state.pieces}) > 1 for state in states)
    assert any(len(state.pending) > 5 for state in states)
