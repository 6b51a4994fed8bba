"""An executor that stands still while its ranges move to another, and then goes on as before.

Batches wait for a task that stands still, unless it is run a second time: that takes speculation,
and another host.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from brokers.real_broker import Topics
from faults.key_feeder import Feeder
from keyrange.members.executor_names import NameSettings
from keyrange.members.status import MemberSetup
from queries.executors import Start
from queries.pinned_cluster import PinnedRun, pinned_cluster
from spark.standalone import SPECULATION, standalone_cluster

PARTITIONS = 3
SESSION_MS = 10_000
MOVING = {
    "memberNames": "static",
    "session.timeout.ms": str(SESSION_MS),
    "registration.timeout.ms": "5000",
    "expansion.timeout.ms": "1000",
}


@contextmanager
def paused(run: PinnedRun, executor: psutil.Process) -> Iterator[None]:
    """An executor with its workers and its member, stopped."""
    pids = [executor.pid, *(each.pid for each in executor.children(recursive=True))]
    pids.append(run.members()[executor.pid].pid)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def owners(run: PinnedRun) -> list[str]:
    assignment = run.assignment()
    assert assignment is not None
    return assignment.slots


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_who_comes_back_late_changes_nothing(topics: Topics, tmp_path: Path) -> None:
    """Its ranges were read by another, its late tasks are given what that one was given, and count
    for nothing; it is a member again when it has joined anew."""
    topic = topics.create_topic("paused", PARTITIONS)
    with (
        standalone_cluster(tmp_path) as spark,
        pinned_cluster(topics, tmp_path, spark.master, SPECULATION, spark.worker_pids) as cluster,
    ):
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("paused", topic, pause_s=0.2, **MOVING)
            before = run.settle(2)
            victim = cluster.executors()[0]
            name = run.members()[victim.pid].name
            with paused(run, victim):
                since = time.monotonic()
                run.wait(lambda: name not in owners(run))
                run.wait(lambda: time.monotonic() - since > 2 * SESSION_MS / 1000)
                moved = run.assignment()
                run.more_batches()
            after = run.settle(2)
            run.more_batches()
        batches = run.check(feeder.sent)

    assert moved is not None
    assert moved.epoch == before.epoch + 1
    assert (after.epoch, after.slots) == (before.epoch + 2, before.slots)
    assert name in {row.slot for rows in batches for row in rows}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_who_comes_back_to_a_name_that_was_taken_reads_nothing(
    topics: Topics, tmp_path: Path, executor: Start
) -> None:
    topic = topics.create_topic("taken", PARTITIONS)
    confs = {**SPECULATION, "spark.task.maxFailures": "3"}
    with (
        standalone_cluster(tmp_path) as spark,
        pinned_cluster(topics, tmp_path, spark.master, confs, spark.worker_pids) as cluster,
        Feeder(topics, topic, PARTITIONS),
    ):
        run = cluster.start("taken", topic, pause_s=0.2, **MOVING)
        run.settle(2)
        victim = cluster.executors()[0]
        name = run.members()[victim.pid].name
        setup = MemberSetup(
            NameSettings(topic, "static", name),
            f"{topic}.members",
            {"bootstrap.servers": topics.cluster.bootstrap_servers},
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
        )
        with paused(run, victim):
            run.wait(lambda: name not in owners(run))
            other = executor()
            other.start(setup)
            other.until(setup, "STABLE")
        failure = run.failure()
        numbers = [row.n for rows in run.batches() for row in rows]

    assert "DUPLICATE_STATIC_MEMBER" in failure
    assert f"is not {name} any more" in failure
    assert len(numbers) == len(set(numbers))
