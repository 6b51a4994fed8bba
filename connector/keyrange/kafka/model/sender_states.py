"""The life of a transactional sender as a table, and what each of Kafka's errors means to it.

`transactional_sender.py` moves by this table alone.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from keyrange.kafka.model.sender_messages import (
    AddOffsets,
    AddPartitions,
    CommitToken,
    EndTransaction,
    FetchToken,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
)
from keyrange.model.offsets import TopicPartition
from keyrange.text.transitions import transitions


class Phase(StrEnum):
    STARTING = "STARTING"
    ASKING = "ASKING"
    READY = "READY"
    SENDING = "SENDING"
    ADDING_OFFSETS = "ADDING_OFFSETS"
    COMMITTING_TOKEN = "COMMITTING_TOKEN"  # noqa: S105
    ENDING = "ENDING"
    ABORTING = "ABORTING"
    RENEWING = "RENEWING"
    OVER = "OVER"


class Event(StrEnum):
    """What happens to a sender."""

    IDENTIFIED = "producer id and epoch received"
    TOLD = "the last token is known"
    BEGIN = "a transaction begins"
    SENT = "all batches are acknowledged"
    OFFSETS_ADDED = "the group is part of the transaction"
    TOKEN_KEPT = "the token is part of the transaction"  # noqa: S105
    COMMITTED = "committed"
    COMMITTED_UNSURE = "committed, and a request of the epoch may still be under way"
    ABORT = "the transaction has to be aborted"
    ABORTED = "aborted"
    END = "fenced, refused, or no answer in time"


TRANSITIONS: Final = transitions(
    Phase,
    Event,
    """
    IDENTIFIED: STARTING -> ASKING
    IDENTIFIED: RENEWING -> READY
    TOLD: ASKING -> READY
    BEGIN: READY -> SENDING
    SENT: SENDING -> ADDING_OFFSETS
    OFFSETS_ADDED: ADDING_OFFSETS -> COMMITTING_TOKEN
    TOKEN_KEPT: COMMITTING_TOKEN -> ENDING
    COMMITTED: ENDING -> READY
    COMMITTED_UNSURE: ENDING -> RENEWING
    ABORT: SENDING ADDING_OFFSETS COMMITTING_TOKEN ENDING -> ABORTING
    ABORTED: ABORTING -> RENEWING
    END: STARTING ASKING READY SENDING ADDING_OFFSETS COMMITTING_TOKEN ENDING -> OVER
    END: ABORTING RENEWING -> OVER
    """,
)

# In these a transaction is open that can be aborted.
ABORTABLE: Final = frozenset(phase for phase, event in TRANSITIONS if event is Event.ABORT)

# The coordinator is another broker.
MOVED: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"})
# The transactional id has another producer.
FENCED: Final = frozenset(
    {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}
)
# The transaction cannot be committed; another one may be.
LOST: Final = frozenset(
    {"TRANSACTION_ABORTABLE", "UNKNOWN_PRODUCER_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER"}
)
# The batch is in the log, from an earlier time that it was sent.
APPENDED: Final = frozenset({"NONE", "DUPLICATE_SEQUENCE_NUMBER"})
OUT_OF_ORDER: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"
# Another partition of the request had an error, and this one was not looked at.
NOT_TRIED: Final = "OPERATION_NOT_ATTEMPTED"
# The coordinator is still at work on the transaction before.
BUSY: Final = "CONCURRENT_TRANSACTIONS"
NOTHING_OPEN: Final = "INVALID_TXN_STATE"
UNKNOWN_GROUP: Final = "GROUP_ID_NOT_FOUND"

# The conditions of the catalogue that Kafka's errors become.
_CONDITIONS: Final[dict[str, Collection[str]]] = {
    "PRODUCER_FENCED": FENCED,
    "TRANSACTION_ABORTED": (*LOST, NOTHING_OPEN),
    "MESSAGE_TOO_LARGE": ("MESSAGE_SIZE_TOO_LARGE", "MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
    "INVALID_RECORD": ("INVALID_RECORD", "INVALID_TIMESTAMP", "POLICY_VIOLATION"),
    "AUTHORIZATION_FAILED": (
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    ),
}
_SAID: Final[dict[type, str]] = {
    InitProducerId: "a producer id",
    AddOffsets: "adding the group to the transaction",
    EndTransaction: "the end of the transaction",
}


def condition(name: str) -> str:
    """The condition of the catalogue that one of Kafka's errors becomes."""
    found = (each for each, names in _CONDITIONS.items() if name in names)
    return next(found, "TRANSACTION_REFUSED")


def said(request: object, place: TopicPartition) -> str:
    """A request in an error's words; `place` is where the group's offset is."""
    match request:
        case FetchToken():
            return f"asking for the group's offset for {place}"
        case CommitToken():
            return f"the group's offset for {place}"
        case FindCoordinator(keeper):
            return f"the coordinator of the {keeper}"
        case AddPartitions(partitions=partitions):
            return f"adding {', '.join(map(str, partitions))} to the transaction"
        case FindLeaders(partitions):
            return f"metadata of {', '.join(map(str, partitions))}"
    return _SAID[type(request)]
