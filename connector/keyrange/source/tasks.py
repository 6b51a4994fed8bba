"""A plan as Spark's tasks: with each its splits, and what it has to know of the cluster; and the
tasks of a query whose key ranges belong to executors, whichever way it commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from keyrange.kafka.cluster_view import ClusterView
from keyrange.members.read_tasks import ReadTask
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.ranges.model.plan_figures import plan_figures
from keyrange.source.planning import BatchReads, SampledHashes, Sizes, check_accepted
from keyrange.work.model.work_order import WorkOrder
from keyrange.work.rare_collections import rare_collections

if TYPE_CHECKING:
    from keyrange.members.model.copy_book import KnownState
    from keyrange.members.model.task_greeting import Greeting
    from keyrange.members.pinning import Pinning

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskMaker:
    """Tells tasks of the leaders of what they read, and of all brokers: a replica may be read
    instead. `epochs` are those of the logs in which the offsets were planned, `order` says what
    tasks do that work on what they read."""

    view: ClusterView
    topic_ids: Mapping[str, str]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    order: Callable[[Sequence[Split]], WorkOrder] | None = None
    # The same for all tasks: thousands of tasks with a list each would be millions of brokers.
    _brokers: tuple[tuple[int, str, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = ((each.node_id, each.host, each.port) for each in self.view.brokers.values())
        object.__setattr__(self, "_brokers", tuple(found))

    def task(self, splits: Sequence[Split], greeting: Greeting | None = None) -> ReadTask:
        leaders: dict[tuple[str, int, int], None] = {}
        topic_ids: dict[str, str] = {}
        own: list[Split] = []
        for split in splits:
            topic, number = partition = split.topic_partition
            own.append(split.led_in(self.epochs.get(partition, -1)))
            leader = self.view.leader(partition)
            if leader is not None:
                leaders[topic, number, leader.node_id] = None
            if topic not in topic_ids and topic in self.topic_ids:
                topic_ids[topic] = self.topic_ids[topic]
        return ReadTask(
            own,
            self._brokers,
            list(leaders),
            topic_ids,
            greeting,
            self.order(splits) if self.order is not None else None,
        )


class TaskPlans:
    """Plans the tasks of a stream's batches, which run anywhere."""

    def __init__(self) -> None:
        self._figures: dict[str, int] | None = None
        self._planned = 0

    def close(self) -> None: ...

    def look(self) -> None:
        """Learn between two batches which executors there are."""

    def follow(self, state: Callable[[], KnownState | None]) -> None:
        """Learn before a batch is planned what state there is of keys."""

    def plan(
        self, reads: BatchReads, sizes: Sizes, key_hashes: SampledHashes, maker: TaskMaker
    ) -> Sequence[InputPartition]:
        with rare_collections():
            return self._run_anywhere(reads.splits(sizes, key_hashes), sizes, maker)

    def metrics(self) -> dict[str, Any]:
        """Sections of the query's progress; what the last plan costs, if there was one."""
        # The number tells two plans of a run apart.
        figures = self._figures
        return {} if figures is None else {"plan": {"number": self._planned} | figures}

    def _run_anywhere(
        self,
        planned: Sequence[tuple[Split, ...]],
        sizes: Sizes,
        maker: TaskMaker,
        greeting: Greeting | None = None,
    ) -> list[ReadTask]:
        self._note(len(planned), planned, sizes)
        return [maker.task(splits, greeting) for splits in planned]

    def _note(self, tasks: int, read: Iterable[Sequence[Split]], sizes: Sizes) -> None:
        self._figures = plan_figures(tasks, (split for splits in read for split in splits), sizes)
        self._planned += 1


class PinnedTaskPlans(TaskPlans):
    """Plans tasks that ask for portions of their executor's slot, if there is an assignment, and
    otherwise tasks that run anywhere."""

    def __init__(self, options: SourceOptions, pinning: Pinning) -> None:
        super().__init__()
        self._options = options
        self._pinning = pinning

    def close(self) -> None:
        self._pinning.close()

    def look(self) -> None:
        self._pinning.look()

    def follow(self, state: Callable[[], KnownState | None]) -> None:
        self._pinning.follow(state())

    def plan(
        self, reads: BatchReads, sizes: Sizes, key_hashes: SampledHashes, maker: TaskMaker
    ) -> Sequence[InputPartition]:
        pinning, ranges, home = self._pinning, reads.ranges, self._options.commits.scope.home
        # Key ranges are owned where their state stands, and with them those that share it.
        there = {home(each) for each in maker.view.partitions()}
        weights = dict.fromkeys(map(home, ranges), 0.0)
        for partition, span in ranges.items():
            weights[home(partition)] += span.size * sizes[partition]
        pinning.take_in(weights, there)
        greeting = pinning.greeting()
        owners = pinning.owners(list(weights))
        if owners is not None:
            check_accepted(ranges, self._options)
            portions = reads.portions(owners, pinning.shape, sizes, key_hashes)
            if portions is not None:
                tasks = pinning.bind(portions, lambda portion: maker.task(portion.splits))
                self._note(len(tasks), [portion.splits for portion in portions], sizes)
                return tasks
            pinning.pass_over()
            _log.info("the batch was cut for another assignment: its tasks run anywhere")
        return self._run_anywhere(reads.splits(sizes, key_hashes), sizes, maker, greeting)

    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"members": self._pinning.metrics()}
