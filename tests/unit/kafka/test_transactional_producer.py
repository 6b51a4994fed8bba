"""The edge that runs a sender: connections that break anywhere lose and double nothing.

Messages are the sender's own requests here, and a naive Kafka answers them.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError, UnavailableError, error
from keyrange.kafka.cluster_view import Broker
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages import transactions
from keyrange.kafka.model.sender_messages import Batch, FindCoordinator, Send, Token
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.kafka.retry_deadline import Deadline
from keyrange.kafka.transactional_producer import (
    TransactionalProducer,
)
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from simulation.senders import some_job
from simulation.transactions import NODES, Cluster

SETTINGS = SenderSettings("id", TopicPartition("t", 0), request_bytes=40, ahead_bytes=150)


class Link:
    """A connection to a broker of the naive Kafka."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world, self._node_id = world, node_id
        self._answers: deque[Any] = deque()
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def fileno(self) -> int:
        return -1

    def ask(self, message: Any, most: int | None = None) -> None:
        self._world.may_break(self)
        self._answers.append(self._world.answer(Send(message.request, self._node_id)))

    def answer(self, by: float | None = None) -> Any:
        self._world.may_break(self)
        return self._answers.popleft()

    def call(self, message: Any, most: int | None = None) -> Any:
        self.ask(message, most)
        return self.answer()


class World:
    """What a `keyrange.kafka.cluster.Cluster` is to the edge."""

    def __init__(self, kafka: Cluster, random: Random, trouble: float) -> None:
        self.settings = ClientSettings(retry_backoff_ms=0, retry_backoff_max_ms=0)
        self.kafka, self.random, self.trouble = kafka, random, trouble
        self.refuses: KeyrangeError | None = None
        self._links: dict[tuple[int, bool], Link] = {}

    def has_answered(self) -> None:
        pass

    def brokers(self, timeout_ms: float) -> dict[int, Broker]:
        return {node_id: Broker(node_id, "broker", node_id) for node_id in range(NODES)}

    def features(self) -> dict[str, int]:
        return {"transaction.version": 2 if self.kafka.bumps_epochs else 1}

    def deadline(self, timeout_ms: float) -> Deadline:
        return Deadline(timeout_ms, self.settings)

    def connection(self, host: str, port: int, ahead: bool = False) -> Link:
        if self.refuses is not None:
            raise self.refuses
        link = self._links.get((port, ahead))
        if link is None or not link.is_open:
            link = self._links[port, ahead] = Link(self, port)
        return link

    def call_any_broker(self, message: Any, by: Deadline) -> Any:
        found = self.answer(Send(message.request))
        if isinstance(message.request, FindCoordinator):
            node_id = found.node_id
            return SimpleNamespace(error_code=0, node_id=node_id, host="broker", port=node_id)
        return found

    def may_break(self, link: Link) -> None:
        if not link.is_open or self.random.random() < self.trouble:
            link.close()
            raise ConnectionLost("cut")

    def answer(self, send: Send) -> Any:
        self.kafka.now_ms += 1
        self.kafka.work()
        if self.random.random() < self.trouble:
            self.kafka.move(self.random)
        return self.kafka.answer(send)


@pytest.fixture(autouse=True)
def plain_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def message(request: Any, *_: Any) -> Any:
        return SimpleNamespace(request=request, name=type(request).__name__)

    whole = transactions.read

    def read(request: Any, answer: Any) -> Any:
        return whole(request, answer) if isinstance(request, FindCoordinator) else answer

    monkeypatch.setattr(transactions, "message", message)
    monkeypatch.setattr(transactions, "read", read)
    monkeypatch.setattr(TransactionalProducer, "_leaders", lambda _, request, said: said)


def batches(rows: dict[TopicPartition, list[list[str]]]) -> list[Batch]:
    return [
        Batch(place, len(batch), 10 * len(batch), batch)
        for place, several in rows.items()
        for batch in several
    ]


def producer_of(world: World) -> TransactionalProducer:
    return TransactionalProducer(world, SETTINGS)  # type: ignore[arg-type]


@pytest.mark.parametrize("bumps_epochs", [False, True], ids=["v1", "v2"])
@given(seed=st.integers(0, 2**32))
def test_each_row_is_committed_once_in_order(bumps_epochs: bool, seed: int) -> None:
    random = Random(seed)
    job = some_job(random, random.randint(1, 4))
    trouble = random.choice((0.0, 0.02, 0.1))
    kafka = Cluster(bumps_epochs, 10**6, random if trouble else None)
    last = -1
    while last < len(job) - 1:
        producer = producer_of(World(kafka, random, trouble))
        token = producer.start()
        last = token.number if token else -1
        while last < len(job) - 1 and not producer.is_over:
            with suppress(UnavailableError):
                producer.send(batches(job[last + 1]), Token(last + 1))
                last += 1
    kafka.work()
    for place in {place for rows in job for place in rows}:
        expected = [row for rows in job for batch in rows.get(place, []) for row in batch]
        assert kafka.logs[place].committed() == expected
        assert not kafka.logs[place].hangs


def started(kafka: Cluster) -> tuple[World, TransactionalProducer]:
    world = World(kafka, Random(1), 0.0)
    producer = producer_of(world)
    producer.start()
    return world, producer


def test_what_cannot_be_mended_ends_the_sender() -> None:
    world, producer = started(Cluster(False, 10**6, None))
    world.refuses = error("SASL_AUTHENTICATION_FAILED", "the password has changed")
    for _ in range(2):
        with pytest.raises(KeyrangeError, match="SASL_AUTHENTICATION_FAILED"):
            producer.send(batches({TopicPartition("t", 0): [["a"]]}), Token(0))
        assert producer.is_over


def test_batches_that_cannot_be_had_abort_what_was_sent() -> None:
    kafka = Cluster(False, 10**6, None)
    _, producer = started(kafka)

    def broken() -> Any:
        yield from batches({TopicPartition("t", 0): [["a"] * 20, ["b"]]})
        raise ValueError("the file is gone")

    with pytest.raises(ValueError, match="the file is gone"):
        producer.send(broken(), Token(0))
    producer.send(batches({TopicPartition("t", 0): [["c"]]}), Token(0))
    kafka.work()
    assert kafka.logs[TopicPartition("t", 0)].committed() == ["c"]
    assert kafka.token == Token(0)
