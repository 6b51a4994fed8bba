"""What a task leaves in its process, which Spark uses again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from keyrange.members.read_tasks import ReadTask
from keyrange.options import parse_options
from keyrange.options.kafka_properties import ClientSettings
from keyrange.source import task_reader
from queries.scripted import SERVERS


@pytest.fixture
def _nothing_frozen() -> Iterator[None]:
    """A process in which no task has run."""
    gc.unfreeze()
    task_reader._freeze_modules.cache_clear()
    yield
    gc.freeze()


@pytest.mark.usefixtures("_nothing_frozen")
def test_garbage_is_not_looked_for_in_modules_behind_each_task() -> None:
    options = parse_options(SERVERS | {"subscribe": "t"})
    task = ReadTask([], [], [], {})
    assert list(task_reader.read_task(options, task)) == []
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    # What comes later is looked at as ever.
    later = [[] for _ in range(100)]
    assert list(task_reader.read_task(options, task)) == []
    # Some of what is frozen may go meanwhile.
    assert gc.get_freeze_count() <= frozen
    assert all(gc.is_tracked(each) for each in later)


def test_connections_of_queries_that_came_and_went_are_let_go() -> None:
    """Each with a client id of its own: Spark uses the process for as long as it has work."""
    task_reader._kept_cluster.cache_clear()
    made = [
        weakref.ref(task_reader._kept_cluster(ClientSettings(client_id=f"run-{n}"), 1))
        for n in range(50)
    ]
    assert task_reader._kept_cluster(ClientSettings(client_id="run-49"), 1) is made[-1]()
    assert sum(each() is not None for each in made) < 10
    task_reader._kept_cluster.cache_clear()
