"""Pinned key ranges with executors in processes of their own, which are killed, come back, and
become more and fewer."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from brokers.real_broker import Topics
from faults.key_feeder import Feeder
from keyrange.members.model.assignment import Assignment
from queries.pinned_checks import restart_oldest
from queries.pinned_cluster import BRIEF, PinnedCluster, PinnedRun, pinned_cluster, share_moved

PARTITIONS = 3


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create_topic("restarted", PARTITIONS)


def roll(cluster: PinnedCluster, run: PinnedRun, rounds: int = 1) -> None:
    """Restart every executor in its turn, the one first that was not restarted for the longest."""
    for _ in range(rounds * len(cluster.executors())):
        restart_oldest(cluster, run)


def generations(run: PinnedRun) -> dict[str, int]:
    return {each.name: each.generation for each in run.members().values()}


def roll_with_static_names(topics: Topics, home: Path, topic: str, rounds: int) -> None:
    """Nothing moves, the group has no new generation, and every record comes once, in its order."""
    with pinned_cluster(topics, home) as cluster:
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("static", topic, memberNames="static")
            before = run.settle(2)
            held, ids = generations(run), [each.pid for each in cluster.executors()]
            count = len(run.epochs())

            roll(cluster, run, rounds)
            assert run.settle(2) == before
            assert len(run.epochs()) == count
            assert generations(run) == held
            assert not set(ids) & {each.pid for each in cluster.executors()}
            run.more_batches()
        read = {row.slot for rows in run.check(feeder.sent) for row in rows}
    assert set(held) <= read


# What is killed in test_pinned_state has its ranges again too, or its state would be restored.
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_rolling_restart_moves_nothing(topics: Topics, tmp_path: Path, topic: str) -> None:
    roll_with_static_names(topics, tmp_path, topic, rounds=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_rolling_restarts_move_nothing(topics: Topics, tmp_path: Path, topic: str) -> None:
    roll_with_static_names(topics, tmp_path, topic, rounds=20)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_dynamic_names_each_restart_moves_ranges(
    topics: Topics, tmp_path: Path, topic: str
) -> None:
    """Beside static names: every executor's end moves what it had, and every beginning too. The
    records come once and in order all the same."""
    with pinned_cluster(topics, tmp_path) as cluster:
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("dynamic", topic, memberNames="dynamic")
            before = run.settle(2)
            roll(cluster, run)
            after = run.settle(2)
        run.check(feeder.sent)

    assert after.epoch >= before.epoch + 2
    assert share_moved(before, after) == 1
    assert not set(after.slots) & set(before.slots)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_more_and_fewer_executors_move_ranges_once_each(
    topics: Topics, tmp_path: Path, topic: str
) -> None:
    """2 to 3 to 2: a new one draws its third; one that does not come back loses what it had after
    registration.timeout.ms, and meanwhile others read that."""
    with pinned_cluster(topics, tmp_path, "local-cluster[3,1,640]") as cluster:
        cluster.has_executors(3)
        cluster.to_two(cluster.executors()[2])
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("scaled", topic, memberNames="static", **BRIEF)
            two = run.settle(2)
            cluster.do("executors", count=3)
            three = run.settle(3)
            drew_its_share(two, three)

            lost = cluster.executors()[0]
            name = run.members()[lost.pid].name
            cluster.to_two(lost)
            first = run.status()["batch"]
            run.wait(lambda: states(run).get(name) == "ABSENT")
            again = run.settle(2)
            assert run.status()["batch"] > first
        run.check(feeder.sent)
        history = list(run.table().history())

    assert again.epoch == three.epoch + 1
    gone = sum(each.span.size for owned in three.owners.values() for each in owned
               if each.slot == name)  # fmt: skip
    assert share_moved(three, again) == pytest.approx(gone / (PARTITIONS * 2**63))
    away = next(
        member.since_ms
        for row in history
        for member in row.members
        if (row.epoch, member.name, member.state) == (three.epoch, name, "ABSENT")
    )
    taken = next(row for row in history if row.epoch == again.epoch)
    assert taken.reason == f"lost: {name}"
    assert taken.at_ms - away >= int(BRIEF["registration.timeout.ms"])


def drew_its_share(before: Assignment, after: Assignment) -> None:
    """One reassignment for one new slot, that took a third at the most; nobody else got any.

    Shares are by the bytes that were read until then: nearly, and not quite, those of the space.
    """
    assert after.epoch == before.epoch + 1
    [new] = set(after.slots) - set(before.slots)
    assert 0 < share_moved(before, after) <= 1 / 3 + 0.02
    for partition, owned in after.owners.items():
        for each in owned:
            if each.slot != new:
                assert before.owner_of(partition, each.span.from_hash) == each.slot


def states(run: PinnedRun) -> dict[str, str]:
    stored = run.table().last()
    return {each.name: each.state for each in stored.members} if stored is not None else {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_stage_that_is_run_again_reads_the_same(
    topics: Topics, tmp_path: Path, topic: str
) -> None:
    """An executor that is lost behind a shuffle takes what its bound tasks have written."""
    with pinned_cluster(topics, tmp_path) as cluster:
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("shuffled", topic, pause_s=0.3, shuffle=True)
            run.settle(2)
            for mark in (run.home / "marks").glob("*"):
                mark.unlink()
            run.wait(lambda: any((run.home / "marks").iterdir()))
            mark = next((run.home / "marks").iterdir())
            victim = psutil.Process(int(mark.name.partition("-")[0]))
            cluster.kill_executor(victim)
            run.more_batches(3)
        run.check(feeder.sent, in_order=False)

    assert re.search(r"in stage \d+\.[1-9]", cluster.text()), "no stage was run again"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_driver_that_was_killed_goes_on_with_the_assignment(
    topics: Topics, tmp_path: Path, topic: str
) -> None:
    with Feeder(topics, topic, PARTITIONS) as feeder:
        with pinned_cluster(topics, tmp_path) as cluster:
            run = cluster.start("killed", topic, memberNames="static")
            before = run.settle(2)
            run.more_batches()
        with pinned_cluster(topics, tmp_path) as cluster:
            run = cluster.start("killed", topic, memberNames="static")
            assert run.settle(2) == before
            run.more_batches()
            feeder.stop()
            run.check(feeder.sent)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_one_name_for_two_executors_fails_the_query(
    topics: Topics, tmp_path: Path, topic: str
) -> None:
    confs = {"spark.task.maxFailures": "2"}
    with (
        pinned_cluster(topics, tmp_path, confs=confs) as cluster,
        Feeder(topics, topic, PARTITIONS),
    ):
        run = cluster.start("doubled", topic, **{"member.name": "the-same"})
        failure = run.failure()

    assert "DUPLICATE_STATIC_MEMBER" in failure
    assert "FENCED_INSTANCE_ID" in failure


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_static_names_and_dynamic_allocation_are_refused(
    topics: Topics, tmp_path: Path, topic: str
) -> None:
    """Where names are not asked to be static they are made up, though the host has a slot."""
    confs = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "1",
        "spark.executor.cores": "1",
        "spark.task.maxFailures": "1",
    }
    with (
        pinned_cluster(topics, tmp_path, "local-cluster[1,1,640]", confs) as cluster,
        Feeder(topics, topic, PARTITIONS),
    ):
        failure = cluster.start("refused", topic, memberNames="static").failure()
        run = cluster.start("made-up", topic, memberNames="auto")
        run.settle(1)
        [member] = run.members().values()

    assert "DYNAMIC_ALLOCATION" in failure
    assert "spark.dynamicAllocation.enabled=false, or memberNames=dynamic" in failure
    assert (member.is_static, member.source) == (False, "dynamic")
