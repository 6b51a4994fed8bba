"""Positions in a cluster from what options say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from keyrange.errors import error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.groups import committed_offsets
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST, OffsetRange, Positions, TopicPartition
from keyrange.model.position_options import (
    Everywhere,
    GroupOffsets,
    Offsets,
    PositionSpec,
    Timestamp,
    Timestamps,
)


def resolve_positions(
    cluster: Cluster, view: ClusterView, spec: PositionSpec
) -> dict[TopicPartition, int]:
    """Where each partition of the view starts or ends: an offset, or still EARLIEST or LATEST.

    Timestamps and group offsets are looked up: without a record of a time a partition stands where
    its log ended just before. Raises
    KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED or KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED
    where positions are not for exactly the partitions that exist, NO_OFFSET_FOR_TIMESTAMP and
    NO_GROUP_OFFSETS where the options leave no other way.
    """
    partitions = view.partitions()
    match spec.positions:
        case Everywhere(which):
            return dict.fromkeys(partitions, which)
        case Offsets(each, rest):
            _check_named(partitions, each, rest, spec.option, _OFFSETS_MISMATCH)
            return {p: each[p] if p in each else _known(rest) for p in partitions}
        case Timestamp(timestamp_ms, unmatched):
            return _at_times(cluster, view, dict.fromkeys(partitions, timestamp_ms), unmatched)
        case Timestamps(each, unmatched, rest):
            _check_named(partitions, each, rest, spec.option, _TIMESTAMPS_MISMATCH)
            found = _at_times(cluster, view, each, unmatched)
            return {p: found[p] if p in each else _known(rest) for p in partitions}
        case GroupOffsets(group_id, rest):
            return _at_commits(cluster, group_id, partitions, rest)


def bind(
    cluster: Cluster, view: ClusterView, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets of places: EARLIEST and LATEST are asked for."""
    unresolved = {partition: at for partition, at in positions.items() if at < 0}
    found = cluster.list_offsets(view, unresolved) if unresolved else {}
    return {
        partition: found[partition][0] if partition in found else at
        for partition, at in positions.items()
    }


def resolve(cluster: Cluster, view: ClusterView, spec: PositionSpec) -> dict[TopicPartition, int]:
    """`resolve_positions` and `bind` in one."""
    return bind(cluster, view, resolve_positions(cluster, view, spec))


def between(first: Positions, last: Positions) -> dict[TopicPartition, OffsetRange]:
    """What lies between two sets of offsets.

    Raises RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.
    """
    for partition in sorted(first):
        _check_order(partition, first[partition], last[partition])
    return {partition: OffsetRange(at, last[partition]) for partition, at in first.items()}


def _check_order(partition: TopicPartition, first: int, last: int) -> None:
    if first > last:
        raise error(
            "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
            f"The resolved start offset {first} is greater than the resolved end offset {last} "
            f"for topic {partition.topic} partition {partition.partition}",
        )


def bind_splits(cluster: Cluster, view: ClusterView, splits: Sequence[Split]) -> list[Split]:
    """Splits with offsets in place of EARLIEST and LATEST.

    A log may end before its split begins, where its topic was created anew since the plan: raises
    RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.
    """
    first = {s.topic_partition: EARLIEST for s in splits if s.from_offset == EARLIEST}
    last = {s.topic_partition: LATEST for s in splits if s.until_offset == LATEST}
    if not first and not last:
        return list(splits)
    starts, ends = bind(cluster, view, first), bind(cluster, view, last)
    bound = []
    for split in splits:
        partition, at, until = split.topic_partition, split.from_offset, split.until_offset
        if until == LATEST:
            until = ends[partition]
            if at != EARLIEST:
                _check_order(partition, at, until)
        at = starts[partition] if at == EARLIEST else at
        bound.append(replace(split, from_offset=at, until_offset=until))
    return bound


_OFFSETS_MISMATCH: Final = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
_TIMESTAMPS_MISMATCH: Final = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"


def _check_named(
    partitions: Iterable[TopicPartition],
    each: Mapping[TopicPartition, int],
    rest: int | None,
    option: str,
    condition: str,
) -> None:
    """With a place for the rest, all that is named must exist; without one, all must be named."""
    missing = set(partitions) - each.keys() if rest is None else set()
    unknown = each.keys() - set(partitions)
    if missing or unknown:
        which = "exactly the partitions that exist" if rest is None else "partitions that exist"
        raise error(
            condition,
            f"option '{option}' must name {which}",
            missing=_text(missing),
            unknown=_text(unknown),
        )


def _known(rest: int | None) -> int:
    assert rest is not None
    return rest


def _at_times(
    cluster: Cluster,
    view: ClusterView,
    times: Mapping[TopicPartition, int],
    unmatched: int | None,
) -> dict[TopicPartition, int]:
    # First where the logs end: of two questions the second one knows all that the first one did not
    # find. A record that comes between them would else be passed over, or read behind an end.
    latest = dict.fromkeys(times, LATEST) if unmatched is not None else {}
    ends = cluster.list_offsets(view, latest) if latest else {}
    found = cluster.list_offsets(view, times) if times else {}
    behind = sorted(partition for partition, (at, _) in found.items() if at < 0)
    if behind and unmatched is None:
        shown = ", ".join(f"{partition} and timestamp {times[partition]}" for partition in behind)
        raise error(
            "NO_OFFSET_FOR_TIMESTAMP", f"No offset matched from request of topic-partition {shown}"
        )
    return {p: at if at >= 0 else ends[p][0] for p, (at, _) in found.items()}


def _at_commits(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], rest: int | None
) -> dict[TopicPartition, int]:
    committed = committed_offsets(cluster, group_id, partitions)
    without = [partition for partition in partitions if partition not in committed]
    if without and rest is None:
        raise error(
            "NO_GROUP_OFFSETS", f"group {group_id} has no committed offset for {_text(without)}"
        )
    return {p: committed[p][0] if p in committed else _known(rest) for p in partitions}


def earliest(
    cluster: Cluster, view: ClusterView, partitions: Iterable[TopicPartition]
) -> Positions:
    return bind(cluster, view, dict.fromkeys(partitions, EARLIEST))


def _text(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"
