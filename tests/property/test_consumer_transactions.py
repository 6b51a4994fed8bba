"""Consumers that send what they have done in transactions, and end anywhere, live on while others
have their key ranges, or find the store or a broker away: each record is sent once."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from project.forms import by_form
from simulation.transacting import TransactingGroup, transacting
from simulation.world import World

SEEDS = by_form(2, 10, 1_000)


def simulate(seed: int) -> World:
    world = World(seed)
    with world.installed(), transacting(world) as kafka:
        group = TransactingGroup(world, Random(seed))
        try:
            group.run()
        except Exception as failure:
            noted = "\n  ".join(world.faults.noted)
            raise AssertionError(f"seed {seed}: {failure}\n  {noted}") from failure
        wrong = {place: n for place, n in Counter(kafka.log).items() if n > 1}
        wanted = {place for place, _ in world.topics.produced()}
        noted = "\n  ".join(world.faults.noted)
        assert not wrong, f"seed {seed}: sent twice: {list(wrong.items())[:5]}\n  {noted}"
        assert set(kafka.log) == wanted, f"seed {seed}: {sorted(wanted - set(kafka.log))[:5]}"
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_record_is_sent_once(seed: int) -> None:
    simulate(seed)
