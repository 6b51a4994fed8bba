"""Which consumer gets which key ranges of the partitions that it reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.members.model.assignment import Assignment, Owned, assign, tempered
from keyrange.members.model.consumer_messages import Interest, subscribers
from keyrange.ranges.model.key_ranges import SPACE

_log = logging.getLogger(__name__)

# The whole group waits while its leader asks.
_WEIGHTS_MS: Final = 2_000

Owners = Mapping[TopicPartition, tuple[Owned, ...]]


class Dealing:
    """Deals out what is in a cluster, by how much of it there is. `accepts` says of a topic whether
    its partitions may be split."""

    def __init__(self, cluster: Cluster, accepts: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._accepts = accepts

    def deal(
        self,
        interests: Sequence[Interest],
        members: Mapping[str, float],
        before: Assignment | None,
        epoch: int,
        anew: bool,
    ) -> Assignment:
        """The assignment to `members`, slot to capacity; `interests` are of those who are there.

        Who is away reads what it had. Without `anew` nobody's ranges move, but those of who does
        not read their topic any more; partitions that nobody has are dealt out.
        """
        old = before.owners if before is not None else {}
        there = {each.slot for each in interests}
        reading = [each for each in interests if each.slot in members]
        if before is not None:
            away = sorted(members.keys() - there)
            reading += [Interest(slot, tuple({p.topic for p in before.of(slot)})) for slot in away]
        owners: dict[TopicPartition, tuple[Owned, ...]] = {}
        for slots, topics in subscribers(reading).items():
            owners |= self._of_topics(slots, topics, members, old, epoch, anew)
        return Assignment(epoch, dict(sorted(owners.items())))

    def _of_topics(
        self,
        slots: frozenset[str],
        topics: Sequence[str],
        members: Mapping[str, float],
        old: Owners,
        epoch: int,
        anew: bool,
    ) -> Owners:
        """Of topics that the same slots read."""
        view = self._cluster.describe(topics, may_miss=topics)
        # A broker that has just started may not know a topic yet.
        unknown = set(topics) - view.topics.keys()
        there = {*view.partitions(), *(p for p in old if p.topic in unknown)}
        kept = {partition: old[partition] for partition in sorted(there) if partition in old}
        stays = all(each.slot in slots for owned in kept.values() for each in owned)
        if not there or (not anew and stays and kept.keys() == there):
            return kept
        weights = self._weights(there, view)
        previous = Assignment(max(epoch - 1, 1), kept) if kept else None
        dealt = assign(weights, {slot: members[slot] for slot in sorted(slots)}, previous, epoch)
        return {
            partition: owned if self._accepts(partition.topic) else _whole(owned)
            for partition, owned in dealt.owners.items()
        }

    def _weights(
        self, partitions: set[TopicPartition], view: ClusterView
    ) -> dict[TopicPartition, float]:
        """How many records each partition holds."""
        held, known = dict.fromkeys(partitions, 0.0), view.partitions()
        try:
            if known:
                begins, ends = (
                    self._cluster.list_offsets(
                        view, dict.fromkeys(known, place), timeout_ms=_WEIGHTS_MS
                    )
                    for place in (EARLIEST, LATEST)
                )
                held |= {p: float(max(ends[p][0] - begins[p][0], 0)) for p in known}
        except KeyrangeError as failure:
            if not failure.retriable:
                raise
            _log.warning("partitions count alike, what they hold cannot be read: %s", failure)
        return tempered(held)


def _whole(owned: Sequence[Owned]) -> tuple[Owned, ...]:
    """A partition that may not be split, with who has the most of it."""
    most = max(owned, key=lambda each: (each.span.size, each.slot))
    return (Owned(SPACE, most.slot),)
