"""The Kafka group of a consumer is told how far everything is done, for Kafka's own tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.settings import ConsumerSettings
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.offset_mirror import GroupMirror
from keyrange.members.status import now_ms as passed_ms
from keyrange.model.offsets import TopicPartition

_EVERY_MS: Final = 1_000
# Who has the first keys of a partition may be away, and others get on.
_EACH_EVERY_MS: Final = 30_000
_TRIES: Final = 5


class CommittedMirror:
    """Now and then, never less than before, and of the partitions whose first keys are held here:
    one consumer tells of each. More rarely each consumer tells of all that it holds, and with its
    last word: nobody may be there who has their first keys."""

    def __init__(self, settings: ConsumerSettings, cluster: Cluster) -> None:
        self._mirror: GroupMirror | None = None
        if settings.source.mirror_offsets and settings.source.client.group_id:
            self._mirror = GroupMirror(cluster, settings.source.client.group_id)
        self._at_ms = self._each_at_ms = 0
        # What the Kafka group was told.
        self._told: dict[TopicPartition, int] = {}

    def forget(self, topics: Collection[str]) -> None:
        """Topics that were created anew begin anew."""
        self._told = {p: at for p, at in self._told.items() if p.topic not in topics}

    def tell(
        self,
        works: Mapping[TopicPartition, PartitionWork],
        log: CommitLog,
        view: ClusterView,
        at_once: bool,
    ) -> None:
        now_ms = passed_ms()
        if self._mirror is None or (now_ms < self._at_ms and not at_once):
            return
        self._at_ms = now_ms + _EVERY_MS
        each = at_once or now_ms >= self._each_at_ms
        if each:
            self._each_at_ms = now_ms + _EACH_EVERY_MS
        mine = [p for p, work in works.items() if each or work.spans[0].from_hash == 0]
        epochs = {p: view.epoch(p) for p in mine}
        for _ in range(_TRIES if at_once else 1):
            before = dict(self._told)
            done = log.committed(mine, view.topic_ids()) if mine else {}
            self._told |= {p: max(at, self._told.get(p, 0)) for p, at in done.items()}
            told = {p: self._told[p] for p in mine if p in self._told}
            self._mirror.mirror(told, epochs, now_ms)
            # Another one may have told more just before: what it told is in the table by now.
            if self._told == before:
                return
