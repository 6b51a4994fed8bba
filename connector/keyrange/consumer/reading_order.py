"""What a consumer reads next: of each partition first what comes once more and what ranges that are
behind have to catch up with, then what is new.

And what it cannot read any more: the end of a log that was cut back, and a topic that was created
anew. Of what lies before a log's begin `keyrange.kafka.fetching.data_loss` decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.consumer.records import partition_of
from keyrange.errors import error
from keyrange.individual_commits.model import delivery_splits
from keyrange.individual_commits.model.delivery_splits import PartitionDeliveries, PartitionDelivery
from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.groups import epoch_ends
from keyrange.kafka.model.loss_policy import raise_or_warn, recreated
from keyrange.members.status import now_ms as passed_ms
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offset_splits import Delivery, Split
from keyrange.model.offsets import LATEST, READ_UNCOMMITTED, OffsetRange, TopicPartition

_log = logging.getLogger(__name__)

Works = Mapping[TopicPartition, PartitionWork]
Batch = tuple[TopicPartition, pa.RecordBatch]

# What an offset is taken to be worth before anything was read.
_FIRST_BYTES: Final = 200.0


class OwnedRangeReader:
    """Reads what some works lack, of the topics that a view names by their ids: whatever asks the
    cluster raises TOPIC_RECREATED where one of them was created anew. `ids_max_age_ms` is for how
    long the ids are believed where nothing speaks against them."""

    def __init__(
        self, cluster: Cluster, view: ClusterView, settings: ReadSettings, ids_max_age_ms: int
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._fail_on_data_loss = settings.fail_on_data_loss
        self._ids_max_age_ms = ids_max_age_ms
        self._ids_seen_ms = passed_ms()
        # Where logs were cut back below what was read of them, and how far that was.
        self.cut_back: dict[TopicPartition, OffsetRange] = {}
        self._reader = SplitReader(cluster, view, replace(settings, raises_recreated=True))
        self._offsets_read = 0

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
        raise_or_warn(failure, self._fail_on_data_loss, _log.warning)
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
                raise recreated(topic, before, now)

    def round(self, works: Works, now_ms: int, again_only: bool = False) -> Iterator[Batch] | None:
        """One pass over what is there now, or over what comes again; None where that is nothing.
        What it yields is noted in the works before it is handed over. `now_ms` as `passed_ms` has
        it."""
        ends = {} if again_only else self.ends(works)
        deliveries: dict[TopicPartition, PartitionDelivery] = {}
        for partition, work in sorted(works.items()):
            again, end = work.due(now_ms), max(ends.get(partition, 0), work.position)
            if again or (work.scanned < end and not again_only):
                deliveries[partition] = work.delivery(again, end, again_only)
        splits = self._plan(deliveries, works)
        if not splits:
            return None
        again_of = {p: {r.offset: r for r in each.redelivered} for p, each in deliveries.items()}
        return self._read(works, splits, again_of)

    def records(
        self, partition: TopicPartition, pending: list[PendingRecord]
    ) -> list[pa.RecordBatch]:
        """The records of some pending records, as far as they are in the log."""
        offsets = tuple(sorted(record.offset for record in pending))
        delivery = Delivery(offsets=offsets)
        # One after the other: those that were given up are few, and may lie far apart.
        return [
            batch
            for offset in offsets
            for batch in self._reader.read(
                [Split(partition, offset, offset + 1, 1, delivery=delivery)]
            )
        ]

    def _plan(self, deliveries: PartitionDeliveries, works: Works) -> list[Split]:
        received = self._reader.bytes_received
        per_offset = received / self._offsets_read if self._offsets_read else _FIRST_BYTES
        sizes = dict.fromkeys(deliveries, max(per_offset, 1.0))
        spans = {partition: works[partition].spans for partition in deliveries}
        cells = delivery_splits.plan_cells(deliveries, spans, sizes, lambda _: ())
        if not cells:
            return []
        [task] = delivery_splits.plan_deliveries([cells], deliveries, sizes, lambda _: "")
        # Whatever the keys, all bytes of the offsets are fetched.
        return [
            replace(
                split,
                leader_epoch=works[split.topic_partition].leader_epoch,
                bytes_estimate=split.bytes_estimate
                if split.delivery is not None
                else round(_size(split) * sizes[split.topic_partition]),
            )
            for split in task
        ]

    def _read(
        self,
        works: Works,
        splits: list[Split],
        again: Mapping[TopicPartition, dict[int, PendingRecord]],
    ) -> Iterator[Batch]:
        late = [split for split in splits if split.delivery is not None]
        new = {split.topic_partition: split for split in splits if split.delivery is None}
        for split in late:
            yield from self._read_some(works, {split.topic_partition: split}, again)
        for partition, left in again.items():
            for record in left.values():
                # Compaction has removed it, or a loss that was allowed.
                if works[partition].forget(record):
                    _log.info("%s has no record at %d any more", partition, record.offset)
        if new:
            yield from self._read_some(works, new, {})

    def _read_some(
        self,
        works: Works,
        splits: Mapping[TopicPartition, Split],
        again: Mapping[TopicPartition, dict[int, PendingRecord]],
    ) -> Iterator[Batch]:
        for batch in self._reader.read(list(splits.values())):
            partition = partition_of(batch)
            offsets = batch.column("offset").to_numpy()
            key_hashes = batch.column("keyHash").to_numpy()
            since_ms = time.time_ns() // 1_000_000
            keep = works[partition].hand_out(
                offsets, key_hashes, again.get(partition, {}), passed_ms(), since_ms
            )
            _advance(works[partition], splits[partition], int(offsets[-1]) + 1)
            rows = batch if keep is None else batch.filter(pa.array(keep))
            if len(rows):
                yield partition, rows
        for partition, split in splits.items():
            _advance(works[partition], split, split.until_offset)
            self._offsets_read += _size(split)


def _size(split: Split) -> int:
    return split.until_offset - split.from_offset


def _advance(work: PartitionWork, split: Split, until_offset: int) -> None:
    """Take note that a split was read up to an offset."""
    if split.delivery is None:
        for span in work.spans:
            work.advance(span, split.from_offset, min(until_offset, split.until_offset))
        return
    at, delivery = 0, split.delivery
    for upper, first, last in zip(delivery.uppers, delivery.froms, delivery.untils, strict=True):
        if first < last:
            work.advance(KeyRange(at, upper + 1), first, min(until_offset, last))
        at = upper + 1
