"""The thread of a consumer's membership: what it waits for."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from keyrange.consumer import member as module
from keyrange.consumer.member import MemberThread
from keyrange.members.model.group_member import MemberSettings, nothing

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
