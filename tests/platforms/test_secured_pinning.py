"""Pinned key ranges and individual commits of transactional topics, over connections that are
secured in every way, with sessions that end meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logins import for_spark
from pinned_cluster import Feeder, PinnedCluster, PinnedRun, pinned_cluster
from platforms.every_login import EveryLogin
from unseen import MARK

PARTITIONS = 2


@pytest.fixture(scope="module")
def cluster(every: EveryLogin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PinnedCluster]:
    home = tmp_path_factory.mktemp("pinned")
    events = home / "events"
    events.mkdir()
    confs = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    confs["spark.redaction.regex"] = r"(?i)secret|password|token|access[.]?key|jaas|sasl|ssl[.]key"
    with pinned_cluster(every.topics, home, confs=confs) as made:
        yield made


def restarted(cluster: PinnedCluster, run: PinnedRun) -> None:
    """kill -9 of the oldest executor; returns when another one is a member in its place."""
    before = cluster.executors()
    cluster.kill_executor(before[0])
    pids = {each.pid for each in before}
    run.wait(
        lambda: any(
            pid not in pids and status.state == "STABLE" for pid, status in run.members().items()
        )
    )
    cluster.has_executors(2)
    run.more_batches()


@pytest.mark.parametrize("way", ["GSSAPI", "OAUTHBEARER", "SCRAM-SHA-512", "SSL"])
def test_static_members(every: EveryLogin, cluster: PinnedCluster, way: str) -> None:
    """Tasks are bound to their executors, a restart moves nothing and begins no generation, and
    every record comes once; members and tasks log in over and over meanwhile."""
    topic = every.topics.create_topic("secured", PARTITIONS)
    secured = for_spark(every.options(way))
    with Feeder(every.topics, topic, PARTITIONS, per_second=100) as feeder:
        run = cluster.start(way, topic, memberNames="static", **secured)
        before = run.settle(2)
        generations = {each.name: each.generation for each in run.members().values()}
        restarted(cluster, run)
        assert run.settle(2) == before
        assert {each.name: each.generation for each in run.members().values()} == generations
        feeder.stop()
        read = {row.slot for rows in run.check(feeder.sent) for row in rows}
    cluster.do("stop", name=way)
    assert set(generations) <= read
    check_files(cluster.home)


def check_files(home: Path) -> None:
    """No secret is in a file that the job has left: logs, event logs, checkpoints, tables."""
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.parent.name == "events" or "events" in path.parts for path in files)
    assert not [str(path) for path in files if MARK.encode() in path.read_bytes()]
