"""A query that commits individually, against a scripted cluster and a commit table in memory: a
test plans and commits its batches one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.offset_splits import Split
from keyrange.options import SourceOptions, parse_options
from keyrange.source import individual_commit_strategy as individual_module
from keyrange.source.commit_strategy import JobState
from keyrange.source.planning_session import PlanningSession
from queries.scripted import EARLIEST_START, GIVEN, ScriptedCluster, session
from tables.committing import INDIVIDUAL, Committed, commit_batch


class Query:
    """A query whose batches a test plans and commits one by one."""

    def __init__(
        self,
        cluster: ScriptedCluster,
        subscription: Mapping[str, str] = GIVEN,
        keeps_state: bool = False,
        **options: str,
    ) -> None:
        self.cluster = cluster
        self.state = JobState() if keeps_state else None
        self.given = {**subscription, **INDIVIDUAL, **EARLIEST_START, **options}
        self.committed = Committed()
        self.run = self.restarted()
        self.offset: dict[str, Any] = self.run.initial().to_json()

    @property
    def options(self) -> SourceOptions:
        return parse_options(self.given, "stream")

    def restarted(self, **options: str) -> PlanningSession:
        self.run = session(self.cluster, self.given, self.committed, state=self.state, **options)
        return self.run

    def next(self) -> dict[str, Any]:
        return self.run.latest(self.offset, limited=True)

    def batch(self, verdicts: Any = None, commits: bool = True) -> list[Split]:
        """Plan a batch and commit it; returns what its tasks read."""
        end = self.next()
        assert end != self.offset
        splits = self.splits(end)
        if commits:
            commit_batch(self.committed, self.options, self.offset, end, verdicts)
        self.offset = end
        return splits

    def splits(self, end: dict[str, Any]) -> list[Split]:
        start = read_checkpoint(self.offset)
        return [s for t in self.run.plan(start, read_checkpoint(end)) for s in t.splits]

    def is_idle(self) -> bool:
        return self.next() is self.offset

    def mark(self) -> dict[str, Any]:
        mark: dict[str, Any] = self.offset["@keyrange"]["commits"]
        return mark


class Clock:
    """Time that passes only where a test, or a sleep, says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_750_000_000.0
        self.slept: list[float] = []
        for name in ("time", "monotonic"):
            monkeypatch.setattr(individual_module.time, name, lambda: self.now_s)
        monkeypatch.setattr(individual_module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def refused(query: Query, condition: str) -> KeyrangeError:
    with pytest.raises(KeyrangeError) as caught:
        query.next()
    assert caught.value.condition.name == condition
    return caught.value


def ranges_of(splits: list[Split]) -> list[tuple[int, int]]:
    return [(split.from_offset, split.until_offset) for split in splits]
