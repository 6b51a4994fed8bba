"""Scripted brokers for the reader of splits: what each fetch is answered is up to a test."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import FetchResponse

from keyrange.errors import error
from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic
from keyrange.kafka.connection import ConnectionLost
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.options.kafka_properties import ClientSettings

ID = "0" * 31 + "1"
Answered = FetchResponse.FetchableTopicResponse
VERSION = 13


@dataclass
class Fetched:
    """What a scripted broker answers to one fetch."""

    records: bytes = b""
    high_watermark: int = 1_000
    error_code: int = 0
    replica: int = -1
    throttle_time_ms: int = 0
    empty: bool = False
    # Producers, and the first offsets of what they aborted.
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass
class World:
    """Two brokers and a script: (node, partition, offset) of a fetch to its answer."""

    script: Callable[[int, int, int], Fetched]
    brokers: dict[int, Broker] = field(
        default_factory=lambda: {n: Broker(n, f"b{n}", 9092) for n in (1, 2)}
    )
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    # The leader epoch that each of these fetches named.
    epochs: list[int] = field(default_factory=list)
    # And the client's rack.
    racks: list[str] = field(default_factory=list)
    leader: int = 1
    epoch: int = 0
    latest: int = 1_000
    # The last stable offset, where it lies before the end.
    stable: int | None = None
    earliest: int = 0
    topic_exists: bool = True
    topic_id: str = ID

    def view(self) -> ClusterView:
        leaders = {number: Leader(self.leader, self.epoch, (1, 2)) for number in range(4)}
        return ClusterView("", dict(self.brokers), {"t": Topic(self.topic_id, leaders)})


class ScriptedConnection:
    def __init__(self, world: World, node: int) -> None:
        self._world, self._node = world, node
        self._sent: deque[tuple[int, int, str, str]] = deque()
        self.open = True
        self.address = f"broker-{node}:9092"

    @property
    def fresh(self) -> bool:
        return self.open

    @property
    def busy(self) -> bool:
        return self.open and bool(self._sent)

    def close(self) -> None:
        self.open = False

    def fetch_version(self) -> int:
        return VERSION

    def send(self, request: Any, version: int) -> None:
        if not self.open:
            raise ConnectionLost("closed")
        [topic] = request.topics
        [partition] = topic.partitions
        asked = (partition.partition, partition.fetch_offset, topic.topic_id.hex)
        self._sent.append((*asked, request.rack_id))
        self._world.epochs.append(partition.current_leader_epoch)

    def receive(self, buffer: Any, bytes_max: int, **context: Any) -> Any:
        if not self.open:
            raise ConnectionLost("closed")
        partition, offset, topic_id, rack = self._sent.popleft()
        self._world.racks.append(rack)
        self._world.asked.append((self._node, partition, offset))
        try:
            fetched = Fetched(error_code=100)
            if topic_id == self._world.topic_id:
                fetched = self._world.script(self._node, partition, offset)
        except ConnectionLost:
            self.open = False
            raise
        return memoryview(bytearray(b"\0" * 5 + encode(partition, fetched, topic_id)))


def encode(partition: int, fetched: Fetched, topic_id: str = ID) -> bytes:
    member = Answered.PartitionData(
        partition_index=partition,
        error_code=fetched.error_code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.high_watermark,
        log_start_offset=0,
        aborted_transactions=[
            Answered.PartitionData.AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in fetched.aborted
        ],
        preferred_read_replica=fetched.replica,
        records=fetched.records,
    )
    responses = [Answered(topic="", topic_id=uuid.UUID(hex=topic_id), partitions=[member])]
    message = FetchResponse(
        throttle_time_ms=fetched.throttle_time_ms,
        error_code=0,
        session_id=0,
        responses=[] if fetched.empty else responses,
        version=VERSION,
    )
    return bytes(message.encode(version=VERSION))


class ScriptedCluster:
    """As `keyrange.kafka.cluster.Cluster`: fetch connections apart from all others."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.settings = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=5, **settings)
        self._world = world
        self._connections: dict[int, ScriptedConnection] = {}

    def has_answered(self) -> None: ...

    def connection(
        self, host: str, port: int, timeout_ms: float | None = None, ahead: bool = False
    ) -> ScriptedConnection:
        assert ahead
        node = int(host[1:])
        kept = self._connections.get(node)
        if kept is None or not kept.open:
            kept = self._connections[node] = ScriptedConnection(self._world, node)
        return kept

    def describe(
        self, topics: Iterable[str], timeout_ms: float = 0, may_miss: Collection[str] = ()
    ) -> ClusterView:
        if not self._world.topic_exists:
            raise error("UNKNOWN_TOPIC_OR_PARTITION", "gone")
        return self._world.view()

    def describe_matching(self, matches: Callable[[str], bool]) -> ClusterView:
        view = self._world.view()
        return view if matches("t") else ClusterView("", view.brokers, {})

    def close(self) -> None: ...

    def list_offsets(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        level: int | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, tuple[int, int]]:
        committed = level == 1 or (
            level is None and self.settings.isolation_level == "read_committed"
        )
        stable = self._world.stable if committed else None
        latest = self._world.latest if stable is None else stable
        ends = {EARLIEST: self._world.earliest, LATEST: latest}
        return {p: (ends[which], self._world.epoch) for p, which in wanted.items()}
