"""Pinned key ranges and individual commits of transactional topics, over connections that are
secured in every way, with sessions that end meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers.logins import for_spark
from brokers.real_broker import Record
from faults.key_feeder import KEYS, Feeder
from platforms.every_login import EveryLogin
from platforms.kdc import repeated
from project.unseen import MARK
from queries.pinned_checks import check_counts, restart_oldest
from queries.pinned_cluster import PinnedCluster, pinned_cluster

PARTITIONS = 2
DEFAULTS = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"


@pytest.fixture(scope="module")
def cluster(every: EveryLogin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PinnedCluster]:
    home = tmp_path_factory.mktemp("pinned")
    events = home / "events"
    events.mkdir()
    confs = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    name = "spark.redaction.regex"
    [given] = [line for line in DEFAULTS.read_text().splitlines() if line.startswith(name)]
    confs[name] = given.split()[1]
    with pinned_cluster(every.topics, home, confs=confs) as made:
        yield made


@pytest.mark.parametrize("way", ["GSSAPI", "OAUTHBEARER", "SCRAM-SHA-512", "SSL"])
def test_static_members(every: EveryLogin, cluster: PinnedCluster, way: str) -> None:
    """Tasks are bound to their executors, a restart moves nothing and begins no generation, and
    every record comes once; members and tasks log in over and over meanwhile."""
    topic = every.topics.create_topic("secured", PARTITIONS)
    secured, granted = for_spark(every.options(way)), every.granted(way)
    with Feeder(every.topics, topic, PARTITIONS, per_second=100) as feeder:
        run = cluster.start(way, topic, memberNames="static", **secured)
        before = run.settle(2)
        generations = {each.name: each.generation for each in run.members().values()}
        restart_oldest(cluster, run)
        assert run.settle(2) == before
        assert {each.name: each.generation for each in run.members().values()} == generations
        feeder.stop()
        read = {row.slot for rows in run.check(feeder.sent) for row in rows}
    cluster.do("stop", name=way)
    assert set(generations) <= read
    # Of the driver, two executors and the one that came, and their members, each again and again.
    assert every.granted(way) - granted >= (14 if way in ("GSSAPI", "OAUTHBEARER") else 0)
    check_files(cluster.home)


def test_a_job_on_transactions(every: EveryLogin, cluster: PinnedCluster) -> None:
    """read_committed, pinned key ranges, individual commits and state in one stream: each record of
    a transaction that was committed is in the table once, each key counted from one on in its
    order, and no record of another one."""
    topic = every.topics.create_topic("transactional", PARTITIONS)
    secured = for_spark(every.options("SCRAM-SHA-512") | {"isolation.level": "read_committed"})
    placed: list[tuple[int, int]] = []

    def write(transactions: int) -> None:
        for number in range(transactions):
            records = [
                Record(b"%d" % n, b"key-%d" % (n % KEYS), n % KEYS % PARTITIONS) for n in range(100)
            ]
            commit = number % 3 != 2
            done = every.topics.produce_transaction(topic, records, commit)
            placed.extend(done if commit else [])

    write(3)
    run = cluster.start_counting("transactions", topic, memberNames="static", **secured)
    with repeated(lambda: write(3), 0.5):
        before = run.settle(2)
        restart_oldest(cluster, run)
        assert run.settle(2) == before
    table = run.home / "table"
    run.wait(lambda: DeltaTable(table).to_pyarrow_dataset().count_rows() >= len(placed))
    cluster.do("stop", name="transactions")
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == sorted(placed)
    assert len({row["key"] for row in rows}) == KEYS
    check_counts(rows)
    check_files(cluster.home)


def check_files(home: Path) -> None:
    """No secret is in a file that the job has left: logs, event logs, checkpoints, tables."""
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.parent.name == "events" or "events" in path.parts for path in files)
    assert not [str(path) for path in files if MARK.encode() in path.read_bytes()]
