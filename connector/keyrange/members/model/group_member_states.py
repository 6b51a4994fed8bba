"""The life of a member of a Kafka group as a table, and what each of Kafka's errors means in it.

`group_member.py` moves by this table alone; `tests/commands/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from keyrange.text.transitions import transitions


class GroupState(StrEnum):
    UNJOINED = "UNJOINED"
    FINDING = "FINDING"
    JOINING = "JOINING"
    SYNCING = "SYNCING"
    STABLE = "STABLE"
    LEAVING = "LEAVING"
    IDLE_GIVEN_UP = "IDLE_GIVEN_UP"
    FENCED = "FENCED"
    FAILED = "FAILED"
    CLOSED = "CLOSED"


# In these nothing is sent, and nothing leads out of them.
ENDS: Final = frozenset({GroupState.FENCED, GroupState.FAILED, GroupState.CLOSED})


class Event(StrEnum):
    """What happens to a member; the text is what the diagram says."""

    BEGIN = "begins"
    FOUND = "coordinator found"
    FOUND_SYNCING = "coordinator found, the generation is not known yet"
    FOUND_STABLE = "coordinator found, in a generation"
    LOST = "connection or coordinator lost"
    RETRY = "coordinator not ready"
    JOINED = "joined"
    SYNCED = "assignment received"
    BEATEN = "heartbeat answered"
    REJOIN = "rebalance, member id required or unknown"
    FENCED = "another took the name"
    REFUSED = "refused for good"
    STALLED = "no progress, static or nobody to tell"
    STALLED_LEAVING = "no progress, dynamic"
    LEFT_IDLE = "left for want of progress"
    RESUMED = "progress again"
    CLOSE = "closed, static or nobody to tell"
    CLOSE_LEAVING = "closed, dynamic"
    LEFT_CLOSED = "left, closed"


TRANSITIONS: Final = transitions(
    GroupState,
    Event,
    """
    BEGIN: UNJOINED -> FINDING
    FOUND: FINDING -> JOINING
    FOUND_SYNCING: FINDING -> SYNCING
    FOUND_STABLE: FINDING -> STABLE
    JOINED: JOINING -> SYNCING
    SYNCED: SYNCING -> STABLE
    BEATEN: STABLE -> STABLE
    LOST: FINDING JOINING SYNCING STABLE -> FINDING
    RETRY: FINDING JOINING SYNCING STABLE -> same
    REJOIN: JOINING SYNCING STABLE -> JOINING
    FENCED: JOINING SYNCING STABLE -> FENCED
    REFUSED: FINDING JOINING SYNCING STABLE -> FAILED
    STALLED: FINDING JOINING SYNCING STABLE -> IDLE_GIVEN_UP
    STALLED_LEAVING: JOINING SYNCING STABLE -> LEAVING
    RESUMED: IDLE_GIVEN_UP -> FINDING
    CLOSE: UNJOINED FINDING JOINING SYNCING STABLE IDLE_GIVEN_UP -> CLOSED
    CLOSE_LEAVING: JOINING SYNCING STABLE -> LEAVING
    LEFT_IDLE: LEAVING -> IDLE_GIVEN_UP
    LEFT_CLOSED: LEAVING -> CLOSED
    """,
)

# Where to go on when the coordinator is found again, by the state in which it was lost.
FOUND_AGAIN: Final = {
    GroupState.JOINING: Event.FOUND,
    GroupState.SYNCING: Event.FOUND_SYNCING,
    GroupState.STABLE: Event.FOUND_STABLE,
}

# The group lives on another broker.
MOVED: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"})
# The member keeps its id and joins the next generation.
OUTDATED: Final = frozenset({"REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"})
# Trying again changes nothing: Kafka's error, and the condition of the catalogue.
REFUSALS: Final = {
    "INVALID_SESSION_TIMEOUT": "SESSION_TIMEOUT_REFUSED",
    "GROUP_AUTHORIZATION_FAILED": "AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED": "AUTHORIZATION_FAILED",
    "UNSUPPORTED_VERSION": "UNSUPPORTED_BROKER",
    "INCONSISTENT_GROUP_PROTOCOL": "MEMBER_REFUSED",
    "INVALID_GROUP_ID": "MEMBER_REFUSED",
    "INVALID_REQUEST": "MEMBER_REFUSED",
    "GROUP_MAX_SIZE_REACHED": "MEMBER_REFUSED",
}
