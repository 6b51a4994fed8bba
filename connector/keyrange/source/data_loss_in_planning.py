"""What was lost of the records that a query stands before: found by the planning process, and
raised or, with failOnDataLoss=false, warned of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.groups import epoch_ends
from keyrange.kafka.messages.protocol import isolation_level
from keyrange.kafka.model.loss_policy import raise_or_warn
from keyrange.kafka.position_lookup import earliest
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.lost_offset_counts import Lost, LostOffsets, left_behind, passed_over
from keyrange.model.offsets import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    OffsetRange,
    Positions,
    TopicPartition,
    pending,
)
from keyrange.options import SourceOptions
from keyrange.source.model.partition_changes import ABSENT_MAX, Findings, compare

_log = logging.getLogger(__name__)


class DataLossCheck:
    """Compares offsets with the cluster. `epochs` are those of the leaders that said where logs
    end."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self.epochs: dict[TopicPartition, int] = {}
        # Partitions whose log was compared with an offset: its epoch, and the log's at that time.
        self._compared: dict[TopicPartition, tuple[int, int]] = {}
        self._warned: set[str] = set()
        self._lost = LostOffsets()
        # Where partitions ended when they were last seen, also those that are gone by now.
        self._ends: dict[TopicPartition, int] = {}

    def compare(self, start: Checkpoint, view: ClusterView, latest: Positions) -> Findings:
        """What became of the partitions since `start`; raises data loss where it must not pass."""
        recreated = _recreated(start, view)
        stood = start.known
        new = [p for p in latest if p not in stood or p.topic in recreated]
        firsts = earliest(self._cluster, view, new)
        truncated = self._truncated(start, stood, view, recreated)
        group_id = self._options.client.group_id
        findings = compare(
            start, latest, firsts, recreated, truncated, group_id, self._options.subscription
        )
        for failure in findings.losses:
            self._lose(failure)
        self._note(start, findings, recreated, latest, view.topic_ids())
        for partition in findings.back:
            self._warn(f"{partition} is there again, and is read on from {stood[partition]}.")
        if findings.forgotten:
            self._warn(
                f"More than {ABSENT_MAX} partitions are absent: where "
                f"{', '.join(map(str, findings.forgotten))} stood is not kept any longer."
            )
        return findings

    def log_ends(
        self, start: Checkpoint, view: ClusterView, latest: Positions
    ) -> dict[TopicPartition, int]:
        """How far partitions may be read. A query that reads committed records alone may stand
        behind the last stable offset, where it began to do so or was told to start: nothing is
        lost there, and it waits where it stands."""
        ends, known = dict(latest), start.known
        behind = {p: LATEST for p, at in latest.items() if at < known.get(p, 0)}
        if behind and isolation_level(self._options.client) == READ_COMMITTED:
            recreated = _recreated(start, view)
            truncated = self._truncated(start, known, view, recreated)
            found = self._cluster.list_offsets(view, behind, READ_UNCOMMITTED)
            for partition, (end, _) in found.items():
                is_same = partition.topic not in recreated and partition not in truncated
                if is_same and end >= known[partition]:
                    ends[partition] = known[partition]
        return ends

    def metrics(self) -> dict[str, Any]:
        """The part of a progress that says what was lost; none where a loss fails the query."""
        return {} if self._options.fail_on_data_loss else {"losses": self._lost.metrics()}

    def planned(self) -> None:
        """A batch is planned: what is found from now on is told with the next one."""
        self._lost.planned()

    def look_ahead(self, start: Checkpoint, end: Checkpoint, view: ClusterView) -> None:
        """Note what of a planned batch retention has taken already: its tasks will go on behind
        it. Where a loss fails the query, it is they that fail."""
        if self._options.fail_on_data_loss:
            return
        known = set(view.partitions())
        found = {p: end.start_of(p, start) for p in end.positions if p in known}
        begins = {p: at for p, at in found.items() if at is not None}
        wanted = list(pending(begins, end.positions))
        firsts = earliest(self._cluster, view, wanted)
        self._count(
            passed_over(begins, end.positions, firsts), end.topic_ids, "the log begins behind them"
        )

    def check_replay(self, end: Checkpoint, view: ClusterView) -> None:
        """A batch of an earlier run: whether its records are still those that it was planned on."""
        recreated = _recreated(end, view)
        for partition, at in sorted(self._truncated(end, end.positions, view, recreated).items()):
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
        known, subscription = set(view.partitions()), self._options.subscription
        left = {}
        for partition, span in ranges.items():
            planned, now = end.topic_ids.get(partition.topic), view.topic_id(partition.topic)
            if partition in known and (not planned or not now or planned == now):
                left[partition] = span
                continue
            why = "it was deleted" + (", and the topic created anew" if partition in known else "")
            if not subscription.names(partition):
                why = (
                    f"option '{subscription.option}' does not name it any more; name it until "
                    "this batch, which was planned with it, is done"
                )
            self._lose(
                error(
                    "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
                    f"some data may have been lost: cannot read offsets {span} of topic partition "
                    f"{partition}: {why}",
                )
            )
            self._count([Lost(partition, span)], end.topic_ids, "the partition is gone")
        return left

    def _note(
        self,
        start: Checkpoint,
        findings: Findings,
        recreated: set[str],
        latest: Positions,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Count what was lost of partitions that are gone, recreated, or new and begun already."""
        gone = {
            p
            for p in start.positions
            if p not in findings.start or (p in findings.restarted and p.topic in recreated)
        }
        left = left_behind(start.positions, self._ends, gone)
        self._count(left, start.topic_ids, "the partition is gone")
        known = start.known
        begun = [
            Lost(p, OffsetRange(0, at))
            for p, at in sorted(findings.start.items())
            if (p not in known or p.topic in recreated) and at > 0
        ]
        self._count(begun, topic_ids, "the new partition begins behind them")
        # Until a batch has gone past the loss, the end of the topic that is gone is asked for.
        self._ends.update({p: at for p, at in latest.items() if p not in gone})

    def _count(self, losses: Iterable[Lost], topic_ids: Mapping[str, str], why: str) -> None:
        for loss in losses:
            topic_id = topic_ids.get(loss.partition.topic, "")
            if lost := self._lost.add(loss.partition, loss.span, topic_id):
                _log.warning("offsets %s are lost, %d in all: %s", lost, lost.span.size, why)

    def _lose(self, failure: KeyrangeError) -> None:
        raise_or_warn(failure, self._options.fail_on_data_loss, self._warn)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)

    def _truncated(
        self, known: Checkpoint, positions: Positions, view: ClusterView, recreated: set[str]
    ) -> dict[TopicPartition, int]:
        """Where the log parts from the one that an offset was written on, if below its position.

        Asked once for each change of leadership (OffsetForLeaderEpoch, KIP-320).
        """
        suspects = {
            p: epoch
            for p, epoch in known.leader_epochs.items()
            if positions.get(p, 0) > 0
            and p.topic not in recreated
            and self.epochs.get(p, epoch) != epoch
            and self._compared.get(p) != (epoch, self.epochs[p])
        }
        if not suspects:
            return {}
        truncated = {}
        for partition, (_, until) in epoch_ends(self._cluster, view, suspects).items():
            if 0 <= until < positions[partition]:
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
