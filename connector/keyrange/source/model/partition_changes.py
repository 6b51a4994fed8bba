"""What became of the partitions since an offset was written: new, absent, recreated, gone back.

Whether a partition was deleted for good, nobody says: a broker that has just started, or that may
not tell this principal of a topic for a moment, gives the same answer. So where it stood is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.offsets import Positions, TopicPartition
from keyrange.model.subscription import Assign, SubscribePattern, Subscription

# An offset is written with every batch: of what went long ago no more than so many are kept.
ABSENT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Findings:
    """Where to start every partition, and what was lost.

    `restarted` are the partitions whose position in the offset does not hold any more. `losses` are
    not raised here: whether they pass is an option. `absent` is where partitions stood that are not
    there, the longest absent first; `back` are those that were absent and go on there, `forgotten`
    those that have been absent for too long.
    """

    start: dict[TopicPartition, int]
    restarted: frozenset[TopicPartition]
    losses: tuple[KeyrangeError, ...]
    absent: dict[TopicPartition, int]
    back: tuple[TopicPartition, ...] = ()
    forgotten: tuple[TopicPartition, ...] = ()


def compare(
    start: Checkpoint,
    latest: Positions,
    firsts: Positions,
    recreated: Collection[str],
    truncated: Positions = MappingProxyType({}),
    group_id: str = "",
    subscription: Subscription | None = None,
) -> Findings:
    """Compare an offset with the cluster.

    `latest`: where the partitions that exist end. `firsts`: where the new ones, and those of
    `recreated` topics, begin. `truncated`: where the logs part that lost records after the offset
    was written. `group_id` is the user's own, for the name of the loss alone. `subscription` tells
    partitions that are gone from those that the options do not name any more.
    """
    # That a topic went whose partitions are all absent was told when they did.
    live = {partition.topic for partition in start.positions}.intersection(recreated)
    stood = {p: at for p, at in start.known.items() if p.topic not in recreated}
    losses = [_recreated(topic, start) for topic in sorted(live)]
    deleted = set(start.positions) - set(latest)
    gone = {p for p in deleted if subscription is None or subscription.names(p)}
    if subscription is not None and deleted > gone:
        losses.append(_deleted(_not_named(sorted(deleted - gone), subscription), group_id))
    if gone:
        names = ", ".join(map(str, sorted(gone)))
        losses.append(
            _deleted(f"some data may have been lost: partitions {names} are gone", group_id)
        )
    begin: dict[TopicPartition, int] = {}
    restarted: set[TopicPartition] = set()
    for partition in sorted(latest):
        known = stood.get(partition)
        if known is None:
            begin[partition] = firsts.get(partition, 0)
            if partition.topic in live:
                restarted.add(partition)
            elif begin[partition] != 0:
                losses.append(_not_from_zero(partition, begin[partition]))
            continue
        begin[partition] = truncated.get(partition, min(known, latest[partition]))
        if partition in truncated:
            losses.append(_truncated(partition, known, begin[partition], start))
            restarted.add(partition)
        elif begin[partition] < known:
            losses.append(_went_back(partition, known, begin[partition]))
            restarted.add(partition)
    back = tuple(p for p in sorted(start.absent) if stood.get(p) == begin.get(p, -1))
    # Without its topic's id nobody could tell one that is back from one of another topic.
    absent = {p: at for p, at in stood.items() if p not in latest and start.topic_ids.get(p.topic)}
    long_absent = [p for p in absent if p not in start.positions]
    forgotten = tuple(long_absent[: max(len(long_absent) - ABSENT_MAX, 0)])
    for partition in forgotten:
        del absent[partition]
    return Findings(begin, frozenset(restarted), tuple(losses), absent, back, forgotten)


def grown(start: Checkpoint, base: Checkpoint) -> dict[str, tuple[int, int]]:
    """Of topics that have more partitions than before, how many they had and have. Partitions that
    are absent count, as they come back; a topic that was made anew has not grown."""
    were, counts = (Counter(each.topic for each in at.known) for at in (start, base))
    return {
        topic: (were[topic], count)
        for topic, count in counts.items()
        if 0 < were[topic] < count and start.topic_ids.get(topic) == base.topic_ids.get(topic)
    }


def _recreated(topic: str, start: Checkpoint) -> KeyrangeError:
    return error(
        "KAFKA_DATA_LOSS.TOPIC_RECREATED",
        f"some data may have been lost: topic {topic} was deleted and created anew",
        was=start.topic_ids.get(topic, ""),
    )


def _deleted(lost: str, group_id: str) -> KeyrangeError:
    if group_id:
        return error(
            "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
            f"{lost}, and kafka.group.id is set to {group_id}",
        )
    return error("KAFKA_DATA_LOSS.PARTITIONS_DELETED", lost)


def _not_named(partitions: Collection[TopicPartition], subscription: Subscription) -> str:
    """Both Spark's own source and this one have one name for these and for those that are gone."""
    if isinstance(subscription, Assign):
        what = "partitions " + ", ".join(map(str, partitions))
    else:
        what = "topics " + ", ".join(sorted({partition.topic for partition in partitions}))
    hint = ""
    if isinstance(subscription, SubscribePattern) and any(
        subscription.leaves_out(partition.topic) for partition in partitions
    ):
        hint = "; set subscribePatternMatch=search, as Spark's own Kafka source reads patterns"
    return (
        f"the checkpoint has positions in {what}, which option '{subscription.option}' does not "
        f"name any more: their records would not be read{hint}"
    )


def _not_from_zero(partition: TopicPartition, first: int) -> KeyrangeError:
    return error(
        "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"some data may have been lost: the new partition {partition} starts from {first}",
    )


def _truncated(partition: TopicPartition, known: int, end: int, start: Checkpoint) -> KeyrangeError:
    return error(
        "KAFKA_DATA_LOSS.LOG_TRUNCATED",
        f"some data may have been lost: the log of partition {partition} was cut back below the "
        f"position {known}, as after an unclean leader election; what was read and what the log "
        f"holds are the same up to offset {end}",
        leader_epoch=start.leader_epochs.get(partition, -1),
    )


def _went_back(partition: TopicPartition, known: int, latest: int) -> KeyrangeError:
    return error(
        "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
        f"some data may have been lost: the end of partition {partition} was changed from {known} "
        f"to {latest}",
    )
