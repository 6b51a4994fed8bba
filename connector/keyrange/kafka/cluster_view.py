"""What a cluster says of itself, as plain values: brokers, topics, leaders, ends of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from keyrange.errors import error
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.protocol import Code
from keyrange.model.offsets import TopicPartition

# Two numbers per partition: offset and leader epoch, or the other way round.
Answers = dict[TopicPartition, tuple[int, int]]
Failures = dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, and in which epoch of its leadership (-1: not told); `in_sync` are the
    replicas that have all that is committed, the leader too."""

    node_id: int
    epoch: int
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's id in hexadecimal ("" from brokers older than 2.8), and its partitions' leaders."""

    topic_id: str
    leaders: Mapping[int, Leader]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one answer to a metadata request said."""

    cluster_id: str
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]

    def partitions(self) -> list[TopicPartition]:
        return sorted(
            TopicPartition(name, number)
            for name, topic in self.topics.items()
            for number in topic.leaders
        )

    def leadership(self, partition: TopicPartition) -> Leader | None:
        topic = self.topics.get(partition.topic)
        return topic.leaders.get(partition.partition) if topic else None

    def leader(self, partition: TopicPartition) -> Broker | None:
        leader = self.leadership(partition)
        return self.brokers.get(leader.node_id) if leader else None

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Broker, list[TopicPartition]]:
        """What each broker leads of some partitions; those without a leader are left out."""
        found: dict[Broker, list[TopicPartition]] = {}
        for partition in partitions:
            if (leader := self.leader(partition)) is not None:
                found.setdefault(leader, []).append(partition)
        return found

    def epoch(self, partition: TopicPartition) -> int:
        leader = self.leadership(partition)
        return leader.epoch if leader else -1

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that have one."""
        return {name: topic.topic_id for name, topic in self.topics.items() if topic.topic_id}

    def topic_id(self, name: str) -> str:
        topic = self.topics.get(name)
        return topic.topic_id if topic else ""


def read_metadata(
    answer: Any, wanted: Callable[[Any], bool] | None = None
) -> tuple[ClusterView, list[str], list[str]]:
    """The view, the topics that do not exist, and the partitions without a leader.

    `wanted` picks topics of the answer; the others count for nothing.
    """
    topics: dict[str, Topic] = {}
    missing: list[str] = []
    unready: list[str] = []
    denied: list[str] = []
    for each in answer.topics if wanted is None else filter(wanted, answer.topics):
        if each.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(each.name)
        elif each.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            denied.append(each.name)
        elif each.error_code and protocol.is_retriable(each.error_code):
            unready.append(f"{each.name} ({protocol.error_name(each.error_code)})")
        elif each.error_code:
            raise error(
                "BROKER_ERROR",
                f"metadata of topic {each.name} failed with {protocol.error_name(each.error_code)}",
            )
        else:
            leaders = {}
            for partition in each.partitions:
                if partition.leader_id < 0:
                    unready.append(f"{each.name}-{partition.partition_index}")
                leaders[partition.partition_index] = Leader(
                    partition.leader_id, partition.leader_epoch, tuple(partition.isr_nodes)
                )
            topic_id = each.topic_id.hex if each.topic_id and each.topic_id.int else ""
            topics[each.name] = Topic(topic_id, leaders)
    if denied:
        raise error("AUTHORIZATION_FAILED", f"not allowed to read topic {', '.join(denied)}")
    brokers = {each.node_id: Broker(each.node_id, each.host, each.port) for each in answer.brokers}
    return ClusterView(answer.cluster_id or "", brokers, topics), missing, unready


def read_numbers(
    topic_field: str, number_field: str, first: str, second: str, answer: Any, found: Answers
) -> Failures:
    """Adds two fields of each partition's answer to `found`; what failed in passing is returned
    with the cause. The messages differ in what they call a topic and a partition's number."""
    failures: Failures = {}
    fields_of = attrgetter(number_field, "error_code", first, second)
    for topic in answer.topics:
        name = getattr(topic, topic_field)
        for number, code, one, other in map(fields_of, topic.partitions):
            partition = TopicPartition(name, number)
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                raise error("AUTHORIZATION_FAILED", f"not allowed to read topic {name}")
            if code == Code.NONE:
                found[partition] = (one, other)
            elif protocol.is_retriable(code):
                failures[partition] = protocol.error_name(code)
            else:
                raise error(
                    "BROKER_ERROR",
                    f"the offset of {partition} failed with {protocol.error_name(code)}",
                )
    return failures
