"""What a batch reads, dealt out to tasks: by partition, by key range, or by offset, as the options
say.

Rule of this file: no Spark and no cluster, so that the command line shows the plan that a query
would have. What is known of the cluster comes in as numbers.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from keyrange.errors import error
from keyrange.individual_commits.batch_deliveries import work_of
from keyrange.individual_commits.model import delivery_splits
from keyrange.individual_commits.model.delivery_splits import PartitionDeliveries
from keyrange.members.model import pinned_plan
from keyrange.members.model.assignment import Owners
from keyrange.members.model.pinned_plan import Shape, WorkUnit
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offset_splits import Split, deal, plan_splits
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.model.state_scope import StateScope
from keyrange.options import SourceOptions
from keyrange.ranges.model.plan_check import Area, HandedOut, check_plan, without_whole
from keyrange.ranges.model.range_plan import (
    RangeEstimate,
    auto_ranges,
    cut_by_bytes,
    even_ranges,
    plan_tasks,
    weigh,
)
from keyrange.ranges.sharing.shared_directory import name_of
from keyrange.source.trigger_limits import SizesOf
from keyrange.work.model.work_order import TaskPartition

Ranges = Mapping[TopicPartition, OffsetRange]
Sizes = Mapping[TopicPartition, float]
# The key hashes of a sample of a partition's records.
SampledHashes = Callable[[TopicPartition], Sequence[int]]


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What a batch reads if it reads all records of a range of offsets of each partition."""

    ranges: Ranges
    options: SourceOptions

    def only(self, partitions: Collection[TopicPartition]) -> NewRecords:
        return NewRecords({p: self.ranges[p] for p in partitions}, self.options)

    def works(self, splits: Sequence[Split]) -> dict[TopicPartition, TaskPartition]:
        """What a task knows of each partition that works on these splits."""
        return dict.fromkeys({each.topic_partition for each in splits}, TaskPartition((SPACE,)))

    def splits(self, bytes_per_offset: Sizes, key_hashes: SampledHashes) -> list[tuple[Split, ...]]:
        """The splits of each task, where tasks run anywhere."""
        planned = plan_read(self.ranges, bytes_per_offset, key_hashes, self.options)
        ranges = dict(self.ranges)
        splits: Iterable[Split] = chain.from_iterable(planned)
        if not self.options.key_ranges.partial:
            # Of a plan by partition nothing is left: areas of it would take longer than the plan.
            splits = without_whole(splits, ranges)
        check_plan(splits, self._handed_out(ranges, whole=False))
        return planned

    def portions(
        self, owners: Owners, shape: Shape, bytes_per_offset: Sizes, key_hashes: SampledHashes
    ) -> list[WorkUnit] | None:
        """What the tasks of each slot ask for, where key ranges belong to slots."""
        names = partial(naming, self.options)
        planned = pinned_plan.plan_pinned(
            self.ranges, owners, bytes_per_offset, key_hashes, shape, names
        )
        check_plan(_splits_of(planned), self._handed_out(self.ranges, whole=True))
        return planned

    def _handed_out(self, ranges: Ranges, whole: bool) -> dict[TopicPartition, HandedOut]:
        """With `whole` all keys, else those that the query reads."""
        keys = self.options.key_ranges
        found: dict[TopicPartition, HandedOut] = {}
        for partition, each in ranges.items():
            spans = (keys.partial and not whole and keys.given(partition)) or (SPACE,)
            areas = [Area(span, each.from_offset, each.until_offset) for span in spans]
            found[partition] = HandedOut(tuple(areas))
        return found


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What a batch reads if pending records come again beside the new ones. `spans` are the key
    ranges that this query reads of each partition."""

    deliveries: PartitionDeliveries
    spans: Mapping[TopicPartition, Sequence[KeyRange]]
    options: SourceOptions
    has_time: bool = False

    @property
    def scope(self) -> StateScope:
        """Which partitions share the state of keys."""
        return self.options.commits.scope

    @property
    def ranges(self) -> Ranges:
        """Of each partition the offsets from the lowest to the highest."""
        return {partition: delivery.reach for partition, delivery in self.deliveries.items()}

    def only(self, partitions: Collection[TopicPartition]) -> Deliveries:
        found = {p: self.deliveries[p] for p in partitions}
        return Deliveries(found, self.spans, self.options, self.has_time)

    def works(self, splits: Sequence[Split]) -> dict[TopicPartition, TaskPartition]:
        """What a task knows of each partition that works on these splits."""
        spans: dict[TopicPartition, list[KeyRange] | None] = {}
        again: dict[TopicPartition, set[int]] = {}
        for each in splits:
            if self.has_time and each.delivery is not None:
                again.setdefault(each.topic_partition, set()).update(each.delivery.offsets)
            known = spans.setdefault(each.topic_partition, [])
            if each.placement is None:
                spans[each.topic_partition] = None
            elif known is not None:
                known += each.placement.ranges()
        held = self.has_time and self.options.commits.transactional
        return {
            at: work_of(self.deliveries[at], own, again.get(at, ()), held)
            for at, own in spans.items()
        }

    def splits(self, bytes_per_offset: Sizes, key_hashes: SampledHashes) -> list[tuple[Split, ...]]:
        """The splits of each task, where tasks run anywhere."""
        cells = delivery_splits.plan_cells(
            self.deliveries, self.spans, bytes_per_offset, key_hashes
        )
        options, name = self.options, naming(self.options)
        stretches: list[list[RangeEstimate]]
        if options.key_ranges.split_by == "partition":
            # The mark of a batch that an earlier run planned may cut a partition into several.
            whole: dict[TopicPartition, list[RangeEstimate]] = {}
            for cell in cells:
                whole.setdefault(cell.partition, []).append(cell)
            sizes = [
                Split(partition, 0, 0, round(sum(cell.bytes for cell in own)))
                for partition, own in whole.items()
            ]
            tasks = deal_out(sizes, options)
            stretches = [
                [cell for split in task for cell in whole[split.topic_partition]] for task in tasks
            ]
        else:
            check_accepted(self.deliveries, options)
            wanted = max(cores(options), options.min_tasks, options.min_partitions or 1)
            count = len(cells) if options.bytes_per_task == 0 else wanted
            stretches = delivery_splits.cut_groups(cells, count, self.scope)
        planned = delivery_splits.plan_deliveries(
            stretches, self.deliveries, bytes_per_offset, name, self.scope
        )
        check_plan(chain.from_iterable(planned), self._handed_out())
        return planned

    def portions(
        self, owners: Owners, shape: Shape, bytes_per_offset: Sizes, key_hashes: SampledHashes
    ) -> list[WorkUnit] | None:
        """As of new records; None if one of `spans` belongs to two slots."""
        names = partial(naming, self.options)
        planned = pinned_plan.plan_pinned_deliveries(
            *(self.deliveries, self.spans, owners, bytes_per_offset, key_hashes, shape, names),
            self.scope,
        )
        if planned is not None:
            check_plan(_splits_of(planned), self._handed_out())
        return planned

    def _handed_out(self) -> dict[TopicPartition, HandedOut]:
        return {
            partition: delivery_splits.handed_out(delivery, self.spans[partition])
            for partition, delivery in self.deliveries.items()
        }


BatchReads = NewRecords | Deliveries


def _splits_of(portions: Iterable[WorkUnit]) -> Iterator[Split]:
    return chain.from_iterable(each.splits for each in portions)


def plan_read(
    ranges: Ranges, bytes_per_offset: Sizes, key_hashes: SampledHashes, options: SourceOptions
) -> list[tuple[Split, ...]]:
    """The splits of each task that reads `ranges`."""
    if options.key_ranges.split_by == "partition":
        splits = plan_splits(
            ranges, bytes_per_offset, options.min_partitions, options.max_records_per_partition
        )
        return deal_out(splits, options)
    check_accepted(ranges, options)
    if options.key_ranges.split_by == "offset":
        return cut_by_bytes(ranges, bytes_per_offset, _task_count(ranges, options))
    cells = plan_cells(ranges, bytes_per_offset, key_hashes, options)
    # As for partitions: no bytes to fill up a task with, so each has its own.
    count = len(cells) if options.bytes_per_task == 0 else _task_count(ranges, options)
    return plan_tasks(cells, ranges, count, naming(options))


def count_ranges(
    pending: Ranges,
    sizes_of: SizesOf,
    fires: Collection[TopicPartition],
    options: SourceOptions,
) -> dict[TopicPartition, int]:
    """Into how many even key ranges each partition is cut that is cut at all, of those that are
    read and of those whose timers fire."""
    keys = options.key_ranges
    if keys.split_by != "keyRange":
        return {}
    # Where nothing but timers is due nobody knows how much work that is.
    idle = {partition: OffsetRange(0, 1) for partition in fires if partition not in pending}
    counts = {
        **auto_ranges(pending, sizes_of(pending) if pending else {}, cores(options)),
        **auto_ranges(idle, dict.fromkeys(idle, 1.0), cores(options)),
    }
    return {
        partition: keys.ranges_per_partition or count
        for partition, count in counts.items()
        if keys.given(partition) is None and (keys.ranges_per_partition or count) > 1
    }


def deal_out(splits: Sequence[Split], options: SourceOptions) -> list[tuple[Split, ...]]:
    """Splits by partition, dealt out to tasks as the options say."""
    tasks_min = max(options.min_tasks, options.min_partitions or 1)
    # A bound on the records of a task is none if splits share one.
    bytes_per_task = options.bytes_per_task if options.max_records_per_partition is None else 0
    return deal(splits, bytes_per_task, tasks_min)


def cores(options: SourceOptions) -> int:
    """How many tasks can run at once, as far as it is known."""
    return options.key_ranges.cores or os.cpu_count() or 1


def plan_cells(
    ranges: Ranges, bytes_per_offset: Sizes, key_hashes: SampledHashes, options: SourceOptions
) -> list[RangeEstimate]:
    """The key ranges of all partitions, with the bytes that are expected in them."""
    counts = auto_ranges(ranges, bytes_per_offset, cores(options))
    cells: list[RangeEstimate] = []
    for partition, span in sorted(ranges.items()):
        size = span.size * bytes_per_offset[partition]
        spans = key_ranges_of(partition, options, counts[partition])
        cells += weigh(partition, spans, size, key_hashes(partition))
    return cells


def key_ranges_of(
    partition: TopicPartition, options: SourceOptions, auto: int
) -> Sequence[KeyRange]:
    """The ranges that a partition is read in; `auto` is how many where nothing else is said."""
    given = options.key_ranges.given(partition)
    if given is not None:
        return given
    if options.key_ranges.partial:
        raise error(
            "KEY_RANGES_MISSING",
            f"keyRangesCoverage is partial, and keyRanges does not name partition {partition}",
        )
    return even_ranges(options.key_ranges.ranges_per_partition or auto)


def check_partitions(partitions: Collection[TopicPartition], options: SourceOptions) -> None:
    """Refuse what cannot be planned, before an end is in the checkpoint that no task reads up to:
    the options that mend it would be other ones than the checkpoint's."""
    if options.key_ranges.split_by == "partition":
        return
    check_accepted(partitions, options)
    if options.key_ranges.partial:
        for partition in sorted(partitions):
            key_ranges_of(partition, options, 1)


def check_accepted(partitions: Collection[TopicPartition], options: SourceOptions) -> None:
    """Refuse to split topics whose records need the order of their partition."""
    for topic in sorted({partition.topic for partition in partitions}):
        if not options.key_ranges.accepts_splits(topic):
            raise error(
                "RANGE_FETCH_NOT_ACCEPTED",
                f"option accept.range.fetch keeps topic {topic} in the order of its partitions, "
                f"and splitBy={options.key_ranges.split_by} would not",
            )


def _task_count(ranges: Ranges, options: SourceOptions) -> int:
    wanted = max(cores(options), options.min_tasks, options.min_partitions or 1)
    return min(wanted, max(sum(span.size for span in ranges.values()), 1))


def naming(options: SourceOptions) -> Callable[[TopicPartition], str]:
    """Names for what the tasks of one plan share on a host."""
    keys = options.key_ranges
    if keys.memory_bytes + keys.spill_bytes == 0:
        return lambda partition: ""  # noqa: ARG005
    plan = uuid.uuid4().hex
    return lambda partition: name_of(plan, *partition)
