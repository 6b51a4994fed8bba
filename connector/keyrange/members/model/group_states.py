"""The life of a member of a Kafka group as a table, and what each of Kafka's errors means in it.

`group_member.py` moves by this table alone; `observing/diagrams.py` draws it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
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
ENDS: Final = frozenset({State.FENCED, State.FAILED, State.CLOSED})


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


def _in_contact(state: State) -> dict[tuple[State, Event], State]:
    """What can happen wherever the coordinator is being talked to."""
    return {
        (state, Event.LOST): State.FINDING,
        (state, Event.RETRY): state,
        (state, Event.REJOIN): State.JOINING,
        (state, Event.FENCED): State.FENCED,
        (state, Event.REFUSED): State.FAILED,
        (state, Event.STALLED): State.IDLE_GIVEN_UP,
        (state, Event.STALLED_LEAVING): State.LEAVING,
        (state, Event.CLOSE): State.CLOSED,
        (state, Event.CLOSE_LEAVING): State.LEAVING,
    }


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.UNJOINED, Event.BEGIN): State.FINDING,
    (State.UNJOINED, Event.CLOSE): State.CLOSED,
    (State.FINDING, Event.FOUND): State.JOINING,
    (State.FINDING, Event.FOUND_SYNCING): State.SYNCING,
    (State.FINDING, Event.FOUND_STABLE): State.STABLE,
    (State.FINDING, Event.LOST): State.FINDING,
    (State.FINDING, Event.RETRY): State.FINDING,
    (State.FINDING, Event.REFUSED): State.FAILED,
    (State.FINDING, Event.STALLED): State.IDLE_GIVEN_UP,
    (State.FINDING, Event.CLOSE): State.CLOSED,
    (State.JOINING, Event.JOINED): State.SYNCING,
    **_in_contact(State.JOINING),
    (State.SYNCING, Event.SYNCED): State.STABLE,
    **_in_contact(State.SYNCING),
    (State.STABLE, Event.BEATEN): State.STABLE,
    **_in_contact(State.STABLE),
    (State.LEAVING, Event.LEFT_IDLE): State.IDLE_GIVEN_UP,
    (State.LEAVING, Event.LEFT_CLOSED): State.CLOSED,
    (State.IDLE_GIVEN_UP, Event.RESUMED): State.FINDING,
    (State.IDLE_GIVEN_UP, Event.CLOSE): State.CLOSED,
}

# Where to go on when the coordinator is found again, by the state in which it was lost.
FOUND_AGAIN: Final = {
    State.JOINING: Event.FOUND,
    State.SYNCING: Event.FOUND_SYNCING,
    State.STABLE: Event.FOUND_STABLE,
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
