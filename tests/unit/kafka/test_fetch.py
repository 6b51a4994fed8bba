"""The reader of splits against scripted brokers: answers that are late, lost or odd."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from kafka.protocol.consumer import FetchResponse

from keyrange.client_options import ClientSettings
from keyrange.core.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.core.splits import Split
from keyrange.errors import KeyrangeError, error
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetch import ReadSettings, SplitReader
from keyrange.kafka.view import Broker, ClusterView, Leader, Topic
from keyrange.wire.decode import DecodeSettings
from strategies import Batch, Record, encode_batch

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


@dataclass
class World:
    """Two brokers and a script: (node, partition, offset) of a fetch to its answer."""

    script: Callable[[int, int, int], Fetched]
    brokers: dict[int, Broker] = field(
        default_factory=lambda: {n: Broker(n, f"b{n}", 9092) for n in (1, 2)}
    )
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    latest: int = 1_000
    topic_exists: bool = True

    def view(self) -> ClusterView:
        leaders = {number: Leader(1, 0) for number in range(4)}
        return ClusterView("", dict(self.brokers), {"t": Topic(ID, leaders)})


class ScriptedConnection:
    def __init__(self, world: World, node: int) -> None:
        self._world, self._node = world, node
        self._sent: deque[tuple[int, int]] = deque()
        self.open = True

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
        self._sent.append((partition.partition, partition.fetch_offset))

    def receive(self, buffer: Any, bytes_max: int, **context: Any) -> Any:
        if not self.open:
            raise ConnectionLost("closed")
        partition, offset = self._sent.popleft()
        self._world.asked.append((self._node, partition, offset))
        try:
            fetched = self._world.script(self._node, partition, offset)
        except ConnectionLost:
            self.open = False
            raise
        return np.frombuffer(bytearray(b"\0" * 5 + encode(partition, fetched)), np.uint8)


def encode(partition: int, fetched: Fetched) -> bytes:
    member = Answered.PartitionData(
        partition_index=partition,
        error_code=fetched.error_code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.high_watermark,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=fetched.replica,
        records=fetched.records,
    )
    responses = [Answered(topic="", topic_id=uuid.UUID(hex=ID), partitions=[member])]
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

    def list_offsets(
        self, view: ClusterView, wanted: Mapping[TopicPartition, int], level: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        ends = {EARLIEST: 0, LATEST: self._world.latest}
        return {partition: (ends[which], 0) for partition, which in wanted.items()}


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
    return Split("t", partition, 0, until, 1_000)


def test_a_lost_connection_costs_every_split_on_it_one_more_request() -> None:
    """The answers that were under way are asked for again, and nothing is read twice."""
    lost = iter([True])

    def script(node: int, partition: int, offset: int) -> Fetched:
        if next(lost, False):
            raise ConnectionLost("reset")
        return Fetched(log(offset))

    world = World(script)
    found = offsets(reader(world).read([small(n) for n in range(4)]))

    assert sorted(found) == [(p, n) for p in range(4) for n in range(10)]
    assert len(world.asked) == 1 + 8


def test_a_connection_that_breaks_again_and_again_ends_by_the_deadline() -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        raise ConnectionLost("reset")

    began = time.monotonic()
    with pytest.raises(KeyrangeError, match=r"REQUEST_TIMED_OUT.*reset.*topic=t"):
        offsets(reader(World(script), timeout_ms=300).read([small(0), small(1)]))
    assert time.monotonic() - began < 5


def test_a_replica_that_the_task_does_not_know_is_looked_up() -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        return Fetched(replica=2) if node == 1 else Fetched(log(offset))

    world = World(script)
    found = offsets(reader(world, client_rack="b").read([small(0)]))

    assert found == [(0, n) for n in range(10)]
    assert [node for node, _, _ in world.asked] == [1, 1, 2, 2]


def test_a_replica_that_nobody_knows_ends_by_the_deadline() -> None:
    world = World(lambda node, partition, offset: Fetched(replica=7))
    with pytest.raises(KeyrangeError, match=r"REQUEST_TIMED_OUT.*replica 7"):
        offsets(reader(world, timeout_ms=300, client_rack="b").read([small(0)]))


def test_an_answer_above_its_high_watermark_is_asked_for_again() -> None:
    """The broker notes the mark before it reads; only a lasting contradiction is damage."""
    marks = iter([2, 1_000])
    world = World(lambda node, partition, offset: Fetched(log(offset), next(marks, 1_000)))
    assert offsets(reader(world).read([small(0)])) == [(0, n) for n in range(10)]

    world = World(lambda node, partition, offset: Fetched(log(offset), 2))
    with pytest.raises(KeyrangeError, match=r"CORRUPT_BATCH.*known up to 2.*offset=0"):
        offsets(reader(world).read([small(0)]))


def test_work_on_the_rows_is_not_waiting_for_the_broker() -> None:
    """A slow consumer may take longer than the timeout; the next failure is still tried again."""
    failing = iter([False, True, False])

    def script(node: int, partition: int, offset: int) -> Fetched:
        if next(failing, False):
            raise ConnectionLost("closed while idle")
        return Fetched(log(offset))

    batches = reader(World(script), timeout_ms=200).read([small(0)])
    found = offsets([next(batches)])
    time.sleep(0.4)
    assert found + offsets(batches) == [(0, n) for n in range(10)]


def test_a_throttled_client_waits_and_keeps_its_connection() -> None:
    answers = iter([Fetched(throttle_time_ms=30, empty=True)])
    world = World(lambda node, partition, offset: next(answers, Fetched(log(offset))))
    began = time.monotonic()
    assert len(offsets(reader(world).read([small(0)]))) == 10
    assert time.monotonic() - began >= 0.03
    assert len(world.asked) == 3


@pytest.mark.parametrize("fails", [True, False])
def test_a_deleted_topic_is_data_loss(fails: bool) -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        if offset == 0:
            return Fetched(log(0))
        world.topic_exists = False
        return Fetched(error_code=100)

    world = World(script)
    batches = reader(world, fail_on_data_loss=fails).read([small(0)])
    if fails:
        with pytest.raises(KeyrangeError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[5, 10\).*deleted"):
            offsets(batches)
    else:
        assert offsets(batches) == [(0, n) for n in range(5)]


def test_records_that_are_late_are_not_taken_for_lost() -> None:
    """The leader knows them: that is a timeout under both settings of failOnDataLoss."""
    world = World(lambda node, partition, offset: Fetched(high_watermark=0), latest=10)
    with pytest.raises(KeyrangeError, match="REQUEST_TIMED_OUT"):
        offsets(reader(world, fail_on_data_loss=False, timeout_ms=300).read([small(0)]))


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_was_cut_back_is_data_loss(fails: bool) -> None:
    world = World(
        lambda node, partition, offset: Fetched(log(0), 5) if offset == 0 else Fetched(b"", 5),
        latest=5,
    )
    batches = reader(world, fail_on_data_loss=fails, timeout_ms=300).read([small(0)])
    if fails:
        with pytest.raises(KeyrangeError, match=r"\[5, 10\).*the log ends at 5"):
            offsets(batches)
    else:
        assert offsets(batches) == [(0, n) for n in range(5)]


def test_a_reader_that_is_closed_early_closes_its_connection() -> None:
    """An answer that is under way would be taken for that of a later request."""
    world = World(lambda node, partition, offset: Fetched(log(offset)))
    split_reader = reader(world)
    batches = split_reader.read([small(0), small(1)])
    next(batches)
    cluster: Any = split_reader._cluster
    kept = cluster.connection("b1", 9092, ahead=True)
    assert kept.busy
    batches.close()
    assert not kept.open
