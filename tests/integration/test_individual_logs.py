"""What becomes of the log below queries that commit individually while records of it are not done:
nothing is lost in silence, nothing is done twice, and no pending record stays open for ever."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics, wait_until
from keyrange.errors import KeyrangeError
from queries.individual import SOON, Job, Journal, values

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

DRAIN = {"availableNow.redelivery": "drain"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def assert_all_done(query: Job) -> None:
    states = query.known().states.values()
    assert all(state.committed == state.position and not state.pending for state in states)


def test_a_hole_whose_record_is_compacted_away_closes(
    spark: SparkSession, topics: Topics, tmp_path: Path, journal: Journal
) -> None:
    topic = topics.create_topic("compacted", configs=COMPACTED)
    query = Job(spark, topics, topic, tmp_path, into=True, **SOON, maxDeliveries="99")
    good = [Record(b"%d" % n, key=b"k%d" % n) for n in range(20)]
    bad = [Record(b"!%d" % n, key=b"bad") for n in range(20, 23)]
    topics.produce(topic, [*good[:10], *bad, *good[10:]])
    query.run(journal.work)
    [state] = query.known().states.values()
    assert state.pending
    delivered = len(journal.failures)
    topics.produce(topic, [Record(b"23", key=b"bad")])
    numbers = count(24)

    def is_compacted() -> bool:
        # What is appended to is not cleaned.
        n = next(numbers)
        topics.produce(topic, [Record(b"%d" % n, key=b"k%d" % n)])
        return not any(value and value.startswith(b"!") for value in topics.values(topic))

    wait_until(is_compacted)
    query.run(journal.work, **DRAIN)
    assert query.numbers() == [*range(20), *range(23, next(numbers))]
    assert len(journal.failures) == delivered
    assert_all_done(query)


def test_records_are_deleted_beyond_the_committed_offset(
    spark: SparkSession, topics: Topics, tmp_path: Path, journal: Journal
) -> None:
    """Of two pending records one is gone."""
    topic = topics.create_topic("cut", 2)
    query = Job(spark, topics, topic, tmp_path, into=True, **SOON, maxDeliveries="99")
    # Offsets 3 and 20 of partition 0.
    topics.produce(topic, values(range(60), failing=[6, 40]))
    query.run(journal.work)
    before = query.known()
    assert sorted(state.committed for state in before.states.values()) == [3, 30]
    topics.delete_records(topic, {0: 10})
    with pytest.raises(KeyrangeError, match="KAFKA_DATA_LOSS"):
        query.run(journal.work, **DRAIN)
    assert query.known().states == before.states
    journal.gate.touch()
    topics.produce(topic, values(range(60, 70)))
    query.run(journal.work, failOnDataLoss="false", **DRAIN)
    # The key of number 6 had to wait for it, and what came of it has not been deleted.
    assert query.numbers() == sorted({*range(70)} - {6})
    assert_all_done(query)


def test_a_topic_is_made_anew_while_there_are_pending_records(
    spark: SparkSession, topics: Topics, tmp_path: Path, journal: Journal
) -> None:
    """At the offsets of the pending records there are other records by then."""
    topic = topics.create_topic("anew", 2)
    query = Job(spark, topics, topic, tmp_path, into=True, **SOON, maxDeliveries="99")
    topics.produce(topic, values(range(40), failing=[6, 7]))
    query.run(journal.work)
    before = query.known()
    done = query.numbers()
    topics.delete_topic(topic)
    topics.create_named(topic, 2)
    topics.produce(topic, values(range(100, 120)))
    with pytest.raises(KeyrangeError, match="TOPIC_RECREATED"):
        query.run(journal.work, **DRAIN)
    assert query.known().states == before.states
    query.run(journal.work, failOnDataLoss="false", **DRAIN)
    assert query.numbers() == [*done, *range(100, 120)]
    assert_all_done(query)
    topics.produce(topic, values(range(120, 130)))
    query.run(journal.work, **DRAIN)
    assert query.numbers() == [*done, *range(100, 130)]


@pytest.mark.parametrize(
    "level", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.slow)]
)
def test_transactions_end_inside_of_ranges(
    spark: SparkSession, topics: Topics, tmp_path: Path, journal: Journal, level: str
) -> None:
    """Their markers take offsets, also the one in front of a pending record, behind one, and the
    last."""
    topic = topics.create_topic("marked", 2)
    given = {"splitBy": "keyRange", "keyRangesPerPartition": "3", "kafka.isolation.level": level}
    query = Job(spark, topics, topic, tmp_path, into=True, **SOON, maxDeliveries="99", **given)
    aborted: list[int] = []
    for at in range(0, 80, 20):
        numbers = range(at, at + 20)
        records = values(numbers, failing=[at, at + 1, at + 18, at + 19])
        commit = at % 40 == 0
        aborted += [] if commit else numbers
        topics.produce_transaction(topic, records, commit)
    query.run(journal.work)
    assert journal.failures
    topics.produce_transaction(topic, values(range(80, 90), failing=[89]))
    journal.gate.touch()
    query.run(journal.work, **DRAIN)
    assert query.numbers() == sorted(
        {*range(90)} - {*(aborted if level == "read_committed" else ())}
    )
    journal.check_each_done_once_and_in_order()
    assert_all_done(query)
