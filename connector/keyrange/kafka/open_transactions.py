"""Which transactions hold records back: those behind the last stable offset are in the log, and
nobody gets them who reads with read_committed, until the first open transaction ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages.admin import describe_producers
from keyrange.model.offsets import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    OffsetRange,
    TopicPartition,
    numbers_by_topic,
)

# Who asks has other questions too, that this one must not hold up.
_ASK_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class HeldBack:
    """`span` is held back by the open transaction of a producer, which wrote last at `written_ms`
    since 1970; -1 stands for what the broker does not tell."""

    span: OffsetRange
    producer_id: int = -1
    producer_epoch: int = -1
    written_ms: int = -1


def held_back(
    cluster: Cluster, view: ClusterView, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, HeldBack]:
    """Those of `partitions` of which something is held back. Raises as `list_offsets` does; who
    does it is told where the broker tells it."""
    wanted = dict.fromkeys(sorted(partitions), LATEST)
    if not wanted:
        return {}
    # In this order: what comes between the two questions must not look as if it were held back.
    ends = cluster.list_offsets(view, wanted, READ_UNCOMMITTED)
    stable = cluster.list_offsets(view, wanted, READ_COMMITTED)
    spans = {p: OffsetRange(stable[p][0], ends[p][0]) for p in wanted}
    found = {p: HeldBack(span) for p, span in spans.items() if span.size}
    for partition, oldest in _oldest(cluster, view, found):
        found[partition] = replace(oldest, span=found[partition].span)
    return found


def _oldest(
    cluster: Cluster, view: ClusterView, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, HeldBack]]:
    """The first open transaction of each partition whose leader tells of one."""
    for leader, wanted in view.by_leader(partitions).items():
        by = cluster.deadline(_ASK_MS)
        request = describe_producers(numbers_by_topic(wanted))
        try:
            answer = cluster.call(leader.host, leader.port, request, by)
        except (ConnectionLost, KeyrangeError):
            # That records are held back is known all the same.
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                first = _first_open(each.active_producers)
                if not each.error_code and first is not None:
                    yield TopicPartition(topic.name, each.partition_index), first


def _first_open(producers: Iterable[Any]) -> HeldBack | None:
    open_ones = (each for each in producers if each.current_txn_start_offset >= 0)
    first = min(open_ones, key=lambda each: each.current_txn_start_offset, default=None)
    if first is None:
        return None
    begin = first.current_txn_start_offset
    return HeldBack(
        OffsetRange(begin, begin), first.producer_id, first.producer_epoch, first.last_timestamp
    )
