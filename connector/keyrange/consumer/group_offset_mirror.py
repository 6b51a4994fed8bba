"""What a group of consumers has committed, told to its Kafka group now and then."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.offsets import Positions, TopicPartition
from keyrange.kafka.offset_mirror import GroupMirror

_EVERY_S: Final = 1.0


class Mirroring:
    """Tells the Kafka group `group_id` how far everything of some partitions is done."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._mirror = GroupMirror(cluster, group_id)
        self._told_at_s = -_EVERY_S
        self._told: dict[TopicPartition, int] = {}

    def is_due(self, at_once: bool) -> bool:
        """Whether to tell it now; asked once for each time."""
        now_s = time.monotonic()
        if now_s - self._told_at_s < _EVERY_S and not at_once:
            return False
        self._told_at_s = now_s
        return True

    def tell(self, mine: Iterable[TopicPartition], done: Positions, view: ClusterView) -> None:
        """Of the partitions `mine`, how far each is done where that is known; never less than what
        was told before."""
        for partition, at in done.items():
            self._told[partition] = max(at, self._told.get(partition, 0))
        partitions = list(mine)
        self._mirror.mirror(
            {p: self._told[p] for p in partitions if p in self._told},
            {p: view.epoch(p) for p in partitions},
            self._told_at_s * 1e3,
        )

    def forget(self, topics: Collection[str]) -> None:
        """These were created anew."""
        self._told = {p: at for p, at in self._told.items() if p.topic not in topics}
