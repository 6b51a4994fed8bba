"""What every client of a cluster needs of kafka-python: messages and error names.

Only the modules of this package touch kafka-python. It is pinned, because `kafka.protocol` and
`kafka.net.sasl` are not a public interface. What is used of it: encoding and decoding of messages
(generated from Kafka's own schemas), the client side of SASL (`sasl_clients`), and the table of
error codes. Its event loop and its consumer are not used: the loop reads 4,096 bytes at a time
(ARCHITECTURE.md, Decisions).

Its loggers print whole frames, passwords included, at DEBUG: they are held at INFO here.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.group import (
    DEFAULT_GENERATION_ID,
    UNKNOWN_MEMBER_ID,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    CoordinatorType,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

import keyrange
from keyrange.kafka.messages import nulls
from keyrange.model.offsets import READ_COMMITTED, READ_UNCOMMITTED
from keyrange.options.kafka_properties import ClientSettings


class _NoFrames(logging.Filter):
    """Drops what kafka-python logs of frames and configurations, whatever level a user sets."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.INFO and "configuration" not in str(record.msg)


def _hold_loggers() -> None:
    root = logging.getLogger("kafka")
    root.setLevel(max(root.level, logging.INFO))
    for name in ("kafka.net.connection", "kafka.protocol.parser", "kafka.net.transport"):
        logging.getLogger(name).addFilter(_NoFrames())


_hold_loggers()


class Code:
    """Error codes that the reader decides by (kafka.apache.org/protocol, "Error Codes")."""

    NONE: Final = 0
    OFFSET_OUT_OF_RANGE: Final = 1
    UNKNOWN_TOPIC_OR_PARTITION: Final = 3
    ILLEGAL_GENERATION: Final = 22
    INVALID_GROUP_ID: Final = 24
    UNKNOWN_MEMBER_ID: Final = 25
    REBALANCE_IN_PROGRESS: Final = 27
    TOPIC_AUTHORIZATION_FAILED: Final = 29
    GROUP_AUTHORIZATION_FAILED: Final = 30
    CLUSTER_AUTHORIZATION_FAILED: Final = 31
    ILLEGAL_SASL_STATE: Final = 34
    UNSUPPORTED_VERSION: Final = 35
    GROUP_ID_NOT_FOUND: Final = 69
    FENCED_INSTANCE_ID: Final = 82
    UNKNOWN_TOPIC_ID: Final = 100
    INCONSISTENT_TOPIC_ID: Final = 103
    FENCED_MEMBER_EPOCH: Final = 110
    STALE_MEMBER_EPOCH: Final = 113


# Codes that pass by themselves and that kafka-python does not mark as such, or does not know:
# FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, CORRUPT_MESSAGE (read anew).
_ALSO_RETRIABLE: Final = frozenset((2, 74, 75, 78))


def error_name(code: int) -> str:
    """Kafka's name of an error code, as far as it is known; NONE where there is no error."""
    if code == Code.NONE:
        return "NONE"
    name = getattr(kafka_errors.for_code(code), "message", "UNKNOWN")
    return f"UNKNOWN ({code})" if name == "UNKNOWN" else str(name)


def is_retriable(code: int) -> bool:
    return code in _ALSO_RETRIABLE or bool(getattr(kafka_errors.for_code(code), "retriable", False))


def encode(request: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    """A framed request."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def decode(sent: Any, frame: memoryview) -> Any:
    """The response in a frame, to the request that was sent with this header. What it raises for
    one that cannot be read is anything."""
    response_class, version = sent.get_response_class(), sent.request_api_version
    # The headers that brokers send have no tagged fields in them.
    is_flexible = response_class.flexible_version_q(version)
    short = sent.request_api_key == ApiVersionsRequest.API_KEY or not is_flexible
    answer = response_class.decode(frame[4 if short else 5 :], version=version)
    nulls.check(answer, version)
    return answer


# The lowest and highest version of each message that is spoken, by the name of its request. The
# lowest are those of Kafka 2.3, or lower where nothing that keyrange needs came later.
SPOKEN: Final = {
    "ApiVersionsRequest": (0, 3),
    "MetadataRequest": (7, 12),
    "ListOffsetsRequest": (4, 7),
    "OffsetForLeaderEpochRequest": (2, 4),
    # The highest are the last ones before a request holds several groups, or ids in place of names.
    "FindCoordinatorRequest": (1, 3),
    "OffsetFetchRequest": (2, 7),
    "OffsetCommitRequest": (6, 9),
    "ProduceRequest": (7, 12),
    # The lowest are those of Kafka 2.5, the first that lets a sender go on under its own epoch only
    # (KIP-360). The highest AddPartitionsToTxn is the last one of clients.
    "InitProducerIdRequest": (3, 5),
    "AddPartitionsToTxnRequest": (1, 3),
    "AddOffsetsToTxnRequest": (1, 4),
    "TxnOffsetCommitRequest": (3, 5),
    "EndTxnRequest": (1, 5),
    "SaslHandshakeRequest": (1, 1),
    "SaslAuthenticateRequest": (0, 2),
    # The lowest are the first that know a static member (Kafka 2.3). The highest JoinGroup is the
    # last before the broker may tell a leader that came back to assign nothing.
    "JoinGroupRequest": (5, 7),
    "SyncGroupRequest": (3, 5),
    "HeartbeatRequest": (3, 4),
    "LeaveGroupRequest": (3, 5),
    "DescribeGroupsRequest": (4, 5),
    "DescribeConfigsRequest": (1, 4),
    # The lowest is the first that tells how large volumes are (KIP-827, Kafka 3.3).
    "DescribeLogDirsRequest": (4, 5),
    "DescribeClientQuotasRequest": (0, 1),
    "AlterClientQuotasRequest": (0, 1),
    # Since Kafka 2.8 (KIP-664).
    "DescribeProducersRequest": (0, 0),
}
FETCH_KEY: Final = int(FetchRequest.API_KEY)


def api_versions() -> Any:
    return ApiVersionsRequest(
        client_software_name="keyrange", client_software_version=keyrange.__version__
    )


def metadata(topics: Iterable[str] | None) -> Any:
    """`topics` None asks for all that the principal may describe."""
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if topics is None else [topic(name=name) for name in topics],
        allow_auto_topic_creation=False,
    )


def list_offsets(
    by_topic: Mapping[str, Sequence[tuple[int, int]]], isolation_level: int, timeout_ms: int
) -> Any:
    """`by_topic`: (partition, timestamp) pairs; timestamp -1 is latest, -2 earliest."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    one = topic.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        timeout_ms=timeout_ms,
        topics=[
            topic(name=name, partitions=[one(partition_index=p, timestamp=at) for p, at in wanted])
            for name, wanted in by_topic.items()
        ],
    )


def offset_for_leader_epoch(by_topic: Mapping[str, Sequence[tuple[int, tuple[int, int]]]]) -> Any:
    """`by_topic`: (partition, (present leader epoch or -1, epoch whose end is asked)) pairs."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    one = topic.OffsetForLeaderPartition
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            topic(
                topic=name,
                partitions=[
                    one(partition=partition, current_leader_epoch=present, leader_epoch=epoch)
                    for partition, (present, epoch) in wanted
                ],
            )
            for name, wanted in by_topic.items()
        ],
    )


def find_coordinator(group_id: str) -> Any:
    return FindCoordinatorRequest(key=group_id, key_type=int(CoordinatorType.GROUP))


def offset_fetch(group_id: str, by_topic: Mapping[str, Sequence[int]]) -> Any:
    """Only what no open transaction is about to change; older brokers cannot tell."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[
            topic(name=name, partition_indexes=list(wanted)) for name, wanted in by_topic.items()
        ],
        require_stable=True,
    )


def offset_commit(
    group_id: str, by_topic: Mapping[str, Sequence[tuple[int, tuple[int, int]]]], metadata: str
) -> Any:
    """A commit of nobody's: without a member. `by_topic`: (partition, (offset, epoch)) pairs."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    one = topic.OffsetCommitRequestPartition
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=DEFAULT_GENERATION_ID,
        member_id=UNKNOWN_MEMBER_ID,
        topics=[
            topic(
                name=name,
                partitions=[
                    one(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for partition, (offset, epoch) in wanted
                ],
            )
            for name, wanted in by_topic.items()
        ],
    )


def fetch(
    wanted: Mapping[tuple[str, str], Sequence[tuple[int, int, int]]],
    partition_max_bytes: int,
    max_bytes: int,
    settings: ClientSettings,
    max_wait_ms: int,
) -> Any:
    """`wanted`: (topic, topic id in hexadecimal or "") to (partition, offset, leader epoch)
    triples; a broker that leads in another epoch refuses, -1 leaves that out."""
    topic = FetchRequest.FetchTopic
    one = topic.FetchPartition
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level(settings),
        topics=[
            topic(
                topic=name,
                topic_id=uuid.UUID(hex=topic_id or "0" * 32),
                partitions=[
                    one(
                        partition=partition,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for partition, offset, epoch in positions
                ],
            )
            for (name, topic_id), positions in wanted.items()
        ],
        rack_id=settings.client_rack,
    )


def isolation_level(settings: ClientSettings) -> int:
    return READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED


def sasl_handshake(mechanism: str) -> Any:
    return SaslHandshakeRequest(mechanism=mechanism)


def sasl_authenticate(token: bytes) -> Any:
    return SaslAuthenticateRequest(auth_bytes=token)
