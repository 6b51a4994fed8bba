"""The thread of a consumer's membership: what it waits for."""

from __future__ import annotations

import fcntl
import os
import resource
import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keyrange.consumer import member as module
from keyrange.consumer.member import GroupMembership, MemberThread
from keyrange.members.model.group_member import GroupMember, MemberSettings, nothing
from keyrange.members.model.group_member_states import GroupState

# The largest set that select() takes has so many.
SELECT_DESCRIPTORS = 1_024


@pytest.fixture
def high_descriptor() -> Iterator[tuple[int, int]]:
    """A pipe: where to read, with a number that a process with many files gets, and to write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SELECT_DESCRIPTORS + 16
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    low, write = os.pipe()
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, SELECT_DESCRIPTORS)
    yield high, write
    for each in (low, high, write):
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Cluster:
    def close(self) -> None: ...


def run_once(monkeypatch: pytest.MonkeyPatch, run: Callable[[MemberThread], None]) -> None:
    """Let a membership's thread do this, and end. Fails as that does."""
    failures: list[BaseException] = []

    def run_member(_: Any, __: Any, around: MemberThread) -> None:
        try:
            run(around)
        except BaseException as failure:
            failures.append(failure)

    monkeypatch.setattr(module, "run_member", run_member)
    cluster: Any = Cluster()
    settings = MemberSettings("g", None, 45_000, 3_000, 300_000, b"")
    MemberThread(settings, cluster, nothing)._thread.join(60)
    for each in failures:
        raise each


def test_a_poll_is_told_to_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would leave the group after max.poll.interval.ms."""
    now_ms = 1_000
    told: list[int] = []
    monkeypatch.setattr(MemberThread, "now_ms", lambda _: now_ms)
    monkeypatch.setattr(GroupMember, "progressed", lambda _, at_ms: told.append(at_ms))

    def run(around: MemberThread) -> None:
        nonlocal now_ms
        around.look(around._member)
        now_ms = 2_000
        around.look(around._member)
        around.polled()
        around.look(around._member)

    run_once(monkeypatch, run)
    assert told == [1_000, 1_000, 2_000]


def test_a_poll_wakes_a_member_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []

    def run(around: MemberThread) -> None:
        for state in (GroupState.STABLE, GroupState.IDLE_GIVEN_UP):
            around.wait(0)
            around._seen = GroupMembership(state)
            around.polled()
            ready, _, _ = select.select([around._wake_from], [], [], 0)
            woken.append(bool(ready))

    run_once(monkeypatch, run)
    assert woken == [False, True]


def test_a_process_with_many_files_stays_a_member(
    monkeypatch: pytest.MonkeyPatch, high_descriptor: tuple[int, int]
) -> None:
    answer_from, write = high_descriptor
    waited: list[bool] = []

    def run(_: Any, __: Any, around: MemberThread) -> None:
        waited.append(around.wait(1, answer_from))
        os.write(write, b"x")
        waited.append(around.wait(60_000, answer_from))

    monkeypatch.setattr(module, "run_member", run)
    cluster: Any = Cluster()
    settings = MemberSettings("g", None, 45_000, 3_000, 300_000, b"")
    thread = MemberThread(settings, cluster, nothing)
    thread._thread.join(60)

    assert thread.seen.failure == ""
    assert waited == [False, True]
