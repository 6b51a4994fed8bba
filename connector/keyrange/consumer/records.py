"""Rows of a batch as records, for those who work on one after the other; and what users say of
records and key ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.consumer.stretches import Longs
from keyrange.errors import error
from keyrange.model.key_ranges import SPACE, KeyRange, overlap
from keyrange.model.offsets import TopicPartition, is_whole
from keyrange.model.value_forms import BAD_COLUMN
from keyrange.values.python_rows import python_values

_OFFSET_MAX: Final = 2**63 - 1

Partition = TopicPartition | tuple[str, int]
Ranges = Sequence[KeyRange | tuple[int, int]]


class ConsumerRecord(NamedTuple):
    """One record; `key_hash` is the place of its key. Key and value are bytes, or what keyFormat
    and valueFormat say: `record.value.price`. What option `columns` leaves out is None. With
    badValues=column `bad_value` says why one is null that could not be read."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: datetime | None
    headers: list[dict[str, Any]] | None
    key_hash: int
    bad_value: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def records_of(batch: pa.RecordBatch) -> Iterator[ConsumerRecord]:
    """The rows of a batch, in order."""
    names = (
        *("topic", "partition", "offset", "key", "value", "timestamp", "headers", "keyHash"),
        BAD_COLUMN,
    )
    known = set(batch.schema.names)
    nothing = [None] * len(batch)
    typed = {"key": python_values, "value": python_values}
    columns = [
        typed.get(name, pa.Array.to_pylist)(batch.column(name)) if name in known else nothing
        for name in names
    ]
    return map(ConsumerRecord._make, zip(*columns, strict=True))


def partition_of(batch: pa.RecordBatch) -> TopicPartition:
    """The one partition that all rows of a batch are of."""
    return TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())


def offset_of(given: object) -> int:
    """An offset that a user names. Raises INVALID_OFFSET."""
    if is_whole(given) and 0 <= (offset := int(cast(int, given))) <= _OFFSET_MAX:
        return offset
    raise error("INVALID_OFFSET", f"{given!r:.100} is no offset")


Rows: TypeAlias = pa.RecordBatch | pa.Table
Records: TypeAlias = ConsumerRecord | Iterable[ConsumerRecord]
Acknowledged: TypeAlias = Rows | Iterable[Rows] | Records | tuple[str, int]


def offsets_of(
    what: Acknowledged, offsets: Iterable[int] | None = None
) -> dict[TopicPartition, Longs]:
    """By partition the offsets, each once and in order, of batches, of records, or those that are
    given of a topic-partition. Raises INVALID_OFFSET."""
    if offsets is not None:
        given = np.array([offset_of(each) for each in offsets], np.int64)
        return {_partition(what): np.unique(given)}
    found: dict[TopicPartition, list[Longs]] = {}
    for partition, each in _places(what):
        found.setdefault(partition, []).append(each)
    return {p: np.unique(np.concatenate(each)) for p, each in found.items()}


def _partition(named: object) -> TopicPartition:
    if isinstance(named, tuple) and len(named) == 2 and isinstance(named[0], str):
        return TopicPartition(*named)
    raise error("INVALID_OFFSET", f"{named!r:.100} is no topic-partition, as offsets are given of")


def _places(what: object) -> Iterator[tuple[TopicPartition, Longs]]:
    if isinstance(what, (pa.RecordBatch, pa.Table)):
        yield from _by_partition(what)
    elif isinstance(what, ConsumerRecord):
        yield what.topic_partition, np.array([what.offset], np.int64)
    elif isinstance(what, Iterable) and not isinstance(what, (str, bytes, TopicPartition)):
        for each in what:
            yield from _places(each)
    else:
        text = "neither a batch nor a record, and of a topic-partition offsets are to be given"
        raise error("INVALID_OFFSET", f"{what!r:.100} is {text}")


def _by_partition(rows: Rows) -> Iterator[tuple[TopicPartition, Longs]]:
    """A batch that poll returned is of one partition; a user may have put several together."""
    missing = [each for each in ("topic", "partition", "offset") if each not in rows.column_names]
    if missing:
        raise error("INVALID_OFFSET", f"a batch has no column {', '.join(missing)}")
    numbers, offsets = (
        np.asarray(rows.column(name).to_numpy(), np.int64) for name in ("partition", "offset")
    )
    topics = pc.unique(rows.column("topic")).to_pylist()
    for topic in topics:
        is_own = np.ones(len(numbers), bool)
        if len(topics) > 1:
            is_own = pc.equal(rows.column("topic"), topic).to_numpy(zero_copy_only=False)
        for number in np.unique(numbers[is_own]).tolist():
            yield TopicPartition(topic, number), offsets[is_own & (numbers == number)]


def read_ranges(ranges: Mapping[Partition, Ranges]) -> dict[TopicPartition, list[KeyRange]]:
    """Ranges as a user gives them. Raises INVALID_KEY_RANGES that names the partition."""
    found: dict[TopicPartition, list[KeyRange]] = {}
    for named, given in ranges.items():
        partition = TopicPartition(*named)
        try:
            spans = sorted(
                each if isinstance(each, KeyRange) else KeyRange(each[0], each[1] + 1)
                for each in given
            )
        except (ValueError, TypeError, IndexError) as fault:
            raise error("INVALID_KEY_RANGES", f"{partition}: {fault}") from None
        if overlap(spans):
            raise error("INVALID_KEY_RANGES", f"two ranges of {partition} overlap")
        found[partition] = spans or [SPACE]
    if not found:
        raise error("INVALID_KEY_RANGES", "no partition is named")
    return found
