"""Which key ranges of each partition a query reads, where other queries read the rest.

Offsets alone do not say it, so it stands in the checkpoint: a query that came back with other
ranges would go on behind records that nobody has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from keyrange.model.key_ranges import SPACE, KeyRange, merge, read_ranges, write_ranges
from keyrange.model.offsets import PARTITION_MAX, TopicPartition

# In the place of a partition's number: all partitions of the topic.
EVERY: Final = -1

Ownership = Mapping[TopicPartition, tuple[KeyRange, ...]]


def owned(ownership: Ownership, partition: TopicPartition) -> tuple[KeyRange, ...] | None:
    """The ranges that are named for a partition, or else for its topic."""
    return ownership.get(partition, ownership.get(TopicPartition(partition.topic, EVERY)))


def first_change(
    before: Ownership, now: Ownership, partitions: Iterable[TopicPartition]
) -> TopicPartition | None:
    """A partition of which other hashes are owned now; what is not named is owned wholly.

    How the hashes are cut does not matter.
    """
    for partition in sorted(partitions):
        ranges = (owned(each, partition) or (SPACE,) for each in (before, now))
        was, is_now = map(merge, ranges)
        if was != is_now:
            return partition
    return None


def read_ownership(document: Any) -> dict[TopicPartition, tuple[KeyRange, ...]]:
    """`{"topic": {"0": [[lo, hi], ...], "1": []}}` or `{"topic": [[lo, hi], ...]}` for all its
    partitions; an empty list is the whole partition.

    Raises ValueError that says what is wrong with it.
    """
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    found: dict[TopicPartition, tuple[KeyRange, ...]] = {}
    for topic, each in document.items():
        parts = {str(EVERY): each} if isinstance(each, list) else each
        if not isinstance(parts, dict) or not parts:
            raise ValueError(f"topic {topic[:249]} has neither partitions nor ranges")
        for number, ranges in parts.items():
            if parts is each and not _is_partition(number):
                raise ValueError(f"'{number[:40]}' is not a partition of topic {topic[:249]}")
            try:
                spans = tuple(read_ranges(ranges))
            except ValueError as failure:
                raise ValueError(f"topic {topic[:249]}: {failure}") from None
            found[TopicPartition(topic, int(number))] = spans or (SPACE,)
    return found


def _is_partition(text: str) -> bool:
    plain = text.isascii() and text.isdigit() and len(text) < 11
    return plain and text == str(int(text)) and int(text) <= PARTITION_MAX


def write_ownership(ownership: Ownership) -> dict[str, Any]:
    """The JSON that `read_ownership` reads, the same for the same hashes."""
    document: dict[str, Any] = {}
    for partition, spans in sorted(ownership.items()):
        ranges = write_ranges(merge(spans))
        if partition.partition == EVERY:
            document[partition.topic] = ranges
        else:
            topic = document.setdefault(partition.topic, {})
            if isinstance(topic, dict):
                topic[str(partition.partition)] = ranges
    return document
