"""What was lost of the records that a query stands before: found by the planning process, and
raised or, with failOnDataLoss=false, warned of."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from keyrange.core.checkpoint import Checkpoint
from keyrange.core.offsets import OffsetRange, Positions, TopicPartition
from keyrange.core.topology import Findings, compare
from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.groups import epoch_ends
from keyrange.kafka.positions import earliest
from keyrange.kafka.view import ClusterView
from keyrange.options import SourceOptions

_log = logging.getLogger(__name__)


class Losses:
    """Compares offsets with the cluster. `epochs` are those of the leaders that said where logs
    end."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self.epochs: dict[TopicPartition, int] = {}
        # Partitions whose log was compared with an offset: its epoch, and the log's at that time.
        self._compared: dict[TopicPartition, tuple[int, int]] = {}
        self._warned: set[str] = set()

    def compare(self, start: Checkpoint, view: ClusterView, latest: Positions) -> Findings:
        """What became of the partitions since `start`; raises data loss where it must not pass."""
        recreated = _recreated(start, view)
        new = [p for p in latest if p not in start.positions or p.topic in recreated]
        firsts = earliest(self._cluster, view, new)
        truncated = self._truncated(start, view, recreated)
        group_id = self._options.client.group_id
        findings = compare(start, latest, firsts, recreated, truncated, group_id)
        for failure in findings.losses:
            self._lose(failure)
        return findings

    def check_replay(self, end: Checkpoint, view: ClusterView) -> None:
        """A batch of an earlier run: whether its records are still those that it was planned on."""
        recreated = _recreated(end, view)
        for partition, at in sorted(self._truncated(end, view, recreated).items()):
            self._lose(
                error(
                    "KAFKA_DATA_LOSS.LOG_TRUNCATED",
                    f"some data may have been lost: the log of partition {partition} was cut back "
                    f"to {at} after a batch up to {end.positions[partition]} was planned",
                )
            )

    def still_there(
        self, ranges: Mapping[TopicPartition, OffsetRange], end: Checkpoint, view: ClusterView
    ) -> dict[TopicPartition, OffsetRange]:
        """Without the ranges of partitions that are gone, or that belong to an earlier topic."""
        known = set(view.partitions())
        left = {}
        for partition, span in ranges.items():
            planned, now = end.topic_ids.get(partition.topic), view.topic_id(partition.topic)
            if partition in known and (not planned or not now or planned == now):
                left[partition] = span
                continue
            self._lose(
                error(
                    "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
                    f"some data may have been lost: cannot read offsets {span} of topic partition "
                    f"{partition}: it was deleted"
                    + (", and the topic created anew" if partition in known else ""),
                )
            )
        return left

    def _lose(self, failure: KeyrangeError) -> None:
        """Raise a loss, or with failOnDataLoss=false warn of it, once."""
        if self._options.fail_on_data_loss:
            raise failure
        if failure.message not in self._warned:
            self._warned.add(failure.message)
            _log.warning("%s Going on with what is left.", failure)

    def _truncated(
        self, known: Checkpoint, view: ClusterView, recreated: set[str]
    ) -> dict[TopicPartition, int]:
        """Where the log parts from the one that an offset was written on, if below its position.

        Asked once for each change of leadership (OffsetForLeaderEpoch, KIP-320).
        """
        suspects = {
            p: epoch
            for p, epoch in known.leader_epochs.items()
            if known.positions.get(p, 0) > 0
            and p.topic not in recreated
            and self.epochs.get(p, epoch) != epoch
            and self._compared.get(p) != (epoch, self.epochs[p])
        }
        if not suspects:
            return {}
        truncated = {}
        for partition, (_, until) in epoch_ends(self._cluster, view, suspects).items():
            if 0 <= until < known.positions[partition]:
                truncated[partition] = until
            else:
                self._compared[partition] = (suspects[partition], self.epochs[partition])
        return truncated


def _recreated(known: Checkpoint, view: ClusterView) -> set[str]:
    return {
        topic
        for topic, topic_id in known.topic_ids.items()
        if view.topic_id(topic) and topic_id != view.topic_id(topic)
    }
