"""The messages of a member of a consumer group, by kafka-python: Kafka's classic group protocol.

On the wire a member's metadata are the user data of a consumer's subscription to no topic, and its
part of an assignment those of a consumer's assignment: so the broker and all of Kafka's tools take
the group for one of consumers, and show its members.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

PROTOCOL_TYPE: Final = "consumer"
# A subscription and an assignment of version 0 begin alike: version, number of topics, and the
# length of the user data.
_WRAPPING: Final = struct.Struct(">hii")


def _wrapped(data: bytes) -> bytes:
    return _WRAPPING.pack(0, 0, len(data)) + data


def unwrapped(data: bytes) -> bytes:
    """What stands in a member's metadata or assignment; b"" where that is not of keyrange."""
    if len(data) < _WRAPPING.size:
        return b""
    version, topics, length = _WRAPPING.unpack_from(data)
    if version or topics or length != len(data) - _WRAPPING.size:
        return b""
    return data[_WRAPPING.size :]


def join_group(
    group_id: str,
    member_id: str,
    instance_id: str | None,
    protocol_name: str,
    metadata: bytes,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
) -> Any:
    """`member_id` "" is that of a member which the coordinator does not know yet."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(
                name=protocol_name, metadata=_wrapped(metadata)
            )
        ],
    )


def sync_group(
    group_id: str,
    generation: int,
    member_id: str,
    instance_id: str | None,
    protocol_name: str,
    assignments: Mapping[str, bytes],
) -> Any:
    """`assignments` by member id, from the leader; empty from all others."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=_wrapped(what))
            for each, what in assignments.items()
        ],
    )


def heartbeat(group_id: str, generation: int, member_id: str, instance_id: str | None) -> Any:
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def leave_group(group_id: str, member_id: str, instance_id: str | None = None) -> Any:
    """With an instance id the member id may be ""."""
    member = LeaveGroupRequest.MemberIdentity(
        member_id=member_id, group_instance_id=instance_id, reason=None
    )
    return LeaveGroupRequest(group_id=group_id, members=[member])


def describe_group(group_id: str) -> Any:
    return DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False)
