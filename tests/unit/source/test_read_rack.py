"""The rack that a task's client is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.kafka.fetching import fetch as fetch_module
from keyrange.members.read_tasks import ReadTask
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.source import task_reader
from keyrange.source.task_reader import read_task
from queries.scripted import SERVERS

TASK = ReadTask([Split(TopicPartition("t", 0), 0, 1, 0)], [], [], {})
GIVEN = SERVERS | {"subscribe": "t", "kafka.client.rack": "a"}


@pytest.fixture
def racks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rack of each reader that was made."""
    found: list[str] = []

    class Reader:
        def __init__(self, cluster: Any, *_: object) -> None:
            found.append(cluster.settings.client_rack)

        def read(self, _: Sequence[Split]) -> Iterator[Any]:
            return iter(())

    monkeypatch.setattr(fetch_module, "SplitReader", Reader)
    return found


def test_each_executor_says_its_own_rack(
    racks: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task_reader._say_no_rack.cache_clear()
    options = parse_options(GIVEN | {"client.rack.env": "ZONE"})
    for zone in ("b", "c"):
        monkeypatch.setenv("ZONE", zone)
        list(read_task(options, TASK))
    assert caplog.text == ""
    monkeypatch.delenv("ZONE")
    for _ in range(2):
        list(read_task(options, TASK))
    assert racks == ["b", "c", "", ""]
    [said] = caplog.records
    assert "has no variable ZONE" in said.getMessage()


def test_without_a_variable_all_say_the_one_that_is_given(racks: list[str]) -> None:
    list(read_task(parse_options(GIVEN), TASK))
    assert racks == ["a"]


def test_what_is_no_variable_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"client\.rack\.env' must be the name of an environ"):
        parse_options(GIVEN | {"client.rack.env": "my zone"})
