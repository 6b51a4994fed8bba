"""What a transactional sender and the brokers say to each other, as plain values.

Errors are Kafka's names (`NOT_COORDINATOR`); `NONE` is none. Nothing here knows bytes:
`keyrange.kafka.messages` turns these into messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from keyrange.model.offsets import TopicPartition

NONE: Final = "NONE"


@dataclass(frozen=True, slots=True)
class Producer:
    """Who sends: the id that the coordinator gave to a transactional id, and its epoch."""

    producer_id: int = -1
    epoch: int = -1


NOBODY: Final = Producer()


@dataclass(frozen=True, slots=True)
class Token:
    """What a transaction commits with its records as a group's offset: a number, at least 0, and a
    text beside it. It says later that the transaction is committed."""

    number: int
    text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A record batch as its sender sees it. `content` is its owner's, and nothing to the sender."""

    partition: TopicPartition
    records: int
    size_bytes: int
    content: Any = None


class Keeper(StrEnum):
    """What a coordinator keeps."""

    TRANSACTION = "transaction"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    keeper: Keeper


@dataclass(frozen=True, slots=True)
class FindLeaders:
    """Metadata of the topics of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """`producer` NOBODY fences whoever sent before; a sender's own only goes on where it is still
    the one that counts (KIP-360)."""

    producer: Producer


@dataclass(frozen=True, slots=True)
class FetchToken:
    """OffsetFetch that waits for open transactions (KIP-447)."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    producer: Producer
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsets:
    producer: Producer


@dataclass(frozen=True, slots=True)
class CommitToken:
    producer: Producer
    token: Token


@dataclass(frozen=True, slots=True)
class EndTransaction:
    producer: Producer
    commits: bool


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One batch of a Produce request; `sequence` is that of its first record."""

    batch: Batch
    sequence: int


@dataclass(frozen=True, slots=True, eq=False)
class Produce:
    """At most one batch for each partition."""

    producer: Producer
    parts: tuple[Part, ...]


ToCoordinator = (
    InitProducerId | FetchToken | AddPartitions | AddOffsets | CommitToken | EndTransaction
)
ToAnyone = FindCoordinator | FindLeaders
Request = ToCoordinator | ToAnyone | Produce

# Whom a question belongs to.
KEEPERS: Final[Mapping[type[Any], Keeper]] = {
    InitProducerId: Keeper.TRANSACTION,
    AddPartitions: Keeper.TRANSACTION,
    AddOffsets: Keeper.TRANSACTION,
    EndTransaction: Keeper.TRANSACTION,
    FetchToken: Keeper.GROUP,
    CommitToken: Keeper.GROUP,
}


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A request, and the broker that it goes to; None stands for any one."""

    request: Request
    node_id: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition of a request. `passes`: Kafka means it to be tried again."""

    error: str = NONE
    passes: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """To a request: the outcome as a whole, and what it asked for.

    `node_id` is to FindCoordinator, `leaders` to FindLeaders (partitions without one are absent),
    `producer` to InitProducerId and EndTransaction (NOBODY where the epoch stays), `token` to
    FetchToken (None: there is none), `outcomes` to AddPartitions and Produce.
    """

    whole: Outcome = Outcome()
    node_id: int = -1
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    producer: Producer = NOBODY
    token: Token | None = None
    outcomes: Mapping[TopicPartition, Outcome] = field(default_factory=dict)
