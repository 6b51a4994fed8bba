"""The batch reader: from one set of positions to another, planned when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from keyrange.core.offsets import EARLIEST, OffsetRange, TopicPartition, pending
from keyrange.core.splits import plan_splits
from keyrange.errors import error
from keyrange.options import SourceOptions
from keyrange.spark.read import make_tasks, read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.view import ClusterView


class KeyRangeBatchReader(DataSourceReader):
    """Spark pickles this object into every task: it holds options and nothing else."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from keyrange.kafka.cluster import Cluster
        from keyrange.kafka.positions import RecordSizes, resolve

        options = self._options
        cluster = Cluster(options.client)
        try:
            view = cluster.describe(options.subscribe)
            start_spec = EARLIEST if options.starting_offsets is None else options.starting_offsets
            start = resolve(cluster, view, start_spec, "startingOffsets")
            end = resolve(cluster, view, options.ending_offsets, "endingOffsets")
            for partition in sorted(start):
                if start[partition] > end[partition]:
                    raise error(
                        "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                        f"The resolved start offset {start[partition]} is greater than the "
                        f"resolved end offset {end[partition]} for topic {partition.topic} "
                        f"partition {partition.partition}",
                    )
            ranges = self._narrow(cluster, view, pending(start, end))
            sizes = RecordSizes(cluster).of(view, ranges)
        finally:
            cluster.close()
        splits = plan_splits(ranges, sizes, options.min_partitions)
        return make_tasks(splits, view, view.topic_ids(), options)

    def _narrow(
        self,
        cluster: Cluster,  # noqa: ARG002
        view: ClusterView,  # noqa: ARG002
        ranges: Mapping[TopicPartition, OffsetRange],
    ) -> Mapping[TopicPartition, OffsetRange]:
        """What of the ranges is read: all of it."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)
