"""What became of the partitions since an offset was written: new, deleted, recreated, gone back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from keyrange.core.checkpoint import Checkpoint
from keyrange.core.offsets import Positions, TopicPartition
from keyrange.errors import KeyrangeError, error


@dataclass(frozen=True, slots=True)
class Findings:
    """Where to start every partition, and what was lost.

    `restarted` are the partitions whose position in the offset does not hold any more. `losses` are
    not raised here: whether they pass is an option.
    """

    start: dict[TopicPartition, int]
    restarted: frozenset[TopicPartition]
    losses: tuple[KeyrangeError, ...]


def compare(
    start: Checkpoint,
    latest: Positions,
    firsts: Positions,
    recreated: Collection[str],
) -> Findings:
    """Compare an offset with the cluster.

    `latest`: where the partitions that exist end. `firsts`: where the new ones, and those of
    `recreated` topics, begin.
    """
    losses: list[KeyrangeError] = []
    begin: dict[TopicPartition, int] = {}
    restarted: set[TopicPartition] = set()
    for topic in sorted(recreated):
        losses.append(
            error(
                "KAFKA_DATA_LOSS.TOPIC_RECREATED",
                f"some data may have been lost: topic {topic} was deleted and created anew",
                was=start.topic_ids.get(topic, ""),
            )
        )
    deleted = sorted(set(start.positions) - set(latest))
    if deleted:
        names = ", ".join(map(str, deleted))
        losses.append(
            error(
                "KAFKA_DATA_LOSS.PARTITIONS_DELETED",
                f"some data may have been lost: partitions {names} are gone",
            )
        )
    for partition in sorted(latest):
        known = start.positions.get(partition)
        if partition.topic in recreated:
            begin[partition] = firsts.get(partition, 0)
            restarted.add(partition)
        elif known is None:
            begin[partition] = firsts.get(partition, 0)
            if begin[partition] != 0:
                losses.append(
                    error(
                        "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                        f"some data may have been lost: the new partition {partition} starts from "
                        f"{begin[partition]}",
                    )
                )
        elif latest[partition] < known:
            losses.append(
                error(
                    "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
                    f"some data may have been lost: the end of partition {partition} was changed "
                    f"from {known} to {latest[partition]}",
                )
            )
            begin[partition] = latest[partition]
            restarted.add(partition)
        else:
            begin[partition] = known
    return Findings(begin, frozenset(restarted), tuple(losses))
