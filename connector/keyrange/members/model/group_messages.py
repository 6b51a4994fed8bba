"""What a member of a Kafka group and its coordinator say to each other, as plain values.

Errors are Kafka's names (`NOT_COORDINATOR`); `NONE` is none. What a broker of an old version leaves
out is None or empty. Nothing here knows bytes: keyrange/kafka turns these into messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NONE: Final = "NONE"
# What stands for a member that has no id, and for no generation.
NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that keeps a group."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Peer:
    """A member, as its coordinator has it, and tells the leader of its group. `metadata` are b""
    where another kind of client is one, and `client_host` "" where it is not told."""

    member_id: str
    instance_id: str | None
    metadata: bytes
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Asked of any broker; all other requests go to the coordinator."""

    group_id: str


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup. Its answer may take as long as `rebalance_timeout_ms`."""

    group_id: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup. `assignments` (member id to bytes) are the leader's, and empty from others."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_name: str
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup of a dynamic member, which no static one sends."""

    group_id: str
    member_id: str


ToCoordinator = Join | Sync | Heartbeat | Leave
Request = FindCoordinator | ToCoordinator


@dataclass(frozen=True, slots=True)
class Answer:
    """To a request. With an error all else is empty, and so is what its request does not ask for.

    `coordinator` is to FindCoordinator, and `assignment` to Sync; the others are to Join:
    `member_id` is given with MEMBER_ID_REQUIRED too, `members` only to the leader.
    """

    error: str
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    leader: str = NO_MEMBER_ID
    members: tuple[Peer, ...] = ()
    assignment: bytes = b""
    coordinator: Coordinator | None = None
