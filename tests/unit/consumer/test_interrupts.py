"""A consumer that is interrupted at any line of its own code, as by Ctrl+C, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.scripted_broker import ScriptedCluster, World
from keyrange.consumer import consumer_positions
from keyrange.consumer.api import Consumer
from project.forms import by_form, everyday
from queries.interrupted_calls import interrupted
from queries.scripted_consumer import FIRST, a_key_each, options_at


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(lambda _node, _partition, offset: a_key_each(offset, world.latest), latest=0)
    monkeypatch.setattr(consumer_positions, "Cluster", lambda _: ScriptedCluster(world))
    return world


@pytest.fixture
def consumer(world: World, tmp_path: Path) -> Iterator[Consumer]:
    options = {"member.name": "a", "maxBatchRows": "4"}
    with Consumer(options_at(tmp_path, **options)) as consumer:
        consumer.assign({FIRST: []})
        yield consumer


def polled(consumer: Consumer) -> list[int]:
    return [each.offset for each in consumer.poll_records(0)]


@pytest.mark.parametrize("by", everyday(KeyboardInterrupt, TimeoutError))
def test_what_nobody_has_received_comes_again_in_its_place(
    world: World, consumer: Consumer, by: type[BaseException]
) -> None:
    """Records that were handed out before, and new ones, were seen by nobody until a restart, or
    counted as done. An exception may come from a handler of signals too."""
    received: list[int] = []
    for line in range(0, 1_000, by_form(3, 3, 1)):
        # Some come again, the others for the first time.
        world.latest += 5
        consumer.seek(FIRST, again := max(0, world.latest - 7))
        received.clear()
        where = interrupted(lambda: received.extend(polled(consumer)), line, by)
        while found := polled(consumer):
            received.extend(found)
        assert received == list(range(again, world.latest)), where
        if not where:
            break
        consumer.acknowledge(FIRST, received[:-2])
        consumer.commit()
    assert line > 100
