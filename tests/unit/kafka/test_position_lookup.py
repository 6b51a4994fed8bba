"""Positions from options, against a scripted cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.kafka import position_lookup, subscribed_topics
from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.model.position_options import (
    Everywhere,
    GroupOffsets,
    Offsets,
    PositionSpec,
    Timestamp,
    Timestamps,
)
from keyrange.model.subscription import Assign, Subscribe, SubscribePattern

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
VIEW = ClusterView(
    "", {1: Broker(1, "b", 1)}, {"t": Topic("", {number: Leader(1, 0) for number in range(3)})}
)


class Log:
    """Three partitions with offsets 2 to 9, whose record n was written at n seconds."""

    def list_offsets(
        self, view: ClusterView, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        def at(which: int) -> int:
            if which < 0:
                return {EARLIEST: 2, LATEST: 10}[which]
            first = max(-(-which // 1_000), 2)
            return first if first < 10 else -1

        return {partition: (at(which), 0) for partition, which in wanted.items()}


def place(spec: Any, option: str = "startingOffsets") -> dict[TopicPartition, int]:
    log: Any = Log()
    return position_lookup.resolve_positions(log, VIEW, PositionSpec(option, spec))


def test_places_stay_open_until_they_are_bound() -> None:
    log: Any = Log()
    unresolved = place(Offsets({T0: 5, T1: LATEST, T2: EARLIEST}))
    assert unresolved == {T0: 5, T1: LATEST, T2: EARLIEST}
    assert position_lookup.bind(log, VIEW, unresolved) == {T0: 5, T1: 10, T2: 2}
    assert place(Everywhere(EARLIEST)) == dict.fromkeys((T0, T1, T2), EARLIEST)


def test_partitions_that_are_not_named() -> None:
    assert place(Offsets({T1: 5}, LATEST)) == {T0: LATEST, T1: 5, T2: LATEST}
    with pytest.raises(InvalidError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH") as caught:
        place(Offsets({T1: 5, TopicPartition("t", 7): 1}))
    assert "missing=t-0, t-2, unknown=t-7" in caught.value.message
    with pytest.raises(InvalidError, match="unknown=t-7"):
        place(Offsets({TopicPartition("t", 7): 1}, EARLIEST))


def test_times() -> None:
    assert place(Timestamp(4_500, None)) == dict.fromkeys((T0, T1, T2), 5)
    assert place(Timestamp(99_000, LATEST)) == dict.fromkeys((T0, T1, T2), 10)
    each = Timestamps({T0: 0, T1: 3_000, T2: 99_000}, LATEST)
    assert place(each) == {T0: 2, T1: 3, T2: 10}
    assert place(Timestamps({T0: 3_000}, None, EARLIEST)) == {T0: 3, T1: EARLIEST, T2: EARLIEST}


def test_what_is_written_while_a_time_is_looked_up_is_on_its_own_side() -> None:
    """A start took the end of the log a moment later, and an end the one that a task found."""

    class Growing(Log):
        ends = iter((10, 12, 14))

        def list_offsets(self, view: ClusterView, wanted: Mapping[TopicPartition, int]) -> Any:
            end = next(self.ends)
            return {p: (end if which == LATEST else -1, 0) for p, which in wanted.items()}

    log: Any = Growing()
    spec = PositionSpec("startingTimestamp", Timestamp(99_000, LATEST))
    assert position_lookup.resolve(log, VIEW, spec) == dict.fromkeys((T0, T1, T2), 10)


def test_a_time_without_a_record_is_named_with_its_partition() -> None:
    with pytest.raises(InvalidError, match="No offset matched from request") as raised:
        place(Timestamps({T0: 0, T1: 3_000, T2: 99_000}, None))
    assert "t-2 and timestamp 99000" in raised.value.message
    assert "t-1" not in raised.value.message
    with pytest.raises(InvalidError, match="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        place(Timestamps({T0: 0}, LATEST), "startingOffsetsByTimestamp")


def test_what_a_group_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        position_lookup, "committed_offsets", lambda *given: {T0: (4, ""), T2: (0, "")}
    )
    assert place(GroupOffsets("g", EARLIEST)) == {T0: 4, T1: EARLIEST, T2: 0}
    with pytest.raises(InvalidError, match="group g has no committed offset for t-1"):
        place(GroupOffsets("g"))


def test_splits_are_bound_where_they_are_open() -> None:
    log: Any = Log()
    splits = [
        Split(TopicPartition("t", 0), EARLIEST, 5, 0),
        Split(TopicPartition("t", 0), 5, LATEST, 7),
        Split(TopicPartition("t", 1), 3, 4, 0),
        Split(TopicPartition("t", 2), EARLIEST, LATEST, 0),
    ]
    bound = position_lookup.bind_splits(log, VIEW, splits)
    assert [(s.partition, s.from_offset, s.until_offset) for s in bound] == [
        (0, 2, 5),
        (0, 5, 10),
        (1, 3, 4),
        (2, 2, 10),
    ]


class Directory:
    """A cluster with topics t and u; records what may be missing."""

    def describe(self, topics: Any, may_miss: Any = ()) -> ClusterView:
        self.may_miss = set(may_miss)
        return VIEW

    def describe_matching(self, matches: Any) -> ClusterView:
        return ClusterView("", {}, {n: t for n, t in VIEW.topics.items() if matches(n)})


def test_only_assigned_partitions_are_seen() -> None:
    cluster: Any = Directory()
    assert subscribed_topics.describe(cluster, Assign((T0, T2))).partitions() == [T0, T2]
    gone = TopicPartition("t", 9)
    with pytest.raises(InvalidError, match="no partition t-9"):
        subscribed_topics.describe(cluster, Assign((T0, gone)))
    assert subscribed_topics.describe(cluster, Assign((T0, gone)), {gone}).partitions() == [T0]
    assert subscribed_topics.describe(cluster, Assign((T0, gone)), None).partitions() == [T0]


def test_a_topic_with_positions_may_be_missing() -> None:
    cluster: Any = Directory()
    subscribed_topics.describe(cluster, Subscribe(("t", "u")), {TopicPartition("u", 0)})
    assert cluster.may_miss == {"u"}
    subscribed_topics.describe(cluster, Subscribe(("t", "u")), None)
    assert cluster.may_miss == {"t", "u"}
    assert subscribed_topics.describe(cluster, SubscribePattern("x")).partitions() == []
