"""What a cluster says of itself, as plain values: brokers, topics, leaders, ends of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keyrange.errors import error
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.protocol import Code
from keyrange.kafka.model.offsets import TopicPartition


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


def read_offsets(
    answer: Any, found: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, str]:
    """Adds (offset, leader epoch) to `found`; what failed in passing is returned with the cause."""
    answers = (
        (TopicPartition(topic.name, each.partition_index), each, (each.offset, each.leader_epoch))
        for topic in answer.topics
        for each in topic.partitions
    )
    return _read_answers(answers, found)


def read_epoch_ends(
    answer: Any, found: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, str]:
    """Adds (leader epoch, end offset) to `found`; what failed in passing is returned."""
    answers = (
        (TopicPartition(topic.topic, each.partition), each, (each.leader_epoch, each.end_offset))
        for topic in answer.topics
        for each in topic.partitions
    )
    return _read_answers(answers, found)


def _read_answers(
    answers: Iterable[tuple[TopicPartition, Any, tuple[int, int]]],
    found: dict[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, str]:
    failures: dict[TopicPartition, str] = {}
    for partition, each, values in answers:
        if each.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise error("AUTHORIZATION_FAILED", f"not allowed to read topic {partition.topic}")
        if each.error_code == Code.NONE:
            found[partition] = values
        elif protocol.is_retriable(each.error_code):
            failures[partition] = protocol.error_name(each.error_code)
        else:
            raise error(
                "BROKER_ERROR",
                f"the offset of {partition} failed with {protocol.error_name(each.error_code)}",
            )
    return failures
