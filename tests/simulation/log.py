"""What the brokers of a simulated cluster answer."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafka.protocol.consumer import FetchResponse

from keyrange.errors import error
from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages.protocol import Code
from keyrange.model.offsets import EARLIEST, OffsetRange, TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from simulation.faults import Faults
from simulation.topics import PartitionLog, Topics

_VERSION = 13
# How long a partition is asked for that a topic does not have.
_UNKNOWN_S = 60.0
# How long a broker that asks its fellows for a topic is waited for, as `Cluster.describe` does.
_MISSING_S = 3.0
_Answered = FetchResponse.FetchableTopicResponse


class SimulatedCluster:
    """As `keyrange.kafka.cluster.Cluster`: one client's."""

    contacted = True

    def has_answered(self) -> None: ...

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
        for key_hash in topics.logs:
            if matches(key_hash.topic) and key_hash.topic not in self._hidden():
                leader = Leader(1, topics.epochs[key_hash])
                found.setdefault(key_hash.topic, {})[key_hash.partition] = leader
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
        self._check_there(wanted)
        now, topics = self._faults.clock.monotonic(), self._topics
        found = {}
        for key_hash, which in wanted.items():
            log = topics.logs[key_hash]
            until, behind = topics.late.get(key_hash, (0.0, 0))
            latest = max(log.end - behind, log.start) if until > now else log.end
            at = log.start if which == EARLIEST else latest
            found[key_hash] = (at, topics.epochs[key_hash])
        return found

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[Any, tuple[int, int]]:
        self._asked("epochs")
        self._check_there(epochs)
        return {
            key_hash: (epoch, self._topics.logs[key_hash].end) for key_hash, epoch in epochs.items()
        }

    def _check_there(self, asked: Iterable[TopicPartition]) -> None:
        for key_hash in sorted(set(asked) - self._topics.logs.keys()):
            if key_hash.topic not in self._topics.ids:
                raise error("UNKNOWN_TOPIC_OR_PARTITION", f"no topic {key_hash.topic}")
            self._faults.clock.sleep(_UNKNOWN_S)
            raise error("BROKER_ERROR", f"no offsets for {key_hash}")

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
    address = "simulated:9092"

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
        names = [name for name, each in self._topics.ids.items() if each == topic_id.hex]
        key_hash = TopicPartition(names[0], number) if names else None
        log = self._topics.logs.get(key_hash) if key_hash else None
        code, records = Code.NONE, b""
        if log is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if names else Code.UNKNOWN_TOPIC_ID
            log = PartitionLog()
        elif not log.start <= offset <= log.end:
            code = Code.OFFSET_OUT_OF_RANGE
        elif offset < log.end:
            records = log.fetched(offset)
        else:
            self._faults.clock.sleep(0.5)
        answer = b"\0" * 5 + _encode(topic_id, number, log, code, records)
        return memoryview(bytearray(answer))


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

    def key_hashes(self, partition: TopicPartition) -> list[int]:
        return []

    def forget(self) -> None: ...
