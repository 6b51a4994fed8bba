"""What a planned batch costs to read: its tasks, its key ranges, and what brokers have to send.

These figures are in the progress of the batch that follows, since Spark asks for them before it
asks for a batch's plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from keyrange.model.offset_range_sets import merged
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition


def plan_figures(
    tasks: int, splits: Iterable[Split], bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[str, int]:
    """The figures of the splits that so many tasks read, as a progress has them.

    `keyRanges` is 0 where whole partitions are read. `bytes` are those of the log that is read, as
    far as a sample tells, and `fetchedBytes` what brokers send for it to one executor.
    """
    by_partition: dict[TopicPartition, list[Split]] = {}
    for split in splits:
        by_partition.setdefault(split.topic_partition, []).append(split)
    ranges, read, fetched = 0, 0.0, 0.0
    for partition, own in by_partition.items():
        if len(own) == 1 and own[0].placement is None:
            size = (own[0].until_offset - own[0].from_offset) * bytes_per_offset[partition]
            read, fetched = read + size, fetched + size
            continue
        spans = [(split.from_offset, split.until_offset) for split in own]
        ranges += sum(len(each.placement.ranges()) for each in own if each.placement is not None)
        offsets = sum(end - begin for begin, end in merged(spans))
        size = offsets * bytes_per_offset[partition]
        read += size
        # Splits of other partitions share nothing with these.
        fetched += size if len(own) == 1 else fetched_bytes(fetched_once(own), bytes_per_offset)
    return {
        "tasks": tasks,
        "keyRanges": ranges,
        "bytes": round(read),
        "fetchedBytes": round(fetched),
    }


def fetched_once(splits: Iterable[Split]) -> list[Split]:
    """What one executor fetches: of splits that share it, one stands for all."""
    return list({split.shared or at: split for at, split in enumerate(splits)}.values())


def fetched_bytes(
    splits: Iterable[Split], bytes_per_offset: Mapping[TopicPartition, float]
) -> float:
    """The bytes of log that brokers send, each split's for itself."""
    return sum(
        (split.until_offset - split.from_offset) * bytes_per_offset[split.topic_partition]
        for split in splits
    )
