"""In which order a task reads its splits: as they were planned, small ones side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.ranges.sharing import shared_reader as ranges_module
from keyrange.source import task_reader as read_module

LATE, LATER = Split(TopicPartition("t", 0), 3, 5, 0), Split(TopicPartition("u", 0), 1, 2, 0)
SHARED, SHARED_TOO = (
    Split(TopicPartition("t", 0), 5, 9, 0, shared="a"),
    Split(TopicPartition("u", 0), 5, 9, 0, shared="b"),
)
ALONE, LAST = Split(TopicPartition("v", 0), 0, 9, 0), Split(TopicPartition("w", 0), 0, 9, 0)


class Reader:
    """What is asked to be read, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Any) -> None:
        self.asked: list[tuple[str, list[Split]]] = []
        mine = self

        class RangeReader:
            def __init__(self, reader: Any, directory: Any, split: Split, keep: bool) -> None:
                self.split = split

            def read(self) -> list[Any]:
                mine.asked.append(("shared", [self.split]))
                return []

        monkeypatch.setattr(ranges_module, "RangeReader", RangeReader)
        monkeypatch.setattr(read_module, "_executor_directory", lambda _: directory)

    def read(self, splits: Sequence[Split]) -> list[Any]:
        self.asked.append(("alone", list(splits)))
        return []

    def run(self, *splits: Split) -> list[tuple[str, list[Split]]]:
        given = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "splitBy": "keyRange"}
        keys: Any = parse_options(given).key_ranges
        reader: Any = self
        assert list(read_module._read_ranges(reader, splits, keys)) == []
        return self.asked


def test_what_is_late_comes_before_what_is_shared_and_that_before_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Reader(monkeypatch, object()).run(LATE, LATER, SHARED, SHARED_TOO, ALONE, LAST)
    assert asked == [
        ("alone", [LATE, LATER]),
        ("shared", [SHARED]),
        ("shared", [SHARED_TOO]),
        ("alone", [ALONE, LAST]),
    ]


def test_without_a_directory_all_is_read_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = (LATE, SHARED, ALONE)
    assert Reader(monkeypatch, None).run(*splits) == [("alone", list(splits))]


def test_where_nothing_is_shared_no_directory_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch, None)
    monkeypatch.setattr(read_module, "_executor_directory", lambda _: pytest.fail("made"))
    assert reader.run(LATE, ALONE) == [("alone", [LATE, ALONE])]
