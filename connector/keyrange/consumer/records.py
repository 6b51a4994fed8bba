"""Rows of a batch as records, for those who work on one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from keyrange.consumer.work import Longs
from keyrange.kafka.model.offsets import TopicPartition


class ConsumerRecord(NamedTuple):
    """One record; `key_hash` is the place of its key. What option `columns` leaves out is None."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    headers: list[dict[str, Any]] | None
    key_hash: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def records_of(batch: pa.RecordBatch) -> Iterator[ConsumerRecord]:
    """The rows of a batch, in order."""
    names = ("topic", "partition", "offset", "key", "value", "timestamp", "headers", "keyHash")
    known = set(batch.schema.names)
    nothing = [None] * len(batch)
    columns = [batch.column(name).to_pylist() if name in known else nothing for name in names]
    return map(ConsumerRecord._make, zip(*columns, strict=True))


def partition_of(batch: pa.RecordBatch) -> TopicPartition:
    """The one partition that all rows of a batch are of."""
    return TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())


def offsets_of(batch: pa.RecordBatch) -> Longs:
    """The offsets of a batch."""
    return np.asarray(batch.column("offset").to_numpy(), np.int64)


def by_partition(records: Iterable[ConsumerRecord]) -> dict[TopicPartition, Longs]:
    """The offsets of records, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for each in records:
        found.setdefault(each.topic_partition, []).append(each.offset)
    return {partition: np.array(offsets, np.int64) for partition, offsets in found.items()}
