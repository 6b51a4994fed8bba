"""A sender's transactions over a naive Kafka: each row once, in order, whatever goes wrong."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.kafka.model.sender_messages import EndTransaction, Send
from keyrange.kafka.model.sender_states import Phase
from project.forms import everyday
from simulation.senders import World, some_job

BOTH = pytest.mark.parametrize("bumps_epochs", everyday(True, False), ids=["v2", "v1"])


@BOTH
@given(seed=st.integers(0, 2**32))
def test_each_row_is_committed_once_in_order(bumps_epochs: bool, seed: int) -> None:
    random = Random(seed)
    trouble = random.choice((0.0, 0.01, 0.05, 0.15))
    world = World(some_job(random, random.randint(1, 6)), bumps_epochs, random, trouble)
    world.run()
    world.check()


@BOTH
def test_a_sender_killed_behind_any_step_is_followed_by_one_that_goes_on(
    bumps_epochs: bool,
) -> None:
    job = some_job(Random(3), 3)
    whole = World(job, bumps_epochs, Random(1))
    whole.run()
    assert whole.steps > 50
    for step in range(1, whole.steps):
        world = World(job, bumps_epochs, Random(1), kill_at=frozenset({step}))
        world.run()
        world.check()


def lost_end(world: World) -> Send | None:
    """The end of a transaction that is on its way: its connection breaks, and it comes late."""
    process = world.process
    for node_id, wire in process.wires.items():
        for send in wire.sent:
            if isinstance(send.request, EndTransaction):
                process.cut(node_id, world.cluster.now_ms)
                return send
    return None


@BOTH
def test_a_late_end_of_a_transaction_does_not_end_the_next_one(bumps_epochs: bool) -> None:
    job = some_job(Random(4), 3)
    ended = 0
    for seed in range(200):
        world = World(job, bumps_epochs, Random(seed))
        late, wait = None, seed % 40
        for _ in range(10_000):
            world._step()
            late = late or lost_end(world)
            is_next = world.process.sender.token is not None
            if late is not None and is_next and world.process.sender.phase is Phase.SENDING:
                if not wait:
                    world.cluster.answer(late)
                    ended += 1
                    break
                wait -= 1
            if world.process.is_done:
                break
        world.run()
        world.check()
    assert ended > 50
