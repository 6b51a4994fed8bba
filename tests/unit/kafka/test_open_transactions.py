"""What open transactions hold back, as leaders tell it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import error
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.open_transactions import HeldBack, held_back
from keyrange.model.offsets import OffsetRange, TopicPartition
from queries.scripted import T0
from queries.scripted import ScriptedCluster as Scripted

T1 = TopicPartition("t", 1)


class ScriptedCluster(Scripted):
    """Producers by partition number: (id, where its open transaction begins or -1)."""

    def __init__(self, unstable: int, producers: dict[int, list[tuple[int, int]]]) -> None:
        super().__init__(400, partitions=2)
        self.unstable, self.producers = unstable, producers
        self.failure: Exception | None = None
        self.code = 0
        self.described: list[Any] = []

    def deadline(self, timeout_ms: float) -> float:
        return timeout_ms

    def call(self, host: str, port: int, request: Any, by: float) -> Any:
        self.described.append((host, [(t.name, t.partition_indexes) for t in request.topics]))
        if self.failure is not None:
            raise self.failure
        partitions = [
            SimpleNamespace(
                partition_index=number,
                error_code=self.code,
                active_producers=[
                    SimpleNamespace(
                        producer_id=producer,
                        producer_epoch=3,
                        last_timestamp=1_000 + producer,
                        current_txn_start_offset=begin,
                    )
                    for producer, begin in self.producers.get(number, [])
                ],
            )
            for number in request.topics[0].partition_indexes
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=partitions)])


def asked(cluster: ScriptedCluster) -> dict[TopicPartition, HeldBack]:
    scripted: Any = cluster
    return held_back(scripted, cluster.describe(["t"]), [T0, T1])


def test_the_first_open_transaction_is_the_one_that_holds_back() -> None:
    cluster = ScriptedCluster(300, {0: [(7, 250), (8, -1), (9, 100)], 1: [(8, -1)]})
    span = OffsetRange(100, 400)
    assert asked(cluster) == {T0: HeldBack(span, 9, 3, 1_009), T1: HeldBack(span)}
    assert cluster.described == [("b", [("t", [0, 1])])]


def test_nobody_is_asked_where_all_is_stable() -> None:
    cluster = ScriptedCluster(0, {0: [(7, 250)]})
    assert asked(cluster) == {}
    assert cluster.described == []
    assert held_back(cluster, cluster.describe(["t"]), []) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "failure", [error("UNSUPPORTED_BROKER", "too old"), ConnectionLost("gone"), None]
)
def test_a_broker_that_does_not_tell_who_it_is_takes_nothing_away(
    failure: Exception | None,
) -> None:
    cluster = ScriptedCluster(1, {0: [(7, 399)]})
    cluster.failure, cluster.code = failure, 29
    span = OffsetRange(399, 400)
    assert asked(cluster) == {T0: HeldBack(span), T1: HeldBack(span)}
