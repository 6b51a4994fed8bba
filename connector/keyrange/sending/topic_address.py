"""A topic that rows are written to, as tasks that make its records and senders know it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.producer_properties import ProducerSettings
from keyrange.wire.topic_limits import BatchSettings, TopicLimits


@dataclass(frozen=True, slots=True)
class TopicAddress:
    """A topic, "" where the rows name theirs; beside which topic marks are kept; how it is reached,
    and how records are made. `message_bytes` as of `TopicLimits`. `topic_id`: the topic's, or that
    of the one beside which marks are kept where rows name theirs; "" of brokers before 2.8."""

    topic: str
    mark_topic: str
    client: ClientSettings
    producer: ProducerSettings
    message_bytes: int = 0
    topic_id: str = ""

    @property
    def batches(self) -> BatchSettings:
        """How records are put into batches: none but that of one record exceeds what is taken."""
        own = self.producer
        most = min(own.batch_bytes, own.request_bytes, self.message_bytes or own.batch_bytes)
        return BatchSettings(most, own.request_bytes, own.compression, own.compression_level)

    def limits(self, takes: TopicLimits, partitions: int) -> TopicLimits:
        """What the topic takes, which has so many partitions; 0 for what is not known."""
        most = replace(self, message_bytes=takes.message_bytes)
        return replace(takes, batches=most.batches, partitions=partitions)
