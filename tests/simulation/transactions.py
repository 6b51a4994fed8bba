"""A naive Kafka for one transactional id: a log for each partition, a coordinator, a group.

It answers the requests of `keyrange.kafka.model.sender_messages` as brokers do (Kafka 3.6 and
newer, `bumps_epochs` as `transaction.version` 2), one after the other. What a reader with
read_committed sees is read from the logs alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from keyrange.kafka.model.sender_messages import (
    KEEPERS,
    NOBODY,
    AddOffsets,
    AddPartitions,
    Answer,
    CommitToken,
    EndTransaction,
    FetchToken,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
    Keeper,
    Outcome,
    Part,
    Produce,
    Producer,
    Send,
    Token,
)
from keyrange.model.offsets import TopicPartition

NODES = 3
# Errors that Kafka's clients try again.
PASSING = {
    "NOT_LEADER_FOR_PARTITION",
    "NOT_ENOUGH_REPLICAS",
    "REQUEST_TIMED_OUT",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    "UNSTABLE_OFFSET_COMMIT",
}


def outcome(error: str) -> Outcome:
    return Outcome(error, error in PASSING)


def refusal(error: str) -> Answer:
    return Answer(outcome(error))


@dataclass
class Entry:
    """A batch of rows, or with `commits` the marker that ends its producer's transaction."""

    producer: Producer
    rows: list[Any] = field(default_factory=list)
    commits: bool | None = None


@dataclass
class Log:
    entries: list[Entry] = field(default_factory=list)
    epoch: int = -1
    # (first sequence, records) of the last five batches.
    last: list[tuple[int, int]] = field(default_factory=list)

    def append(self, producer: Producer, part: Part, takes_any_first: bool) -> str:
        if producer.epoch < self.epoch:
            return "INVALID_PRODUCER_EPOCH"
        span = (part.sequence, part.batch.records)
        if producer.epoch > self.epoch:
            if part.sequence and not (takes_any_first and self.epoch < 0):
                return "OUT_OF_ORDER_SEQUENCE_NUMBER"
            self.last = []
        elif span in self.last:
            return "NONE"
        elif self.last and part.sequence != sum(self.last[-1]):
            return "OUT_OF_ORDER_SEQUENCE_NUMBER"
        self.epoch = producer.epoch
        self.last = [*self.last[-4:], span]
        self.entries.append(Entry(producer, list(part.batch.content)))
        return "NONE"

    def mark(self, producer: Producer, commits: bool) -> None:
        if producer.epoch > self.epoch:
            self.epoch, self.last = producer.epoch, []
        self.entries.append(Entry(producer, commits=commits))

    def committed(self) -> list[Any]:
        """What read_committed gives, up to the last stable offset."""
        seen: list[Any] = []
        held: list[Any] = []
        for entry in self.entries:
            if entry.commits is None:
                held += entry.rows
            else:
                seen += held if entry.commits else []
                held = []
        return seen

    @property
    def hangs(self) -> bool:
        return bool(self.entries) and self.entries[-1].commits is None


class Cluster:
    """`timeout_ms` is that of transactions. `random` None makes no trouble of its own."""

    def __init__(self, bumps_epochs: bool, timeout_ms: int, random: Random | None) -> None:
        self.bumps_epochs, self.timeout_ms, self.random = bumps_epochs, timeout_ms, random
        self.logs: dict[TopicPartition, Log] = defaultdict(Log)
        self.leaders: dict[TopicPartition, int] = defaultdict(int)
        self.keepers = {Keeper.TRANSACTION: 0, Keeper.GROUP: 1}
        self.now_ms = 0
        self.producer = NOBODY
        self.last_epoch = -1
        self.state = "EMPTY"
        self.began_ms = 0
        self.partitions: set[TopicPartition] = set()
        self.has_group = False
        self.pending: Token | None = None
        self.token: Token | None = None
        # With a bump the answer to a repeated EndTxn depends on the epoch that it names.
        self.ended_epoch = -1

    def _maybe(self, chance: float) -> bool:
        return self.random is not None and self.random.random() < chance

    def answer(self, send: Send) -> Answer:
        request = send.request
        keeper = KEEPERS.get(type(request))
        if keeper is not None and self.keepers[keeper] != send.node_id:
            return refusal("NOT_COORDINATOR")
        if keeper is not None and self._maybe(0.05):
            return refusal("COORDINATOR_LOAD_IN_PROGRESS")
        match request:
            case FindCoordinator(which):
                return Answer(node_id=self.keepers[which])
            case FindLeaders(partitions):
                return Answer(leaders={each: self.leaders[each] for each in partitions})
            case InitProducerId(producer):
                return self._init(producer)
            case FetchToken():
                busy = self.pending is not None
                return refusal("UNSTABLE_OFFSET_COMMIT") if busy else Answer(token=self.token)
            case AddPartitions(producer, partitions):
                error = self._join(producer)
                if error == "NONE":
                    self.partitions |= set(partitions)
                return Answer(outcomes={each: outcome(error) for each in partitions})
            case AddOffsets(producer):
                error = self._join(producer)
                self.has_group |= error == "NONE"
                return refusal(error)
            case CommitToken(producer, token):
                return self._commit_token(producer, token)
            case EndTransaction(producer, commits):
                return self._end(producer, commits)
            case Produce(producer, parts):
                found = {p.batch.partition: self._produce(send.node_id, producer, p) for p in parts}
                return Answer(outcomes={place: outcome(error) for place, error in found.items()})
        raise AssertionError(request)

    def _init(self, own: Producer) -> Answer:
        mine = self.producer
        if own != NOBODY and mine != NOBODY and own.producer_id != mine.producer_id:
            return refusal("PRODUCER_FENCED")
        if self.state in ("PREPARE_COMMIT", "PREPARE_ABORT"):
            return refusal("CONCURRENT_TRANSACTIONS")
        if self.state == "ONGOING":
            self._fence()
            return refusal("CONCURRENT_TRANSACTIONS")
        if mine == NOBODY:
            self.producer = Producer(7, 0)
        elif own == NOBODY:
            self.producer, self.last_epoch = Producer(7, mine.epoch + 1), -1
        elif own.epoch == mine.epoch:
            self.producer, self.last_epoch = Producer(7, mine.epoch + 1), mine.epoch
        elif own.epoch != self.last_epoch:
            return refusal("PRODUCER_FENCED")
        self.state, self.ended_epoch = "EMPTY", -1
        return Answer(producer=self.producer)

    def _fence(self) -> None:
        """Abort what is open under an epoch that nobody is told."""
        self.producer, self.last_epoch = Producer(7, self.producer.epoch + 1), -1
        self.state, self.ended_epoch = "PREPARE_ABORT", -1

    def _join(self, producer: Producer) -> str:
        """Open a transaction, or be part of the open one."""
        if producer.producer_id != self.producer.producer_id:
            return "INVALID_PRODUCER_ID_MAPPING"
        if producer.epoch != self.producer.epoch:
            return "PRODUCER_FENCED"
        if self.state in ("PREPARE_COMMIT", "PREPARE_ABORT"):
            return "CONCURRENT_TRANSACTIONS"
        if self.state != "ONGOING":
            self.state, self.began_ms = "ONGOING", self.now_ms
            self.partitions, self.has_group = set(), False
        return "NONE"

    def _commit_token(self, producer: Producer, token: Token) -> Answer:
        if self.bumps_epochs and (error := self._join(producer)) != "NONE":
            return refusal(error)
        self.has_group |= self.bumps_epochs
        # As the verification of a group's coordinator has it.
        if producer != self.producer or self.state != "ONGOING" or not self.has_group:
            return refusal("INVALID_PRODUCER_EPOCH")
        self.pending = token
        return Answer()

    def _produce(self, node_id: int | None, producer: Producer, part: Part) -> str:
        place = part.batch.partition
        if self.leaders[place] != node_id:
            return "NOT_LEADER_FOR_PARTITION"
        if self._maybe(0.05):
            return "NOT_ENOUGH_REPLICAS"
        if self.bumps_epochs:
            if (error := self._join(producer)) != "NONE":
                return "INVALID_PRODUCER_EPOCH" if error == "PRODUCER_FENCED" else error
            self.partitions.add(place)
        elif producer != self.producer:
            return "INVALID_PRODUCER_EPOCH"
        elif self.state != "ONGOING" or place not in self.partitions:
            return "INVALID_TXN_STATE"
        error = self.logs[place].append(producer, part, not self.bumps_epochs)
        return "REQUEST_TIMED_OUT" if error == "NONE" and self._maybe(0.05) else error

    def _end(self, producer: Producer, commits: bool) -> Answer:
        kind = "COMMIT" if commits else "ABORT"
        repeats = self.bumps_epochs and producer.epoch == self.ended_epoch
        if producer.producer_id != self.producer.producer_id:
            return refusal("INVALID_PRODUCER_ID_MAPPING")
        if producer.epoch != self.producer.epoch and not repeats:
            return refusal("PRODUCER_FENCED")
        if self.state == "ONGOING" and not repeats:
            self.state = f"PREPARE_{kind}"
            if self.bumps_epochs:
                self.ended_epoch = producer.epoch
                self.producer = Producer(7, producer.epoch + 1)
                self.last_epoch = producer.epoch
            return Answer(producer=self.producer if self.bumps_epochs else NOBODY)
        if self.bumps_epochs and not repeats:
            return refusal("INVALID_TXN_STATE" if self.state == "EMPTY" else "PRODUCER_FENCED")
        if self.state == f"COMPLETE_{kind}":
            return Answer(producer=self.producer if self.bumps_epochs else NOBODY)
        if self.state == f"PREPARE_{kind}":
            return refusal("CONCURRENT_TRANSACTIONS")
        return refusal("INVALID_TXN_STATE")

    def work(self) -> None:
        """Write the markers of a transaction that is to end; abort one that took too long."""
        if self.state.startswith("PREPARE_"):
            commits = self.state == "PREPARE_COMMIT"
            for place in sorted(self.partitions):
                self.logs[place].mark(self.producer, commits)
            if commits and self.has_group and self.pending is not None:
                self.token = self.pending
            self.pending = None
            self.state = self.state.replace("PREPARE", "COMPLETE")
        elif self.state == "ONGOING" and self.now_ms - self.began_ms > self.timeout_ms:
            self._fence()

    def move(self, random: Random) -> None:
        """Another broker leads, or keeps."""
        if random.random() < 0.5:
            self.leaders[random.choice(sorted(self.logs) or [TopicPartition("t", 0)])] = (
                random.randrange(NODES)
            )
        else:
            self.keepers[random.choice(list(Keeper))] = random.randrange(NODES)
