"""Key ranges of several partitions: what is new of them, and what of their topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keyrange.individual_commits.model.claims import Spans
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.kafka.view import ClusterView
from keyrange.members.listener import KeyRangeListener
from keyrange.ranges.model.key_ranges import KeyRange, complement


def recreated(before: ClusterView, now: ClusterView) -> set[str]:
    """The topics that two views name by different ids."""
    known, ids = before.topic_ids(), now.topic_ids()
    return {topic for topic in known.keys() & ids.keys() if known[topic] != ids[topic]}


def added(before: Mapping[TopicPartition, Sequence[KeyRange]], after: Spans) -> Spans:
    """The keys that are in `after` and not in `before`."""
    found: dict[TopicPartition, list[KeyRange]] = {}
    for partition, spans in sorted(after.items()):
        old = before.get(partition, ())
        new = complement([*complement(spans), *old])
        if new:
            found[partition] = new
    return found


def tell_lost(listener: KeyRangeListener, ranges: Spans) -> None:
    if ranges:
        listener.on_key_ranges_lost(ranges)
