"""The messages of a producer, by kafka-python: the partition of a key, the record batch, and the
request that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.partitioner.default import murmur2
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

MESSAGE_TOO_LARGE: Final = frozenset((10, 18))
_MAGIC: Final = 2


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's producer sends a record with this key to: murmur2 of the key, its
    sign bit cleared, modulo the number of partitions.

    Producers of other languages may have another default, and any may name the partition itself.
    """
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """What is written of one record."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """About as much as it takes of a record batch, and no less."""
        headers = sum(len(name.encode()) + len(value or b"") + 20 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 64


def record_batch(records: Sequence[ProducedRecord]) -> bytes:
    """One record batch of format v2, not compressed."""
    builder = DefaultRecordBatchBuilder(
        _MAGIC,
        0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    for at, record in enumerate(records):
        builder.append(at, record.timestamp_ms, record.key, record.value, list(record.headers))
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
