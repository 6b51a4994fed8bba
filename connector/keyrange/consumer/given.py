"""Key ranges and partitions as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from keyrange.errors import error
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import SPACE, KeyRange, overlap

Partition = TopicPartition | tuple[str, int]
Ranges = Sequence[KeyRange | tuple[int, int]]


def read_partitions(named: Iterable[Partition]) -> list[TopicPartition]:
    """Partitions, each a topic and a number."""
    return [TopicPartition(*each) for each in named]


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
