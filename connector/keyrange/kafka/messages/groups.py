"""The messages of a member of a consumer group, by kafka-python: Kafka's classic group protocol.

On the wire a member's metadata are the user data of a consumer's subscription to no topic, and its
part of an assignment those of a consumer's assignment: so the broker and all of Kafka's tools take
the group for one of consumers, and show its members.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from keyrange.members.model.group_messages import Heartbeat, Join, Leave, Sync

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


def message_of(request: Join | Sync | Heartbeat | Leave) -> Any:
    """What a member says to its coordinator."""
    if isinstance(request, Leave):
        return leave_group(request.group, [(request.member_id, None)])
    member = {
        "group_id": request.group,
        "member_id": request.member_id,
        "group_instance_id": request.instance_id,
    }
    match request:
        case Join():
            own = JoinGroupRequest.JoinGroupRequestProtocol(
                name=request.protocol_name, metadata=_wrapped(request.metadata)
            )
            return JoinGroupRequest(
                **member,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocol_type=PROTOCOL_TYPE,
                protocols=[own],
            )
        case Sync():
            return SyncGroupRequest(
                **member,
                generation_id=request.generation,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=request.protocol_name,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(
                        member_id=each, assignment=_wrapped(what)
                    )
                    for each, what in request.assignments.items()
                ],
            )
        case Heartbeat():
            return HeartbeatRequest(**member, generation_id=request.generation)


def leave_group(group_id: str, members: Sequence[tuple[str, str | None]]) -> Any:
    """`members`: (member id, instance id) pairs; with an instance id the member id may be ""."""
    return LeaveGroupRequest(
        group_id=group_id,
        members=[
            LeaveGroupRequest.MemberIdentity(
                member_id=member_id, group_instance_id=instance_id, reason=None
            )
            for member_id, instance_id in members
        ],
    )


def describe_group(group_id: str) -> Any:
    return DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False)
