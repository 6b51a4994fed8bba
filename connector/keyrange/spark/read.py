"""What runs in the executors: a task's splits to Arrow batches.

The description of a task is plain numbers and names: no secret and no code is in it. It says who
leads each partition, so that a task needs no metadata of its own. Connections are kept from task to
task in the worker process, which Spark reuses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from keyrange.core.offsets import TopicPartition
from keyrange.core.splits import Split, deal
from keyrange.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.client_options import ClientSettings
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.view import ClusterView


class ReadTask(InputPartition):
    """One task: its splits, and what the driver knew of the cluster when it planned them.

    `brokers`: (node id, host, port). `leaders`: (topic, partition, node id). `topic_ids` are those
    that the offsets belong to.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        brokers: Sequence[tuple[int, str, int]],
        leaders: Sequence[tuple[str, int, int]],
        topic_ids: Mapping[str, str],
    ) -> None:
        self.splits = tuple(splits)
        self.brokers = tuple(brokers)
        self.leaders = tuple(leaders)
        self.topic_ids = dict(topic_ids)

    def __repr__(self) -> str:
        return f"ReadTask({', '.join(map(str, self.splits))})"


def read_task(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a task. Spark hands a plain InputPartition where there is nothing to read."""
    if not isinstance(task, ReadTask) or not task.splits:
        return
    # Imported here so that planning a query does not load them.
    from keyrange.kafka.fetch import ReadSettings, SplitReader
    from keyrange.wire.decode import DecodeSettings

    settings = ReadSettings(
        decode=DecodeSettings(
            columns=options.chosen_columns,
            batch_rows=options.max_batch_rows,
            batch_bytes=options.max_batch_bytes,
            record_batch_bytes_max=options.max_record_batch_bytes,
        ),
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
    )
    cluster = _kept_cluster(options.client)
    yield from SplitReader(cluster, _view(task), settings).read(task.splits)


_clusters: dict[tuple[int, ClientSettings], Cluster] = {}


def _kept_cluster(settings: ClientSettings) -> Cluster:
    """This process's connections to a cluster; a forked child does not use its parent's sockets."""
    from keyrange.kafka.cluster import Cluster

    key = (os.getpid(), settings)
    if key not in _clusters:
        _clusters[key] = Cluster(settings)
    return _clusters[key]


def _view(task: ReadTask) -> ClusterView:
    from keyrange.kafka.view import Broker, ClusterView, Leader, Topic

    leaders: dict[str, dict[int, Leader]] = {}
    for topic, partition, node_id in task.leaders:
        leaders.setdefault(topic, {})[partition] = Leader(node_id, -1)
    return ClusterView(
        cluster_id="",
        brokers={node_id: Broker(node_id, host, port) for node_id, host, port in task.brokers},
        topics={
            topic: Topic(task.topic_ids.get(topic, ""), numbers)
            for topic, numbers in leaders.items()
        },
    )


def make_tasks(
    splits: Sequence[Split],
    view: ClusterView,
    topic_ids: Mapping[str, str],
    options: SourceOptions,
) -> list[ReadTask]:
    """Deal the splits of a batch out to tasks, as the options say."""
    tasks_min = max(options.min_tasks, options.min_partitions or 1)
    # A bound on the records of a task is none if splits share one.
    bytes_per_task = options.bytes_per_task if options.max_records_per_partition is None else 0
    return [_make_task(task, view, topic_ids) for task in deal(splits, bytes_per_task, tasks_min)]


def _make_task(
    splits: Sequence[Split], view: ClusterView, topic_ids: Mapping[str, str]
) -> ReadTask:
    """A task for `splits`, with their leaders, and all brokers: a replica may be read instead."""
    leaders: dict[TopicPartition, int] = {}
    for split in splits:
        leader = view.leader(split.topic_partition)
        if leader is not None:
            leaders[split.topic_partition] = leader.node_id
    topics = {split.topic for split in splits}
    return ReadTask(
        splits,
        [(broker.node_id, broker.host, broker.port) for broker in view.brokers.values()],
        [(*partition, node_id) for partition, node_id in leaders.items()],
        {topic: topic_ids[topic] for topic in topics if topic in topic_ids},
    )
