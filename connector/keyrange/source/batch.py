"""The batch reader: from one set of positions to another.

Spark plans a DataFrame's tasks once and runs them as often as the DataFrame is used. As in Spark's
own Kafka source, earliest and latest stay what they are in the plan and are asked for by the tasks,
so that a DataFrame that is used again sees what was written meanwhile. Only partitions that are cut
into several splits have their cuts fixed when they are planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from keyrange.members.read_tasks import ReadTask
from keyrange.model.offset_splits import Split, plan_splits
from keyrange.model.offsets import EARLIEST, READ_UNCOMMITTED, OffsetRange, TopicPartition
from keyrange.options import SourceOptions
from keyrange.source.driver_version import with_version
from keyrange.source.model.filters import Constraints
from keyrange.source.task_reader import read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.cluster_view import ClusterView

_Places = Mapping[TopicPartition, int]


class KeyRangeBatchReader(DataSourceReader):
    """Spark pickles this object into every task: it holds options and the driver's version."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # What the query's filters say of where to read; None where nobody tells them.
        self._constraints: Constraints | None = None

    def __getstate__(self) -> dict[str, Any]:
        return with_version(self.__dict__)

    def partitions(self) -> Sequence[InputPartition]:
        from keyrange.kafka.cluster import Cluster
        from keyrange.kafka.security.exposure import warn_of_exposure
        from keyrange.kafka.subscribed_topics import retrying
        from keyrange.options.source import warn_of_idle

        options = self._options
        warn_of_exposure(options.client)
        warn_of_idle(options, works=False)
        cluster = Cluster(options.client)
        try:
            return retrying(
                cluster,
                options.fetch_offset_tries,
                options.fetch_offset_pause_ms,
                lambda: self._plan(cluster),
            )
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    def _plan(self, cluster: Cluster) -> Sequence[ReadTask]:
        from keyrange.kafka.position_lookup import between, bind, resolve_positions
        from keyrange.kafka.record_sizes import RecordSizes
        from keyrange.kafka.subscribed_topics import describe, warn_of_pattern
        from keyrange.source.planning import deal_out, plan_read
        from keyrange.source.tasks import TaskMaker

        options = self._options
        view = describe(cluster, options.subscription)
        warn_of_pattern(cluster, options.subscription, view)
        start, end = (
            resolve_positions(cluster, view, options.start),
            resolve_positions(cluster, view, options.end),
        )
        ranges = between(bind(cluster, view, start), bind(cluster, view, end))
        if self._constraints is not None:
            ranges = narrow(cluster, view, ranges, self._constraints)
        pending = {partition: span for partition, span in ranges.items() if span.size}
        keys, maker = options.key_ranges, TaskMaker(view, view.topic_ids())
        sampled = RecordSizes(cluster, keys.split_by == "keyRange", keys.nulls_first)
        sizes = dict.fromkeys(ranges, 0.0) | sampled.of(view, pending)
        if keys.split_by != "partition":
            # Tasks that share a partition have to mean the same offsets: these stay as planned.
            planned = plan_read(pending, sizes, sampled.key_hashes, options)
            return [maker.task(each) for each in planned]
        splits = plan_splits(
            pending, sizes, options.min_partitions, options.max_records_per_partition
        )
        # What filters have narrowed is read once, as it is planned.
        if self._constraints is None:
            splits = late_bound(splits, ranges, start, end)
        return [maker.task(each) for each in deal_out(splits, options)]


def narrow(
    cluster: Cluster,
    view: ClusterView,
    ranges: Mapping[TopicPartition, OffsetRange],
    constraints: Constraints,
) -> dict[TopicPartition, OffsetRange]:
    """What of the ranges may hold rows that satisfy the constraints; no range is empty.

    A bound in time costs one request to the leaders of the partitions that are left. Where Kafka
    finds no record of that time or later, the partition has none up to now.
    """
    kept = {
        partition: left
        for partition, span in ranges.items()
        if constraints.keeps(partition) and (left := constraints.clamp(span)).size
    }
    from_ms = constraints.from_timestamp_ms
    # Kafka takes numbers below zero for other questions, and older records than 1970 do not matter.
    if from_ms is None or from_ms <= 0 or not kept:
        return kept
    # Transactions that are not over count too: under read_committed Kafka hides what stands behind
    # them, and a task may wait for it.
    found = cluster.list_offsets(view, dict.fromkeys(kept, from_ms), READ_UNCOMMITTED)
    sought = {
        partition: OffsetRange(max(span.from_offset, found[partition][0]), span.until_offset)
        for partition, span in kept.items()
        if found[partition][0] >= 0
    }
    return {partition: span for partition, span in sought.items() if span.size}


def late_bound(
    splits: Sequence[Split],
    ranges: Mapping[TopicPartition, OffsetRange],
    start: _Places,
    end: _Places,
) -> list[Split]:
    """Splits whose outer bounds are what was asked for: a start EARLIEST and an end LATEST stay.

    A start LATEST, which only a default can be, is where the end was when it was planned: the next
    use of the DataFrame sees what came after. A partition that is empty when it is planned has a
    split too where its end stays open. An end by time is never open: what came after may be behind
    it.
    """
    by_partition = groupby(splits, key=lambda split: split.topic_partition)
    planned = {partition: list(each) for partition, each in by_partition}
    bound: list[Split] = []
    for partition in sorted(ranges):
        pieces = planned.get(partition, [])
        if not pieces and end[partition] < 0:
            span = ranges[partition]
            pieces = [Split(partition, span.from_offset, span.until_offset, 0)]
        if pieces and start[partition] == EARLIEST:
            pieces[0] = replace(pieces[0], from_offset=start[partition])
        if pieces and end[partition] < 0:
            pieces[-1] = replace(pieces[-1], until_offset=end[partition])
        bound.extend(pieces)
    return bound
