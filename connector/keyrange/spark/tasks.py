"""A plan as Spark's tasks: with each its splits, and what it has to know of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keyrange import planning
from keyrange.core.delivery_plan import Intakes
from keyrange.core.key_ranges import KeyRange
from keyrange.core.offsets import TopicPartition
from keyrange.core.splits import Split
from keyrange.kafka.view import ClusterView
from keyrange.options import SourceOptions
from keyrange.spark.read import ReadTask


def plan_read(
    ranges: planning.Ranges,
    bytes_per_offset: planning.Sizes,
    places: planning.Places,
    view: ClusterView,
    topic_ids: Mapping[str, str],
    options: SourceOptions,
) -> list[ReadTask]:
    """The tasks that read `ranges`."""
    planned = planning.plan_read(ranges, bytes_per_offset, places, options)
    return [_make_task(splits, view, topic_ids) for splits in planned]


def plan_deliveries(
    intakes: Intakes,
    spans: Mapping[TopicPartition, Sequence[KeyRange]],
    bytes_per_offset: planning.Sizes,
    places: planning.Places,
    view: ClusterView,
    topic_ids: Mapping[str, str],
    options: SourceOptions,
) -> list[ReadTask]:
    """The tasks that read what `intakes` hand out."""
    planned = planning.plan_deliveries(intakes, spans, bytes_per_offset, places, options)
    return [_make_task(splits, view, topic_ids) for splits in planned]


def make_tasks(
    splits: Sequence[Split],
    view: ClusterView,
    topic_ids: Mapping[str, str],
    options: SourceOptions,
) -> list[ReadTask]:
    """Deal splits by partition out to tasks, as the options say."""
    return [_make_task(task, view, topic_ids) for task in planning.deal_out(splits, options)]


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
