"""The topics of a simulated cluster, with their records, and what its brokers answer."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from kafka.protocol.consumer import FetchResponse

from keyrange.client_options import ClientSettings
from keyrange.core.offsets import EARLIEST, OffsetRange, TopicPartition
from keyrange.errors import error
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.protocol import Code
from keyrange.kafka.view import Broker, ClusterView, Leader, Topic
from simulation.faults import Faults
from strategies import Batch, Record, encode_batch

_VERSION = 13
_BATCHES_AT_ONCE = 3
# How long a broker that asks its fellows for a topic is waited for, as `Cluster.describe` does.
_MISSING_S = 3.0
_Answered = FetchResponse.FetchableTopicResponse


@dataclass
class PartitionLog:
    """The record batches of a partition; `keys` and `values` by offset. Offsets may have gaps."""

    start: int = 0
    end: int = 0
    lasts: list[int] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    values: dict[int, bytes] = field(default_factory=dict)

    def append(self, records: Iterable[tuple[bytes | None, bytes]], gap: int = 0) -> None:
        base = self.end + gap
        made = []
        for delta, (key, value) in enumerate(records):
            self.keys[base + delta], self.values[base + delta] = key, value
            made.append(Record(delta, 0, key, value))
        batch = Batch(base, tuple(made))
        self.batches.append(encode_batch(batch))
        self.lasts.append(batch.last_offset)
        self.end = batch.last_offset + 1

    def fetched(self, offset: int) -> bytes:
        at = bisect_right(self.lasts, offset - 1)
        return b"".join(self.batches[at : at + _BATCHES_AT_ONCE])


@dataclass
class Topics:
    """What is durable in the cluster. `hidden`: until when a topic is not told of; `late`: until
    when a partition's new leader does not know its end, and by how much."""

    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    hidden: dict[str, float] = field(default_factory=dict)
    late: dict[TopicPartition, tuple[float, int]] = field(default_factory=dict)
    # Who is in which group: what a coordinator tells of it.
    groups: dict[str, Any] = field(default_factory=dict)

    def create(self, name: str, partitions: int, begin: int = 0) -> None:
        """Make a topic, or give one more partitions."""
        self.ids.setdefault(name, uuid.uuid5(uuid.NAMESPACE_URL, name).hex)
        for number in range(partitions):
            place = TopicPartition(name, number)
            if place not in self.logs:
                self.logs[place] = PartitionLog(begin, begin)
                self.epochs[place] = 0


class SimulatedCluster:
    """As `keyrange.kafka.cluster.Cluster`: one client's."""

    contacted = True

    def __init__(self, topics: Topics, faults: Faults, settings: ClientSettings) -> None:
        self.settings = settings
        self._topics, self._faults = topics, faults

    def close(self) -> None: ...

    def describe(
        self,
        topics: Iterable[str],
        timeout_ms: float | None = None,
        may_miss: Collection[str] = (),
    ) -> ClusterView:
        wanted = set(topics)
        view = self._shown(lambda name: name in wanted, wanted)
        if missing := sorted(wanted - view.topics.keys() - set(may_miss)):
            raise error("UNKNOWN_TOPIC_OR_PARTITION", f"no topic {missing}")
        return view

    def describe_matching(
        self,
        matches: Callable[[str], bool],
        timeout_ms: float | None = None,
        may_miss: Collection[str] = (),
    ) -> ClusterView:
        return self._shown(matches, may_miss)

    def _shown(self, matches: Callable[[str], bool], expected: Collection[str]) -> ClusterView:
        """What a broker tells; who misses a topic asks a moment longer."""
        self._asked("metadata")
        topics, clock = self._topics, self._faults.clock
        until = clock.monotonic() + _MISSING_S
        while set(expected) & self._hidden().keys() and clock.monotonic() < until:
            clock.sleep(0.1)
        found: dict[str, dict[int, Leader]] = {}
        for place in topics.logs:
            if matches(place.topic) and place.topic not in self._hidden():
                leader = Leader(1, topics.epochs[place])
                found.setdefault(place.topic, {})[place.partition] = leader
        shown = {name: Topic(topics.ids[name], leaders) for name, leaders in found.items()}
        return ClusterView("", {1: Broker(1, "b1", 9092)}, shown)

    def _hidden(self) -> dict[str, float]:
        now = self._faults.clock.monotonic()
        return {name: until for name, until in self._topics.hidden.items() if until > now}

    def list_offsets(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        isolation_level: int | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, tuple[int, int]]:
        self._asked("offsets")
        now, topics = self._faults.clock.monotonic(), self._topics
        found = {}
        for place, which in wanted.items():
            log = topics.logs[place]
            until, behind = topics.late.get(place, (0.0, 0))
            latest = max(log.end - behind, log.start) if until > now else log.end
            at = log.start if which == EARLIEST else latest
            found[place] = (at, topics.epochs[place])
        return found

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[Any, tuple[int, int]]:
        self._asked("epochs")
        return {place: (epoch, self._topics.logs[place].end) for place, epoch in epochs.items()}

    def connection(
        self,
        host: str,
        port: int,
        timeout_ms: float | None = None,
        ahead: bool = False,
    ) -> SimulatedConnection:
        """One for each call: tasks are threads of one process here, and share nothing."""
        return SimulatedConnection(self._topics, self._faults)

    def _asked(self, what: str) -> None:
        self._faults.at(f"question for {what}")
        if self._faults.happens(self._faults.chances.broker, f"no answer about {what}"):
            self._faults.clock.sleep(1.0)
            raise error("BROKER_UNREACHABLE", "no broker answered")


class SimulatedConnection:
    """A connection for fetches."""

    fresh = busy = open = usable = True

    def __init__(self, topics: Topics, faults: Faults) -> None:
        self._topics, self._faults = topics, faults
        self._sent: deque[tuple[uuid.UUID, int, int]] = deque()

    def close(self) -> None: ...

    def fetch_version(self) -> int:
        return _VERSION

    def send(self, request: Any, version: int) -> None:
        [topic] = request.topics
        [partition] = topic.partitions
        self._sent.append((topic.topic_id, partition.partition, partition.fetch_offset))

    def receive(self, buffer: Any, bytes_max: int, **context: Any) -> Any:
        topic_id, number, offset = self._sent.popleft()
        if self._faults.happens(self._faults.chances.broker, "a lost connection at fetch"):
            raise ConnectionLost("the broker is gone")
        [name] = [name for name, each in self._topics.ids.items() if each == topic_id.hex]
        log = self._topics.logs[TopicPartition(name, number)]
        code, records = Code.NONE, b""
        if not log.start <= offset <= log.end:
            code = Code.OFFSET_OUT_OF_RANGE
        elif offset < log.end:
            records = log.fetched(offset)
        else:
            self._faults.clock.sleep(0.5)
        answer = b"\0" * 5 + _encode(topic_id, number, log, code, records)
        return np.frombuffer(bytearray(answer), np.uint8)


def _encode(
    topic_id: uuid.UUID, number: int, log: PartitionLog, code: int, records: bytes
) -> bytes:
    member = _Answered.PartitionData(
        partition_index=number,
        error_code=int(code),
        high_watermark=log.end,
        last_stable_offset=log.end,
        log_start_offset=log.start,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )
    answered = _Answered(topic="", topic_id=topic_id, partitions=[member])
    message = FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=0, responses=[answered], version=_VERSION
    )
    return bytes(message.encode(version=_VERSION))


class SimulatedSizes:
    """Sizes of records as a sample would tell them, and where their keys lie."""

    bytes_per_offset = 200_000.0

    def __init__(self, *_: Any) -> None: ...

    def of(
        self,
        view: ClusterView,
        ranges: Mapping[TopicPartition, OffsetRange],
    ) -> dict[TopicPartition, float]:
        return dict.fromkeys(ranges, self.bytes_per_offset)

    def places(self, partition: TopicPartition) -> list[int]:
        return []

    def forget(self) -> None: ...


def produce(topics: Topics, random: Random, keys: int, batches: int) -> None:
    """Some record batches more, of few keys, now and then without a key or behind a gap."""
    for _ in range(batches):
        place = random.choice(sorted(topics.logs))
        log = topics.logs[place]
        records = []
        for _ in range(random.randint(1, 5)):
            key = None if random.random() < 0.08 else b"k%d" % random.randrange(keys)
            records.append((key, random.choice([b"!", b"?", b".", b".", b".", b".", b".", b"."])))
        log.append(records, gap=random.choice([0, 0, 0, 0, 1, 3]))
