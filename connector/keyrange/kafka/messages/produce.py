"""The messages of a producer, by kafka-python: the partition of a key, the record batch, and the
request that carries it."""

from __future__ import annotations

from collections.abc import Mapping
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


def produce(topic: str, batches: Mapping[int, bytes], timeout_ms: int) -> Any:
    """A record batch for each partition, acknowledged by all replicas in sync."""
    one = ProduceRequest.TopicProduceData
    part = one.PartitionProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            one(
                name=topic,
                partition_data=[
                    part(index=partition, records=batch) for partition, batch in batches.items()
                ],
            )
        ],
    )
