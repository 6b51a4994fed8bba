"""Consumers that send what they have done in transactions, over a naive Kafka and prepared commits
that are as durable as all else: by a seed.

A transaction is committed with its mark or not at all, and who begins last under an id is the only
one that counts. The end of a transaction may come late: whoever begins under its id ends it one way
or the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar
from unittest.mock import patch

from keyrange.consumer import transaction
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.table import prepared_commits
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.model.offsets import TopicPartition
from keyrange.sending import marked_sender
from simulation.consumers import _EXCUSED, Group, Journal, Process
from simulation.faults import Crash
from simulation.topics import Place
from simulation.world import World


class Fails(Exception):
    """The user's own code does, within a block."""


@dataclass
class Kafka:
    """What is committed, and who counts under each transactional id."""

    world: World
    marks: dict[str, Token] = field(default_factory=dict)
    counts: dict[str, Producer] = field(default_factory=dict)
    # Transactions that end whenever Kafka hears of it.
    late: dict[str, tuple[list[Place], Token]] = field(default_factory=dict)
    log: list[Place] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def commit(self, identity: str, rows: list[Place], mark: Token) -> None:
        self.log += rows
        self.marks[identity] = mark

    def ends(self, identity: str) -> None:
        late = self.late.pop(identity, None)
        if late is not None and self.world.random.random() < 0.5:
            self.commit(identity, *late)


class Producer:
    """As `TransactionalProducer`."""

    kafka: ClassVar[Kafka]

    def __init__(self, _: object, settings: SenderSettings) -> None:
        self._id = settings.transactional_id

    def start(self) -> Token | None:
        kafka, faults = self.kafka, self.kafka.world.faults
        faults.at("InitProducerId")
        if faults.happens(faults.chances.broker, "no coordinator"):
            raise error("RECORDS_NOT_DELIVERED", "no coordinator")
        kafka.ends(self._id)
        kafka.counts[self._id] = self
        faults.at("OffsetFetch")
        return kafka.marks.get(self._id)

    def send(self, batches: Iterable[Batch], mark: Token) -> None:
        kafka, faults = self.kafka, self.kafka.world.faults
        rows = [each.content for each in batches]
        faults.at("Produce")
        if faults.happens(faults.chances.broker, "aborts"):
            raise error("TRANSACTION_ABORTED", "once more")
        if kafka.counts.get(self._id) is not self:
            raise error("PRODUCER_FENCED", "another one has begun")
        if faults.happens(faults.chances.broker, "a late end of a transaction"):
            kafka.late[self._id] = rows, mark
            faults.at("EndTxn")
            raise error("RECORDS_NOT_DELIVERED", "nobody heard of its end")
        kafka.commit(self._id, rows, mark)
        faults.at("EndTxn")
        if faults.happens(faults.chances.broker, "an end that nobody hears of"):
            raise error("RECORDS_NOT_DELIVERED", "it is committed")


class Files:
    """As `Directory`."""

    def __init__(self, *_: object) -> None:
        self._kafka = Producer.kafka

    def _at(self, call: str) -> None:
        faults = self._kafka.world.faults
        faults.at(call)
        if faults.happens(faults.chances.fails, f"failed {call}"):
            raise OSError("the store is away")

    def write(self, path: str, data: bytes) -> None:
        self._at("write of a prepared commit")
        self._kafka.files[path] = data
        self._kafka.world.faults.at("written prepared commit")

    def sizes(self, folder: str) -> dict[str, int]:
        self._at("list of prepared commits")
        files = self._kafka.files
        return {
            path.partition("/")[2]: len(files[path])
            for path in files
            if path.startswith(f"{folder}/")
        }

    def read_if_there(self, path: str) -> bytes | None:
        self._at("read of a prepared commit")
        return self._kafka.files.get(path)

    def remove_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._at("removal of a prepared commit")
            self._kafka.files.pop(path, None)


class Output:
    """As `TransactionOutput`: rows are the places of records."""

    def __init__(self, _: object) -> None:
        self._rows: list[Place] = []

    def add(self, rows: list[Place], _: str) -> None:
        self._rows += rows

    def batches(self) -> list[Batch]:
        return [Batch(TopicPartition("out", 0), 1, 1, each) for each in self._rows]


class Transacting(Process):
    """Sends each record that it has done, in the transaction that says so."""

    def __init__(self, world: World, journal: Journal, name: str, random: Random) -> None:
        super().__init__(world, journal, name, random)
        # Who watches the commits of others has nothing to watch here: the log says what is done.
        self._consumer._holding.commit = self._write
        self._left: list[Place] = []

    def work(self) -> None:
        consumer, random = self._consumer, self._random
        # What an end that fails leaves comes again, or is done.
        late, self._left = self._left, []
        try:
            with consumer.transaction() as block:
                before, late = late, []
                for _ in range(random.choice([1, 1, 2])):
                    late += self._some(block, consumer.poll(random.choice([0, 300])))
                self._done(block, before)
                if random.random() < 0.15:
                    raise Fails
        except Fails:
            late = before
        self._left = late
        if random.random() < 0.6:
            self.ends = consumer.commit()

    def _some(self, block: Any, batches: list[Any]) -> list[Place]:
        names = ("topic", "partition", "offset")
        handed = [
            Place(*each, 0)
            for batch in batches
            for each in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        ]
        late = [each for each in handed if self._random.random() < 0.2]
        self._done(block, [each for each in handed if each not in late])
        return late

    def _done(self, block: Any, records: list[Place]) -> None:
        for each in records:
            if self._consumer.acknowledge(each[:2], [each.offset]):
                block.send([each], topic="out")

    def gone(self) -> None: ...

    def on_key_ranges_revoked(self, _: Any) -> None:
        self._left = []

    def on_key_ranges_lost(self, _: Any) -> None:
        self._left = []
        self._journal.losers.append(self.name)


class TransactingGroup(Group):
    process = Transacting
    excused: ClassVar[set[str]] = _EXCUSED | {
        "RECORDS_NOT_DELIVERED",
        "TRANSACTION_ABORTED",
        "PRODUCER_FENCED",
        "NOT_DELIVERED",
    }

    def __init__(self, world: World, random: Random, by_offset: bool = False) -> None:
        super().__init__(world, random, by_offset)
        # Processes that live on while others have their names.
        self._zombies: list[Process] = []

    @property
    def _settled(self) -> set[Place]:
        return set(Producer.kafka.log)

    def _step(self, name: str) -> None:
        random = self.random
        lives_on = not self._calm and not self._is_quiet and name in self.there
        if lives_on and random.random() < 0.03:
            self.world.faults.note(f"{name} is taken for dead")
            self._zombies.append(self.there.pop(name))
        if self._zombies and not self._calm and random.random() < 0.3:
            zombie = random.choice(self._zombies)
            try:
                zombie.work()
            except (KeyrangeError, Crash) as failure:
                self.world.faults.note(f"{zombie.name}, taken for dead: {failure}")
                if random.random() < 0.5:
                    self._zombies.remove(zombie)
        super()._step(name)


@contextmanager
def transacting(world: World) -> Iterator[Kafka]:
    """Within `World.installed`."""
    kafka = Producer.kafka = Kafka(world)
    places: Mapping[Any, dict[str, Any]] = {
        marked_sender: {"TransactionalProducer": Producer},
        prepared_commits: {"Directory": Files},
        transaction: {"TransactionOutput": Output},
    }
    patches = [
        patch.object(m, name, what) for m, own in places.items() for name, what in own.items()
    ]
    for each in patches:
        each.start()
    try:
        yield kafka
    finally:
        for each in patches:
            each.stop()
