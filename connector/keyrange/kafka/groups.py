"""What a consumer group has committed, commits from outside of it, and where leader epochs end.

A group's offsets are kept by its coordinator, one of the brokers. It is looked up for every call:
it moves without a word, and a question to an open connection costs a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView, read_numbers
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.protocol import Code
from keyrange.model.offsets import Positions, TopicPartition, by_topic, numbers_by_topic

# How Kafka says that a group has members, to a commit by none of them.
_HAS_MEMBERS: Final = frozenset(
    (
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.FENCED_INSTANCE_ID,
        Code.FENCED_MEMBER_EPOCH,
        Code.STALE_MEMBER_EPOCH,
    )
)
_REFUSALS: Final = _HAS_MEMBERS | {
    Code.INVALID_GROUP_ID,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.GROUP_ID_NOT_FOUND,
}


def committed_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: float | None = None,
) -> dict[TopicPartition, tuple[int, str]]:
    """The committed offsets of a group, each with the text that stands beside it; partitions
    without one are absent, as in an unknown group.

    Raises AUTHORIZATION_FAILED that names the group or the topic, GROUP_COORDINATOR_UNAVAILABLE
    where the coordinator did not answer in time, BROKER_UNREACHABLE where no broker did.
    """
    numbers = numbers_by_topic(partitions)
    found: dict[TopicPartition, tuple[int, str]] = {}

    def read(answer: Any) -> str:
        if answer.error_code and answer.error_code != Code.GROUP_ID_NOT_FOUND:
            return passing(group_id, answer.error_code, _not_read)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code:
                    return passing(group_id, each.error_code, _not_read, topic.name)
                if each.committed_offset >= 0:
                    place = TopicPartition(topic.name, each.partition_index)
                    found[place] = (each.committed_offset, each.metadata or "")
        return ""

    if numbers:
        request = protocol.offset_fetch(group_id, numbers)
        ask_coordinator(cluster, group_id, lambda: request, read, _not_read, timeout_ms)
    return found


def commit_group_offsets(
    cluster: Cluster,
    group_id: str,
    positions: Positions,
    leader_epochs: Mapping[TopicPartition, int],
    timeout_ms: float | None = None,
    metadata: str = "",
) -> set[TopicPartition]:
    """Commit positions to a group without being its member; returns those that were left out,
    because the coordinator knows no such topic.

    `leader_epochs` go along where they are known, `metadata` with each offset. Raises
    GROUP_OFFSETS_REFUSED with Kafka's error, for example where the group has members;
    AUTHORIZATION_FAILED that names the topic; and as `committed_offsets` does. What failed may have
    been committed in part, or wholly.
    """
    left = {place: (at, leader_epochs.get(place, -1)) for place, at in positions.items()}
    absent: set[TopicPartition] = set()

    def request() -> Any:
        return protocol.offset_commit(group_id, by_topic(left), metadata)

    def read(answer: Any) -> str:
        why = ""
        for topic in answer.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if each.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                    absent.add(place)
                elif each.error_code:
                    why = passing(group_id, each.error_code, _refused, topic.name)
                    continue
                left.pop(place, None)
        return why

    if left:
        ask_coordinator(cluster, group_id, request, read, _refused, timeout_ms)
    return absent


def epoch_ends(
    cluster: Cluster,
    view: ClusterView,
    epochs: Mapping[TopicPartition, int],
    timeout_ms: float | None = None,
) -> dict[TopicPartition, tuple[int, int]]:
    """Where leader epochs end: per partition the largest epoch up to the one asked for of which the
    leader has records, and the offset behind its last one.

    For the present epoch that is the end of the log. (-1, -1) where the leader knows no such epoch.
    Raises as `Cluster.list_offsets` does.
    """

    def request(view: ClusterView, wanted: Mapping[TopicPartition, int]) -> Any:
        # With the leader's present epoch a broker that was replaced, and does not know, refuses.
        return protocol.offset_for_leader_epoch(
            by_topic({place: (view.epoch(place), epoch) for place, epoch in wanted.items()})
        )

    read = partial(read_numbers, "topic", "partition", "leader_epoch", "end_offset")
    return cluster.ask_leaders(view, epochs, request, read, timeout_ms)


def ask_coordinator(
    cluster: Cluster,
    group_id: str,
    request: Callable[[], Any],
    read: Callable[[Any], str],
    failed: Callable[[str, int], KeyrangeError],
    timeout_ms: float | None = None,
) -> None:
    """Find the coordinator and ask it, again and again until nothing fails in passing.

    `read` returns what failed in passing, or ""; `failed` makes the error of a code that does not
    pass.
    """
    deadline = cluster.deadline(timeout_ms)
    find = protocol.find_coordinator(group_id)
    while True:
        answer: Any = None
        try:
            found = cluster.call_any_broker(find, deadline)
            if not found.error_code:
                answer = cluster.call(found.host, found.port, request(), deadline)
        except ConnectionLost as lost:
            why = str(lost)
        except KeyrangeError as failure:
            if not failure.retriable or deadline.passed:
                raise
            why = failure.message
        else:
            code = found.error_code
            why = passing(group_id, code, failed) if code else read(answer)
            if not why:
                return
        if deadline.passed:
            raise error(
                "GROUP_COORDINATOR_UNAVAILABLE",
                f"the coordinator of group '{group_id}' was asked in vain: {why}",
            )
        deadline.pause()


def passing(
    group_id: str, code: int, failed: Callable[[str, int], KeyrangeError], topic: str = ""
) -> str:
    """The name of an error that passes by itself; raises any other."""
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise error("AUTHORIZATION_FAILED", f"not allowed to read topic {topic}")
    if not protocol.is_retriable(code):
        raise failed(group_id, code)
    return protocol.error_name(code) + (f" for topic {topic}" if topic else "")


def _not_read(group_id: str, code: int) -> KeyrangeError:
    name = protocol.error_name(code)
    if code == Code.GROUP_AUTHORIZATION_FAILED:
        return error("AUTHORIZATION_FAILED", f"not allowed to read group '{group_id}': {name}")
    return error("BROKER_ERROR", f"the offsets of group '{group_id}' failed with {name}")


def _refused(group_id: str, code: int) -> KeyrangeError:
    name = protocol.error_name(code)
    if code not in _REFUSALS:
        return error("BROKER_ERROR", f"a commit to group '{group_id}' failed with {name}")
    members = "; it has members, and they alone may commit" if code in _HAS_MEMBERS else ""
    return error(
        "GROUP_OFFSETS_REFUSED", f"group '{group_id}' refuses offsets with {name}{members}"
    )
