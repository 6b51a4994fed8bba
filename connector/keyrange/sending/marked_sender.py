"""Transactions that leave marks: whoever begins next under their id learns by the last mark what is
out."""

from __future__ import annotations

from collections.abc import Iterable

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.kafka.transactional_producer import TransactionalProducer
from keyrange.model.offsets import TopicPartition
from keyrange.sending.topic_address import TopicAddress


class MarkedSender:
    """Transactions one after the other under the id `identity`, which is the name of the group too
    that keeps the marks, over a connection of their own. Not for several threads. Whoever has begun
    last counts: the others are fenced."""

    def __init__(self, address: TopicAddress, identity: str) -> None:
        self._address, self._id = address, identity
        self._cluster: Cluster | None = None
        self._producer: TransactionalProducer | None = None

    @property
    def is_started(self) -> bool:
        """Whether the last call has told what is out."""
        return self._producer is not None

    def close(self) -> None:
        self._producer = None
        if self._cluster is not None:
            self._cluster.close()

    def start(self) -> Token | None:
        """Fence whoever sent before, and learn the last mark; None where Kafka knows of none.
        Raises as `TransactionalProducer`."""
        own = self._address.producer
        settings = SenderSettings(
            self._id,
            TopicPartition(self._address.mark_topic, 0),
            transaction_timeout_ms=own.transaction_timeout_ms,
            delivery_timeout_ms=own.delivery_timeout_ms,
            request_bytes=own.request_bytes,
            ahead_bytes=own.ahead_bytes,
        )
        # Answers to what a sender before had in flight must not be taken for those to this one.
        self.close()
        self._cluster = Cluster(self._address.client)
        producer = TransactionalProducer(self._cluster, settings)
        token = producer.start()
        self._producer = producer
        return token

    def send(self, batches: Iterable[Batch], mark: Token) -> None:
        """All of the batches and the mark, or nothing of it. After an error nobody knows which:
        whoever goes on has to `start`. Raises as `TransactionalProducer`."""
        assert self._producer is not None, "start was not called"
        producer, self._producer = self._producer, None
        producer.send(batches, mark)
        self._producer = producer
