"""What `keyrange.register` does in sessions that find the source, and in those that do not."""

from __future__ import annotations

from typing import Any

import pytest

import keyrange
from keyrange.source.data_source import KeyRangeDataSource


class Session:
    """A session whose lookup ends as it is told, and which notes what is registered."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.registered: list[type] = []
        self.read = self.dataSource = self

    def format(self, name: str) -> Session:
        assert name == "keyrange"
        return self

    def options(self, **options: str) -> Session:
        # They have to be right, or the lookup would end in an error of keyrange's own.
        KeyRangeDataSource(options).schema()
        return self

    def load(self) -> Session:
        return self

    @property
    def schema(self) -> None:
        if self.failure:
            raise self.failure

    def register(self, source: type) -> None:
        self.registered.append(source)


def register(session: Any) -> list[type]:
    keyrange.register(session)
    registered: list[type] = session.registered
    return registered


def test_a_source_that_spark_finds_is_not_replaced() -> None:
    assert register(Session()) == []


def test_a_source_that_spark_does_not_find_is_registered() -> None:
    missing = RuntimeError("x: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: keyrange.")
    assert register(Session(missing)) == [KeyRangeDataSource]


def test_other_failures_are_raised() -> None:
    session = Session(ValueError("the session is closed"))
    with pytest.raises(ValueError, match="closed"):
        register(session)
    assert session.registered == []
