"""What a consumer cannot read any more: the end of a log that was cut back, and a topic that was
created anew. Of what lies before a log's begin `keyrange.kafka.fetching.data_loss` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.errors import error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.groups import epoch_ends
from keyrange.kafka.model.offsets import LATEST, READ_UNCOMMITTED, OffsetRange, TopicPartition
from keyrange.members.status import now_ms as passed_ms

_log = logging.getLogger(__name__)

Works = Mapping[TopicPartition, PartitionWork]


class LogEnds:
    """How far the logs of some works go. `fail_on_data_loss` as the option has it; `ids_max_age_ms`
    is for how long the ids of a view's topics are believed where nothing speaks against them.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: ClusterView,
        fail_on_data_loss: bool,
        ids_max_age_ms: int,
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._fail_on_data_loss = fail_on_data_loss
        self._ids_max_age_ms = ids_max_age_ms
        self._ids_seen_ms = passed_ms()
        # Where logs were cut back below what was read of them, and how far that was.
        self.cut_back: dict[TopicPartition, OffsetRange] = {}

    def check(self, works: Works) -> None:
        """Whether each log reaches as far as it was read. Raises LOG_TRUNCATED, or with
        failOnDataLoss=false goes on where the log ends."""
        ends = self.ends(works)
        behind = {p: LATEST for p, end in ends.items() if end < works[p].position}
        # Behind the last stable offset the log goes on, and others may have read on.
        found = self._cluster.list_offsets(self._view, behind, READ_UNCOMMITTED) if behind else {}
        for partition, (end, _) in sorted(found.items()):
            if end < works[partition].position:
                self._lose(works, partition, end)

    def follow(self, works: Works, epochs: Mapping[TopicPartition, int]) -> None:
        """Whether the logs of partitions that have new leaders since they were read, in `epochs`,
        go as far. Asked once for each change of leadership; raises as `check` does."""
        known = {p: works[p].leader_epoch for p in epochs}
        moved = {p: epoch for p, epoch in known.items() if 0 <= epoch < epochs[p]}
        ends = epoch_ends(self._cluster, self._view, moved) if moved else {}
        for partition, (_, end) in sorted(ends.items()):
            if 0 <= end < works[partition].position:
                self._lose(works, partition, end)
        for partition, epoch in epochs.items():
            works[partition].leader_epoch = max(epoch, known[partition])

    def _lose(self, works: Works, partition: TopicPartition, end: int) -> None:
        work = works[partition]
        failure = error(
            "KAFKA_DATA_LOSS.LOG_TRUNCATED",
            f"the log of {partition} ends at {end}, and was read up to {work.position}",
        )
        if self._fail_on_data_loss:
            raise failure
        _log.warning("%s Going on with what is left.", failure)
        self.cut_back[partition] = OffsetRange(end, work.position)
        work.cut_back(end)

    def ends(self, works: Works) -> dict[TopicPartition, int]:
        """Where the logs of some works end, after a check that they are the ones that were read."""
        wanted = dict.fromkeys(works, LATEST)
        if not wanted:
            return {}
        found = self._cluster.list_offsets(self._view, wanted)
        went_back = any(at < works[partition].position for partition, (at, _) in found.items())
        if went_back or passed_ms() >= self._ids_seen_ms + self._ids_max_age_ms:
            self._check_ids({partition.topic for partition in works})
        self.follow(works, {partition: epoch for partition, (_, epoch) in found.items()})
        return {partition: at for partition, (at, _) in found.items()}

    def _check_ids(self, topics: Collection[str]) -> None:
        """Fetches name a topic by its id. The ends of its partitions are asked for by its name, and
        where a new topic ends before the old one nothing would be fetched."""
        known = self._view.topic_ids()
        found = self._cluster.describe(topics, may_miss=topics).topic_ids()
        self._ids_seen_ms = passed_ms()
        for topic in sorted(topics):
            now, before = found.get(topic), known.get(topic)
            if now and before and now != before:
                raise error(
                    "KAFKA_DATA_LOSS.TOPIC_RECREATED",
                    f"some data may have been lost: topic {topic} was deleted and created anew, "
                    f"its id was {before} and is {now}",
                )
