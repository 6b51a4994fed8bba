"""What happens to a pinned query's brokers, topics and table while it runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from brokers.real_broker import Topics, wait_until
from keyrange.embedded.broker import EmbeddedBroker, EmbeddedCluster
from keyrange.embedded.settings import BrokerSettings
from queries.pinning import Numbers, PinnedQuery, members_metrics, produce_until

# Longer than a broker needs for a restart on a busy machine.
LONG_SESSION = {"session.timeout.ms": "120000"}


def bound(query: StreamingQuery) -> Callable[[], bool]:
    """Whether batches are bound, by all members that there are."""

    def now() -> bool:
        found = members_metrics(query)
        own = found.get("ownPortions", 0)
        return own > 0 and found["foreignPortions"] + found["unownedPortions"] == 0

    return now


def survives(query: PinnedQuery, *faults: Callable[[], None]) -> None:
    """Batches go on behind each fault, bound, with assignment, member and generation as before."""
    seen = Numbers()
    with query.running(seen) as running:
        produce_until(query, bound(running), 300)
        before, member = query.assignment(), query.member()
        for fault in faults:
            fault()
            reached = running.lastProgress["batchId"] + 2  # type: ignore[index]
            is_bound = bound(running)
            produce_until(
                query,
                lambda q=running, n=reached, b=is_bound: q.lastProgress["batchId"] >= n and b(),
                180,
            )
        wait_until(lambda: len(seen.all) >= query.sent, 300)
        after = query.member()
        assert query.assignment() == before
    assert seen.all == list(range(query.sent))
    assert (after.name, after.pid, after.member_id) == (member.name, member.pid, member.member_id)
    assert (after.generation, after.joined) == (member.generation, member.joined)


@pytest.mark.slow  # test_members.py restarts the coordinator of a group
def test_restarts_of_the_broker_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        topics = Topics(broker)
        query = PinnedQuery(spark, topics, tmp_path, **LONG_SESSION)

        def fault() -> None:
            topics.close()
            broker.kill()
            broker.nodes[0].start()

        try:
            survives(query, fault)
        finally:
            query.end_member()
            topics.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_coordinator_that_moves_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Each of three brokers goes and comes back: among them the leaders and the coordinator."""
    with EmbeddedCluster(BrokerSettings(nodes=3)) as cluster:
        topics = Topics(cluster)
        query = PinnedQuery(spark, topics, tmp_path, replicas=3, **LONG_SESSION)

        def fault(number: int) -> None:
            cluster.nodes[(number - 1) % 3].start()
            cluster.nodes[number].kill()

        try:
            survives(query, *(lambda n=number: fault(n) for number in range(3)))
        finally:
            query.end_member()
            topics.close()


def test_partitions_that_are_added_are_assigned(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    query = PinnedQuery(spark, topics, tmp_path)
    seen = Numbers()
    with query.running(seen) as running:
        produce_until(query, bound(running))
        before = query.assignment()
        assert before is not None
        topics.add_partitions(query.topic, 4)
        query.partitions = 4

        def taken_in() -> bool:
            now = query.assignment()
            return (
                now is not None and len(now.owners) == 4 and members_metrics(running)["epoch"] > 1
            )

        produce_until(query, lambda: taken_in() and bound(running)())
        wait_until(lambda: len(seen.all) >= query.sent, 150)
        after = query.assignment()
        assert after is not None

    assert seen.all == list(range(query.sent))
    assert after.epoch == before.epoch + 1
    assert {p: after.owners[p] for p in before.owners} == before.owners


def fails(query: PinnedQuery, fault: Callable[[], None]) -> str:
    """What the query fails with after a fault."""
    with query.started(Numbers()) as running:
        produce_until(query, bound(running))
        fault()
        return failure_of(running)


def failure_of(running: StreamingQuery) -> str:
    wait_until(lambda: running.exception() is not None)
    return str(running.exception())


def test_a_table_that_was_deleted_ends_the_query_and_the_next_one_assigns_anew(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    query = PinnedQuery(spark, topics, tmp_path)

    message = fails(query, lambda: shutil.rmtree(query.table))

    assert "ASSIGNMENT_GONE" in message
    assert str(query.table) in message
    assert "start the query again" in message
    seen = Numbers()
    with query.running(seen) as running:
        produce_until(query, bound(running))
        assert members_metrics(running)["epoch"] == 1


def test_a_table_that_was_damaged_is_named(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """It is read when a query begins; nothing is taken from it, and another table will do."""
    query = PinnedQuery(spark, topics, tmp_path)
    with query.running(Numbers()) as running:
        produce_until(query, bound(running))
    for path in query.table.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-40])

    with query.started(Numbers()) as running:
        message = failure_of(running)

    assert "ASSIGNMENT_DAMAGED" in message
    assert "another memberTable" in message
    query.given["memberTable"] = str(tmp_path / "another")
    seen = Numbers()
    with query.running(seen) as running:
        produce_until(query, bound(running))
