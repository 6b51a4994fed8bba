"""A plan as Spark's tasks: with each its splits, and what it has to know of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from keyrange.individual_commits.model.delivery_plan import Intakes
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.kafka.view import ClusterView
from keyrange.members.model.greeting import Greeting
from keyrange.members.model.pinned_plan import WorkUnit, plan_pinned, plan_pinned_deliveries
from keyrange.options import SourceOptions
from keyrange.ranges.model.key_ranges import KeyRange
from keyrange.ranges.model.plan_figures import PlanFigures, plan_figures
from keyrange.ranges.model.splits import Split
from keyrange.ranges.read_tasks import ReadTask
from keyrange.source import planning

if TYPE_CHECKING:
    from keyrange.members.pinning import Pinning

_log = logging.getLogger(__name__)

TopicIds = Mapping[str, str]
Epochs = Mapping[TopicPartition, int]


class TaskPlans:
    """Plans the tasks of a stream's batches; with `pinning` for executors that have key ranges."""

    def __init__(self, options: SourceOptions, pinning: Pinning | None) -> None:
        self._options = options
        self._pinning = pinning
        self._figures: PlanFigures | None = None
        self._planned = 0

    def metrics(self) -> dict[str, int]:
        """What the last plan costs; empty before there was one."""
        return {} if self._figures is None else self._figures.metrics(self._planned)

    def _note(
        self, tasks: Sequence[object], of: Sequence[Sequence[Split]], sizes: planning.Sizes
    ) -> None:
        self._figures = plan_figures(len(tasks), (each for some in of for each in some), sizes)
        self._planned += 1

    def read(
        self,
        ranges: planning.Ranges,
        sizes: planning.Sizes,
        key_hashes: planning.SampledHashes,
        view: ClusterView,
        topic_ids: TopicIds,
        epochs: Epochs = MappingProxyType({}),
    ) -> Sequence[InputPartition]:
        """The tasks that read `ranges`, which end where logs of these leader epochs did."""
        pinning, greeting = self._pinning, None
        if pinning is not None:
            pinning.take_in(
                {p: span.size * sizes[p] for p, span in ranges.items()}, view.partitions()
            )
            greeting = pinning.greeting()
            assignment = pinning.owners(list(ranges))
            if assignment is not None:
                planning.check_accepted(ranges, self._options)
                portions = plan_pinned(
                    ranges, assignment.owners, sizes, key_hashes, pinning.shape, self._naming
                )
                return self._bind(pinning, portions, sizes, _making(view, topic_ids, epochs))
        tasks = plan_read(
            ranges, sizes, key_hashes, view, topic_ids, self._options, greeting, epochs
        )
        self._note(tasks, [task.splits for task in tasks], sizes)
        return tasks

    def deliver(
        self,
        intakes: Intakes,
        spans: Mapping[TopicPartition, Sequence[KeyRange]],
        sizes: planning.Sizes,
        key_hashes: planning.SampledHashes,
        view: ClusterView,
        topic_ids: TopicIds,
        epochs: Epochs = MappingProxyType({}),
    ) -> Sequence[InputPartition]:
        """The tasks that read what `intakes` hand out, in the key ranges `spans`."""
        pinning, greeting = self._pinning, None
        if pinning is not None:
            pinning.take_in(
                {p: each.reach.size * sizes[p] for p, each in intakes.items()}, view.partitions()
            )
            greeting = pinning.greeting()
            assignment = pinning.owners(list(intakes))
            if assignment is not None:
                planning.check_accepted(intakes, self._options)
                portions = plan_pinned_deliveries(
                    intakes,
                    spans,
                    assignment.owners,
                    sizes,
                    key_hashes,
                    pinning.shape,
                    self._naming,
                )
                if portions is not None:
                    return self._bind(pinning, portions, sizes, _making(view, topic_ids, epochs))
                pinning.pass_over()
                _log.info("the batch was cut for another assignment: its tasks run anywhere")
        planned = planning.plan_deliveries(intakes, spans, sizes, key_hashes, self._options)
        self._note(planned, planned, sizes)
        return [_make_task(splits, view, topic_ids, greeting, epochs) for splits in planned]

    def _bind(
        self,
        pinning: Pinning,
        portions: Sequence[WorkUnit],
        sizes: planning.Sizes,
        make: Callable[[WorkUnit], ReadTask],
    ) -> Sequence[InputPartition]:
        tasks = pinning.bind(portions, make)
        self._note(tasks, [portion.splits for portion in portions], sizes)
        return tasks

    def _naming(self) -> Callable[[TopicPartition], str]:
        return planning.naming(self._options)


def plan_read(
    ranges: planning.Ranges,
    bytes_per_offset: planning.Sizes,
    key_hashes: planning.SampledHashes,
    view: ClusterView,
    topic_ids: TopicIds,
    options: SourceOptions,
    greeting: Greeting | None = None,
    epochs: Epochs = MappingProxyType({}),
) -> list[ReadTask]:
    """The tasks that read `ranges`, anywhere."""
    planned = planning.plan_read(ranges, bytes_per_offset, key_hashes, options)
    return [_make_task(splits, view, topic_ids, greeting, epochs) for splits in planned]


def make_tasks(
    splits: Sequence[Split],
    view: ClusterView,
    topic_ids: TopicIds,
    options: SourceOptions,
) -> list[ReadTask]:
    """Deal splits by partition out to tasks, as the options say."""
    return [_make_task(task, view, topic_ids) for task in planning.deal_out(splits, options)]


def _making(
    view: ClusterView, topic_ids: TopicIds, epochs: Epochs
) -> Callable[[WorkUnit], ReadTask]:
    return lambda portion: _make_task(portion.splits, view, topic_ids, epochs=epochs)


def _make_task(
    splits: Sequence[Split],
    view: ClusterView,
    topic_ids: TopicIds,
    greeting: Greeting | None = None,
    epochs: Epochs = MappingProxyType({}),
) -> ReadTask:
    """A task for `splits`, with their leaders, and all brokers: a replica may be read instead."""
    leaders: dict[TopicPartition, int] = {}
    for split in splits:
        leader = view.leader(split.topic_partition)
        if leader is not None:
            leaders[split.topic_partition] = leader.node_id
    topics = {split.topic for split in splits}
    return ReadTask(
        [replace(split, leader_epoch=epochs.get(split.topic_partition, -1)) for split in splits],
        [(broker.node_id, broker.host, broker.port) for broker in view.brokers.values()],
        [(*partition, node_id) for partition, node_id in leaders.items()],
        {topic: topic_ids[topic] for topic in topics if topic in topic_ids},
        greeting,
    )
