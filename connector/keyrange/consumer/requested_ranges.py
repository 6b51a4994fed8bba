"""Key ranges and partitions: as users give them, what is new of them, and what of their topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from keyrange.errors import error
from keyrange.individual_commits.model.range_claims import Spans
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.members.range_listener import KeyRangeListener
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


def recreated(before: ClusterView, now: ClusterView) -> set[str]:
    """The topics that two views name by different ids."""
    known, ids = before.topic_ids(), now.topic_ids()
    return {topic for topic in known.keys() & ids.keys() if known[topic] != ids[topic]}


def tell_lost(listener: KeyRangeListener, ranges: Spans) -> None:
    if ranges:
        listener.on_key_ranges_lost(ranges)
