"""Splits of one topic that are read from scripted brokers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from brokers.scripted_broker import ScriptedCluster, World
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.wire.chunk_decoder import DecodeSettings
from samples.strategies import Batch, Record, encode_batch


def reader(
    world: World, fail_on_data_loss: bool = True, timeout_ms: int = 10_000, **settings: Any
) -> SplitReader:
    how = ReadSettings(DecodeSettings(), fail_on_data_loss, timeout_ms)
    cluster: Any = ScriptedCluster(world, **settings)
    view = world.view()
    # What a task knows is what the driver put into it.
    return SplitReader(cluster, ClusterView("", {1: view.brokers[1]}, view.topics), how)


def offsets(batches: Iterable[Any]) -> list[tuple[int, int]]:
    return [
        place
        for batch in batches
        for place in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]


def log(offset: int, count: int = 5) -> bytes:
    return encode_batch(Batch(offset, tuple(Record(n) for n in range(count))))


def small(partition: int, until: int = 10) -> Split:
    return Split(TopicPartition("t", partition), 0, until, 1_000)
