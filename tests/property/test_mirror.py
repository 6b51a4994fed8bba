"""The mirror against a group that refuses, fails and forgets to answer, over random histories."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.kafka.model.offset_mirror_timing import (
    REFRESH_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    MirrorState,
)
from keyrange.model.offsets import TopicPartition

PLACES = [TopicPartition("t", number) for number in range(4)]


@dataclass
class Group:
    """The group's offsets in Kafka, and what a commit to it comes to."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def commit(self, due: dict[TopicPartition, int], outcome: str) -> None:
        if outcome in ("taken", "taken, answer lost"):
            self.offsets.update(due)


@dataclass
class History:
    """One run: what was given and sent, what was said."""

    seed: int
    now_ms: float = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    said: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: {"committed": 0, "refused": 0, "failed": 0}
    )
    quiet_until_ms: float = 0
    pause_ms: int = RETRY_MS

    def __post_init__(self) -> None:
        self.state = MirrorState()
        self.random = random.Random(self.seed)
        self.acknowledged: dict[TopicPartition, int] = {}
        self.full_at_ms: float | None = None

    def step(self) -> None:
        self._move()
        self.now_ms += self.random.choice([0, 1, 500, 2_000, 70_000, 4_000_000])
        due = self.state.due(self.positions, self.now_ms)
        self._check_due(due)
        if due:
            self._answer(due)

    def _move(self) -> None:
        for place in PLACES:
            roll = self.random.random()
            if roll < 0.4:
                self.positions[place] = self.positions.get(place, 0) + self.random.randrange(5)
            elif roll < 0.45:
                self.positions[place] = self.random.randrange(3)
            elif roll < 0.5:
                self.positions.pop(place, None)
                self.acknowledged.pop(place, None)

    def _check_due(self, due: dict[TopicPartition, int]) -> None:
        """Only what was given; within a pause nothing; else what is not acknowledged as it is."""
        assert due.items() <= self.positions.items()
        if self.now_ms < self.quiet_until_ms:
            assert due == {}
            return
        refresh = self.full_at_ms is not None and self.now_ms >= self.full_at_ms
        if refresh:
            self.acknowledged.clear()
        moved = {p: at for p, at in self.positions.items() if self.acknowledged.get(p) != at}
        assert due == moved

    def _answer(self, due: dict[TopicPartition, int]) -> None:
        outcome = self.random.choice(
            ["taken", "taken", "taken, answer lost", "lost", "no", "never"]
        )
        self.group.commit(due, outcome)
        if outcome == "taken":
            if not self.acknowledged:
                self.full_at_ms = self.now_ms + REFRESH_MS
            self.state.acknowledge(due, self.now_ms)
            self.acknowledged.update(due)
            self.said.clear()
            self.quiet_until_ms, self.pause_ms = 0, RETRY_MS
            self.counts["committed"] += 1
            assert self.state.metrics()["lastError"] == ""
            if self.acknowledged.keys() >= self.positions.keys():
                # Nothing is outstanding: Kafka's tools show where the query stands.
                assert self.positions.items() <= self.group.offsets.items()
        else:
            for place in due:
                self.acknowledged.pop(place, None)
            count: Any = "refused" if outcome in ("no", "never") else "failed"
            news = self.state.give_up(count, due, outcome, f"{outcome}!", self.now_ms)
            assert news is (outcome not in self.said)
            self.said.append(outcome)
            self.counts[count] += 1
            self.quiet_until_ms = self.now_ms + self.pause_ms
            self.pause_ms = min(2 * self.pause_ms, RETRY_MAX_MS)
            assert self.state.metrics()["lastError"] == f"{outcome}!"
        assert self.state.metrics().items() >= self.counts.items()


@settings(max_examples=2 * settings().max_examples)
@given(seed=st.integers(0, 2**32))
def test_any_history(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        history.step()


@given(seed=st.integers(0, 2**32))
def test_it_ends_where_the_query_stands(seed: int) -> None:
    """However it went before: once Kafka takes commits again, one that is due makes it right."""
    history = History(seed)
    for _ in range(30):
        history.step()
    history.now_ms += RETRY_MAX_MS
    due = history.state.due(history.positions, history.now_ms)
    history.group.commit(due, "taken")
    history.state.acknowledge(due, history.now_ms)
    assert history.positions.items() <= history.group.offsets.items()
    assert history.state.due(history.positions, history.now_ms) == {}


@given(moves=st.lists(st.dictionaries(st.sampled_from(PLACES), st.integers(0, 9)), max_size=20))
def test_the_group_never_goes_back_while_the_query_does_not(
    moves: list[dict[TopicPartition, int]],
) -> None:
    state, group, at = MirrorState(), Group(), dict.fromkeys(PLACES, 0)
    for now_ms, move in enumerate(moves):
        at = {place: offset + move.get(place, 0) for place, offset in at.items()}
        due = state.due(at, now_ms)
        assert all(offset >= group.offsets.get(place, 0) for place, offset in due.items())
        assert due.keys() == ({p for p in PLACES if move.get(p)} if now_ms else set(PLACES))
        group.commit(due, "taken")
        state.acknowledge(due, now_ms)
        assert group.offsets == at
