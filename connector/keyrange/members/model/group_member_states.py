"""The life of a member of a Kafka group as a table, and what each of Kafka's errors means in it.

`group_member.py` moves by this table alone; `tests/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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


def _in_contact(state: GroupState) -> dict[tuple[GroupState, Event], GroupState]:
    """What can happen wherever the coordinator is being talked to."""
    return {
        (state, Event.LOST): GroupState.FINDING,
        (state, Event.RETRY): state,
        (state, Event.REJOIN): GroupState.JOINING,
        (state, Event.FENCED): GroupState.FENCED,
        (state, Event.REFUSED): GroupState.FAILED,
        (state, Event.STALLED): GroupState.IDLE_GIVEN_UP,
        (state, Event.STALLED_LEAVING): GroupState.LEAVING,
        (state, Event.CLOSE): GroupState.CLOSED,
        (state, Event.CLOSE_LEAVING): GroupState.LEAVING,
    }


TRANSITIONS: Final[dict[tuple[GroupState, Event], GroupState]] = {
    (GroupState.UNJOINED, Event.BEGIN): GroupState.FINDING,
    (GroupState.UNJOINED, Event.CLOSE): GroupState.CLOSED,
    (GroupState.FINDING, Event.FOUND): GroupState.JOINING,
    (GroupState.FINDING, Event.FOUND_SYNCING): GroupState.SYNCING,
    (GroupState.FINDING, Event.FOUND_STABLE): GroupState.STABLE,
    (GroupState.FINDING, Event.LOST): GroupState.FINDING,
    (GroupState.FINDING, Event.RETRY): GroupState.FINDING,
    (GroupState.FINDING, Event.REFUSED): GroupState.FAILED,
    (GroupState.FINDING, Event.STALLED): GroupState.IDLE_GIVEN_UP,
    (GroupState.FINDING, Event.CLOSE): GroupState.CLOSED,
    (GroupState.JOINING, Event.JOINED): GroupState.SYNCING,
    **_in_contact(GroupState.JOINING),
    (GroupState.SYNCING, Event.SYNCED): GroupState.STABLE,
    **_in_contact(GroupState.SYNCING),
    (GroupState.STABLE, Event.BEATEN): GroupState.STABLE,
    **_in_contact(GroupState.STABLE),
    (GroupState.LEAVING, Event.LEFT_IDLE): GroupState.IDLE_GIVEN_UP,
    (GroupState.LEAVING, Event.LEFT_CLOSED): GroupState.CLOSED,
    (GroupState.IDLE_GIVEN_UP, Event.RESUMED): GroupState.FINDING,
    (GroupState.IDLE_GIVEN_UP, Event.CLOSE): GroupState.CLOSED,
}

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
