"""What `keyrange ranges plan` prints: a plan as plain values.

Rule of this file: pure, from what the planner says to what is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange, merge, write_ranges
from keyrange.ranges.model.offset_splits import Split
from keyrange.ranges.model.plan_figures import fetched_bytes, fetched_once
from keyrange.ranges.model.range_plan import RangeEstimate
from keyrange.source.planning import Ranges, Sizes


@dataclass(frozen=True, slots=True)
class RangesPlan:
    """The tasks of a batch, and what they were planned from.

    `cells` are the key ranges, none where partitions are not split by key; `samples` says how many
    records of a partition were looked at.
    """

    tasks: Sequence[Sequence[Split]]
    cells: Sequence[RangeEstimate]
    ranges: Ranges
    bytes_per_offset: Sizes
    samples: dict[TopicPartition, int]

    def size(self, partition: TopicPartition) -> float:
        """The bytes of log that are to be read of a partition."""
        return self.ranges[partition].size * self.bytes_per_offset[partition]

    def readers(self, partition: TopicPartition) -> list[int]:
        """The tasks that read a partition."""
        return [
            number
            for number, splits in enumerate(self.tasks)
            if any(split.topic_partition == partition for split in splits)
        ]

    def task_of(self, cell: RangeEstimate) -> int:
        """The task that reads a key range."""
        return next(
            number
            for number, splits in enumerate(self.tasks)
            for split in splits
            if split.topic_partition == cell.partition and _reads(split, cell.span)
        )


def _reads(split: Split, span: KeyRange) -> bool:
    placement = split.placement
    return placement is None or any(own.contains(span.from_hash) for own in placement.ranges())


def document(plan: RangesPlan, split_by: str, cores: int) -> dict[str, Any]:
    """The document that `--output json` prints; the tables show the same."""
    total = sum(plan.size(partition) for partition in plan.ranges)
    splits = [split for splits in plan.tasks for split in splits]
    return {
        "split_by": split_by,
        "parallelism": cores,
        "offsets": sum(span.size for span in plan.ranges.values()),
        "bytes": round(total),
        "read_amplification": {
            "one_executor": _ratio(plan, fetched_once(splits), total),
            "without_sharing": _ratio(plan, splits, total),
        },
        "partitions": [_partition(plan, partition) for partition in sorted(plan.ranges)],
        "tasks": [_task(number, splits) for number, splits in enumerate(plan.tasks)],
    }


def _ratio(plan: RangesPlan, fetched: Sequence[Split], total: float) -> float:
    return round(fetched_bytes(fetched, plan.bytes_per_offset) / total, 2) if total else 1.0


def _partition(plan: RangesPlan, partition: TopicPartition) -> dict[str, Any]:
    span = plan.ranges[partition]
    cells = [cell for cell in plan.cells if cell.partition == partition]
    return {
        **partition._asdict(),
        "from_offset": span.from_offset,
        "until_offset": span.until_offset,
        "bytes": round(plan.size(partition)),
        "sampled_records": plan.samples.get(partition, 0),
        "tasks": plan.readers(partition),
        "ranges": [_range(plan, number, cell) for number, cell in enumerate(cells)],
    }


def _range(plan: RangesPlan, number: int, cell: RangeEstimate) -> dict[str, Any]:
    return {
        "index": number,
        "range": write_ranges([cell.span])[0],
        "records": round(cell.bytes / plan.bytes_per_offset[cell.partition]),
        "bytes": round(cell.bytes),
        "hot": cell.hot,
        "task": plan.task_of(cell),
    }


def _task(number: int, splits: Sequence[Split]) -> dict[str, Any]:
    return {
        "task": number,
        "bytes": sum(split.bytes_estimate for split in splits),
        "splits": [
            {
                **split.topic_partition._asdict(),
                "from_offset": split.from_offset,
                "until_offset": split.until_offset,
                # None where all keys are read.
                "ranges": write_ranges(merge(split.placement.ranges()))
                if split.placement
                else None,
                "bytes": split.bytes_estimate,
            }
            for split in splits
        ],
    }
