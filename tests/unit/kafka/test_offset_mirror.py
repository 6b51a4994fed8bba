"""The mirror's edge: what reaches the log and the counts, and that nothing else gets out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.kafka import offset_mirror
from keyrange.kafka.offset_mirror import GroupMirror, new_mark
from keyrange.model.offsets import TopicPartition

PLACE = TopicPartition("t", 0)


class Commits:
    """Takes the place of the commit; raises what a test has put into `outcomes`."""

    def __init__(self) -> None:
        self.outcomes: list[KeyrangeError | None] = []
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, cluster: Any, *call: Any) -> set[TopicPartition]:
        self.calls.append(call)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        return set()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    made = Commits()
    monkeypatch.setattr(offset_mirror, "commit_group_offsets", made)
    return made


def new_mirror() -> GroupMirror:
    cluster: Any = None
    return GroupMirror(cluster, "g", timeout_ms=250)


def test_what_moved_is_committed_with_its_epochs(commits: Commits) -> None:
    mirrored = new_mirror()
    for at in (5, 5, 6):
        mirrored.mirror({PLACE: at}, {PLACE: 2}, 0)
    assert commits.calls == [
        ("g", {PLACE: 5}, {PLACE: 2}, 250, ""),
        ("g", {PLACE: 6}, {PLACE: 2}, 250, ""),
    ]
    assert mirrored.metrics() == {"committed": 2, "refused": 0, "failed": 0, "lastError": ""}


def test_refusals_and_failures_are_said_once_and_counted(
    commits: Commits, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = error("GROUP_OFFSETS_REFUSED", "group 'g' refuses offsets with UNKNOWN_MEMBER_ID")
    denied = error("AUTHORIZATION_FAILED", "not allowed to read topic t")
    lost = [error("BROKER_UNREACHABLE", "no broker answered", try_number=n) for n in range(3)]
    commits.outcomes = [refusal, refusal, *lost, denied, refusal]
    mirrored = new_mirror()
    with caplog.at_level(logging.WARNING):
        for tries in range(7):
            mirrored.mirror({PLACE: tries}, {}, tries * 100_000)
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition("[")[2].partition("]")[0] for text in said] == [
        "GROUP_OFFSETS_REFUSED",
        "BROKER_UNREACHABLE",
        "AUTHORIZATION_FAILED",
    ]
    assert "name another group id" in said[0]
    assert mirrored.metrics() == {
        "committed": 0,
        "refused": 4,
        "failed": 3,
        "lastError": "group 'g' refuses offsets with UNKNOWN_MEMBER_ID",
    }


def test_the_pause_begins_when_a_slow_try_has_failed(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([10.0, 15.0, 20.0, 20.0])
    monkeypatch.setattr(offset_mirror.time, "monotonic", lambda: next(clock))
    commits.outcomes = [error("BROKER_UNREACHABLE", "no broker answered")]
    mirrored = new_mirror()
    calls = []
    for now_ms in (0, 5_999, 6_000):
        mirrored.mirror({PLACE: 1}, {}, now_ms)
        calls.append(len(commits.calls))
    assert calls == [1, 1, 2]
    assert mirrored.metrics()["committed"] == 1


class Marks:
    """Takes the place of the look at the group."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, str] | KeyrangeError = {}
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, cluster: Any, *asked: Any) -> dict[TopicPartition, tuple[int, str]]:
        self.asked.append(asked)
        if isinstance(self.found, KeyrangeError):
            raise self.found
        return {place: (0, mark) for place, mark in self.found.items()}


def test_another_that_commits_the_same_partitions_is_said_once(
    commits: Commits, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    marks = Marks()
    monkeypatch.setattr(offset_mirror, "committed_offsets", marks)
    cluster: Any = None
    mirrored = GroupMirror(cluster, "g", timeout_ms=250, mark=new_mark())
    with caplog.at_level(logging.WARNING):
        mirrored.mirror({PLACE: 1}, {}, 0)
        assert len(marks.asked) == 1, "nothing of this run stands there yet"
        marks.found = error("GROUP_COORDINATOR_UNAVAILABLE", "asked in vain")
        mirrored.mirror({PLACE: 2}, {}, 1)
        assert caplog.messages == []
        marks.found = {PLACE: "keyrange: process 7 on host h\n2, run 1"}
        for now_ms in (3, 60_001, 120_002):
            mirrored.mirror({PLACE: now_ms}, {}, now_ms)
    assert marks.asked == [("g", {PLACE: 1}, 250), *[("g", [PLACE], 250)] * 2]
    [said] = caplog.messages
    assert "[GROUP_OFFSETS_SHARED] the offset of t-0 in group 'g'" in said
    assert "committed since by process 7 on host h 2, run 1. To mend it: give each" in said
    assert mirrored.metrics() == {"committed": 5, "refused": 0, "failed": 0, "lastError": ""}
    assert {call[-1] for call in commits.calls} == {mirrored._mark}


@pytest.mark.parametrize(
    ("mark", "at", "is_told"),
    [("", 7, True), ("a tool", 7, True), ("", 1, False), ("keyrange: process 7, run 1", 7, False)],
)
def test_offsets_of_a_consumer_are_not_replaced_without_a_word(
    mark: str,
    at: int,
    is_told: bool,
    commits: Commits,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark's own source commits to no group, so the name may be that of a consumer's."""
    cluster: Any = None
    monkeypatch.setattr(offset_mirror, "committed_offsets", lambda *_: {PLACE: (at, mark)})
    for kept in (new_mark(), ""):
        mirrored = GroupMirror(cluster, "g", mark=kept)
        mirrored.mirror({PLACE: 1}, {}, 0)
        mirrored.mirror({PLACE: 2}, {}, 1)
    assert [call[1] for call in commits.calls] == [{PLACE: 1}, {PLACE: 2}] * 2
    said = [text for text in caplog.messages if "has offsets that no query has committed" in text]
    assert len(said) == is_told
    assert not said or "as 7 of t-0, and this query commits 1 in its place" in said[0]


def test_marks_are_of_one_run_each() -> None:
    assert new_mark() != new_mark()
    assert new_mark().startswith("keyrange: process ")
