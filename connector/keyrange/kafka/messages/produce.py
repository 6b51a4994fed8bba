"""What a producer makes of records, by kafka-python: partitions, batches, the message of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.partitioner.default import murmur2
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

_MAGIC: Final = 2


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's producer sends a record with this key to: murmur2 of the key, its
    sign bit cleared, modulo the number of partitions.

    Producers of other languages may have another default, and any may name the partition itself.
    """
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """A record without a key, alone in a record batch of format v2."""
    builder = DefaultRecordBatchBuilder(
        _MAGIC,
        0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    builder.append(0, timestamp_ms, None, value, [])
    return bytes(builder.build())


def produce(
    transactional_id: str | None,
    by_topic: Mapping[str, Sequence[tuple[int, bytes]]],
    timeout_ms: int,
) -> Any:
    """`by_topic`: (partition, record batch) pairs, acknowledged by all replicas in sync; None:
    outside of transactions."""
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            topic(
                name=name,
                partition_data=[part(index=number, records=batch) for number, batch in batches],
            )
            for name, batches in by_topic.items()
        ],
    )
