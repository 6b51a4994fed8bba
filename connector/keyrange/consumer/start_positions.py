"""Where a group begins that has committed nothing."""

from __future__ import annotations

from collections.abc import Iterable

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.offsets import EARLIEST, Positions, TopicPartition
from keyrange.kafka.model.position_options import PositionSpec
from keyrange.kafka.position_lookup import bind, resolve_positions


def start_positions(
    cluster: Cluster,
    view: ClusterView,
    partitions: Iterable[TopicPartition],
    start: PositionSpec | None,
) -> Positions:
    """As the options say; without `start` the beginning of partitions that were found later."""
    wanted = list(partitions)
    positions: Positions = dict.fromkeys(wanted, EARLIEST)
    if start is not None:
        positions = resolve_positions(cluster, view, start)
    return bind(cluster, view, {p: positions[p] for p in wanted})
