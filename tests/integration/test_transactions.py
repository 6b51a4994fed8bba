"""Transactions to a real broker: each row once with read_committed, wherever a sender is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from brokers.committed_records import (
    client_settings,
    committed_records,
    wait_until_all_are_over,
)
from brokers.real_broker import NEEDS_TRANSACTIONS, Topics, kafka_is_before
from faults import killed_sender
from faults.killed_sender import KEYS, batches, rows_of
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.connection import Connection
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.kafka.transactional_producer import (
    TransactionalProducer,
)
from keyrange.wire.topic_limits import BatchSettings

pytestmark = [
    pytest.mark.broker,
    NEEDS_TRANSACTIONS,
]

BOTH = pytest.mark.parametrize("bumps_epochs", [False, True], ids=["v1", "v2"])


@pytest.fixture
def cluster(topics: Topics) -> Iterator[Cluster]:
    made = Cluster(client_settings(topics))
    yield made
    made.close()


def producer_of(cluster: Cluster, topic: str, bumps_epochs: bool = True) -> TransactionalProducer:
    """With `bumps_epochs` false as on brokers before 4.0; they know nothing else."""
    if not bumps_epochs:
        cluster.features = dict  # type: ignore[method-assign, assignment]
    return TransactionalProducer(cluster, killed_sender.transaction_settings(topic))


def check(topics: Topics, topic: str, partitions: int, transactions: int, rows: int) -> None:
    """Each row once, those of a key in order, and nothing that hangs."""
    wait_until_all_are_over(topics, topic)
    by_key: dict[bytes, list[bytes]] = {}
    for partition in committed_records(topics, topic, partitions):
        for each in partition:
            by_key.setdefault(each.key, []).append(each.value)
    expected: dict[bytes, list[bytes]] = {}
    for number in range(transactions):
        for row in range(rows):
            expected.setdefault(f"key-{row % KEYS}".encode(), []).append(f"{number}:{row}".encode())
    assert by_key == expected


class Killed(BaseException):
    """The process is gone; its connections are closed by nobody but the kernel."""


class Killer:
    """Ends the sender at the n-th step of the network: before or behind a request or an answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for name in ("send", "receive"):
            self._wrap(monkeypatch, name, getattr(Connection, name))

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str, call: Any) -> None:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._step()
            done = call(*arguments, **options)
            self._step()
            return done

        monkeypatch.setattr(Connection, name, counted)

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@BOTH
def test_rows_are_there_once_however_often_the_sender_is_killed_between_two_steps(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, bumps_epochs: bool
) -> None:
    """The n-th sender is killed at its n-th step, until all of 100,000 rows are committed."""
    transactions, rows, partitions = 50, 2_000, 3
    topic = topics.create_topic("killed", partitions)
    killer = Killer(monkeypatch)
    made = [batches(topic, rows_of(number, rows), partitions) for number in range(transactions)]
    kills, last = 0, None
    while last is None or last.number < transactions - 1:
        cluster = Cluster(client_settings(topics))
        killer.left = kills + 1
        try:
            producer = producer_of(cluster, topic, bumps_epochs)
            last = producer.start()
            for number in range(last.number + 1 if last else 0, transactions):
                last = Token(number, f"batch {number}")
                producer.send(made[number], last)
        except Killed:
            kills, last = kills + 1, None
        finally:
            cluster.close()
    killer.left = 0
    assert kills > 60
    check(topics, topic, partitions, transactions, rows)


def test_brokers_tell_which_transactions_they_have(cluster: Cluster) -> None:
    cluster.brokers(30_000)
    level = cluster.features().get("transaction.version", 0)
    assert level >= 2 or kafka_is_before(4)


def test_rows_are_there_once_when_the_process_is_killed(topics: Topics) -> None:
    """SIGKILL at any time, and then without; the children agree by Kafka alone."""
    random, transactions, rows = Random(1), 40, 500
    topic = topics.create_topic("sigkill", 3)
    servers = topics.cluster.bootstrap_servers_of("PLAINTEXT")
    command = [sys.executable, "-P", killed_sender.__file__, servers, topic]
    command += [str(transactions), str(rows)]
    finished = None
    for kill in range(7):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        # When it begins to send; importing takes it longer than all that.
        child.stdout.readline()
        try:
            finished = child.wait(None if kill == 6 else random.uniform(0, 0.6))
            break
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        finally:
            child.stdout.close()
    assert finished == 0
    check(topics, topic, 3, transactions, rows)


@BOTH
def test_a_sender_is_fenced_by_the_next_one(
    topics: Topics, cluster: Cluster, bumps_epochs: bool
) -> None:
    topic = topics.create_topic("fenced", 2)
    first = producer_of(cluster, topic, bumps_epochs)
    assert first.start() is None
    first.send(batches(topic, rows_of(0, 100), 2), Token(0, "zero"))
    other = Cluster(client_settings(topics))
    try:
        second = producer_of(other, topic, bumps_epochs)
        assert second.start() == Token(0, "zero")
        with pytest.raises(KeyrangeError, match="PRODUCER_FENCED"):
            first.send(batches(topic, rows_of(1, 100), 2), Token(1))
        assert first.is_over
        second.send(batches(topic, rows_of(1, 100), 2), Token(1))
    finally:
        other.close()
    check(topics, topic, 2, 2, 100)


@BOTH
def test_a_batch_that_the_topic_finds_too_large_is_named_and_the_next_transaction_follows(
    topics: Topics, cluster: Cluster, bumps_epochs: bool
) -> None:
    topic = topics.create_topic("large", 1, {"max.message.bytes": "2000"})
    producer = producer_of(cluster, topic, bumps_epochs)
    producer.start()
    small = BatchSettings(batch_bytes=1_500)
    with pytest.raises(KeyrangeError, match="MESSAGE_TOO_LARGE"):
        producer.send(batches(topic, rows_of(0, 300), 1), Token(0))
    failure = producer.failure
    assert failure is not None
    assert failure.batch is not None
    assert failure.batch.records > 100
    assert not producer.is_over
    for number in range(2):
        producer.send(batches(topic, rows_of(number, 300), 1, small), Token(number))
    check(topics, topic, 1, 2, 300)


def test_batches_that_cannot_be_had_abort_the_transaction(topics: Topics, cluster: Cluster) -> None:
    topic = topics.create_topic("broken", 1)
    producer = producer_of(cluster, topic)
    producer.start()

    def broken() -> Iterator[Batch]:
        yield from batches(topic, rows_of(7, 300), 1)
        raise ValueError("the file is gone")

    with pytest.raises(ValueError, match="the file is gone"):
        producer.send(broken(), Token(0))
    producer.send(batches(topic, rows_of(0, 300), 1), Token(0))
    check(topics, topic, 1, 1, 300)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_broker_takes_every_codec(topics: Topics, cluster: Cluster, compression: str) -> None:
    topic = topics.create_topic(f"codec-{compression}", 2)
    producer = producer_of(cluster, topic)
    producer.start()
    settings = replace(BatchSettings(), compression=compression)
    producer.send(batches(topic, rows_of(0, 5_000), 2, settings), Token(0))
    check(topics, topic, 2, 1, 5_000)
