"""What a producer makes of a record, by kafka-python: its partition, and a record batch."""

from __future__ import annotations

from typing import Final

from kafka.partitioner.default import murmur2
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
