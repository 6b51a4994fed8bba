"""A planning session against a scripted cluster, for tests of what it decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic
from keyrange.model.offsets import LATEST, OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.options.kafka_properties import ClientSettings
from keyrange.source import data_loss_in_planning as data_loss_check_module
from keyrange.source.commit_strategy import JobState, OpenTable
from keyrange.source.planning_session import PlanningSession

SERVERS = {"kafka.bootstrap.servers": "h:1"}
GIVEN = SERVERS | {"subscribe": "t"}
PATTERN = SERVERS | {"subscribePattern": "t.*"}
EARLIEST_START = {"startingOffsets": "earliest"}
T0 = TopicPartition("t", 0)


class ScriptedCluster:
    """Topics whose ends, ids and leader epochs a test sets."""

    settings = ClientSettings()
    contacted = True

    def __init__(self, latest: int, partitions: int = 1, epoch: int = 0) -> None:
        self.latest, self.partitions, self.epoch = latest, partitions, epoch
        self.first = 0
        # Of the offsets up to `latest`, so many are behind the last stable one.
        self.unstable = 0
        self.topics = {"t": "a" * 32}
        self.fails: list[KeyrangeError] = []
        self.asked = 0
        self.closed = 0

    def describe(
        self, topics: Iterable[str], timeout_ms: float = 0, may_miss: Collection[str] = ()
    ) -> ClusterView:
        missing = [name for name in topics if name not in self.topics and name not in may_miss]
        if missing:
            raise error("UNKNOWN_TOPIC_OR_PARTITION", f"no topic {missing}")
        return self.describe_matching(lambda name: name in set(topics))

    def describe_matching(self, matches: Callable[[str], bool]) -> ClusterView:
        leaders = {number: Leader(1, self.epoch) for number in range(self.partitions)}
        found = {n: Topic(topic_id, leaders) for n, topic_id in self.topics.items() if matches(n)}
        return ClusterView("", {1: Broker(1, "b", 1)}, found)

    def list_offsets(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        isolation_level: int = 0,
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += 1
        if self.fails:
            raise self.fails.pop(0)
        if gone := {p.topic for p in wanted} - self.topics.keys():
            raise error("UNKNOWN_TOPIC_OR_PARTITION", f"no topic {gone}")
        ends = {LATEST: self.latest - self.unstable * isolation_level}
        return {p: (ends.get(which, self.first), self.epoch) for p, which in wanted.items()}

    def close(self) -> None:
        self.closed += 1


class FixedSizes:
    def of(
        self, view: ClusterView, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, float]:
        return dict.fromkeys(ranges, 100.0)

    def key_hashes(self, partition: TopicPartition) -> list[int]:
        return []

    def forget(self) -> None: ...


def session(
    cluster: Any,
    given: Mapping[str, str] = GIVEN,
    open_table: OpenTable | None = None,
    patience_s: float = 0.0,
    state: JobState | None = None,
    **options: str,
) -> PlanningSession:
    sizes: Any = FixedSizes()
    parsed = parse_options({**given, **options}, "stream")
    return PlanningSession(parsed, cluster, sizes, open_table, patience_s=patience_s, state=state)


def forget_metadata(run: PlanningSession) -> None:
    """As if a second had passed."""
    run._metadata._until = 0.0


class Epochs:
    """Answers of OffsetForLeaderEpoch, and how often they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: int) -> None:
        self.until, self.asked = until, 0
        monkeypatch.setattr(data_loss_check_module, "epoch_ends", self)

    def __call__(
        self, cluster: Any, view: ClusterView, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += 1
        return {partition: (epoch, self.until) for partition, epoch in epochs.items()}


def planned(run: PlanningSession) -> dict[str, Any]:
    """The end of the first batch."""
    return run.latest(run.initial().to_json(), limited=True)
