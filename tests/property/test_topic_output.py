"""Drivers that end anywhere, stay on while another one has begun, or find that Kafka has forgotten:
each file of each batch is in the topic once, and batches come one after the other.

Kafka is a naive one: what a sender says is committed with its mark or not at all, and who begins
last under an id is the only one that counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits import topic_output
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.individual_commits.topic_output import TopicOutput
from keyrange.kafka.model.sender_messages import Token
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.model.checkpoint import Checkpoint
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.producer_properties import ProducerSettings
from keyrange.sending import marked_sender, shard_sender
from keyrange.sending.model import shards
from keyrange.sending.open_senders import OpenSenders
from keyrange.sending.topic_address import TopicAddress
from keyrange.storage.model.sink_driver import Driver, application_of
from project.forms import by_form, everyday

NOWHERE = Checkpoint({})
FILES = 5


class Dies(BaseException):
    """The process of a driver or a task is gone."""


@dataclass
class Kafka:
    """What is committed, and who counts under each transactional id."""

    random: Random
    marks: dict[str, Token] = field(default_factory=dict)
    counts: dict[str, object] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    dies: float = 0.0

    def may_die(self) -> None:
        if self.random.random() < self.dies:
            raise Dies


class Producer:
    """As `TransactionalProducer`, of a naive Kafka."""

    kafka: Kafka

    def __init__(self, _: object, settings: SenderSettings) -> None:
        self._id = settings.transactional_id

    def start(self) -> Token | None:
        self.kafka.may_die()
        self.kafka.counts[self._id] = self
        self.kafka.may_die()
        return self.kafka.marks.get(self._id)

    def send(self, batches: Iterable[str], token: Token) -> None:
        self.kafka.may_die()
        sent = list(batches)
        if self.kafka.counts[self._id] is not self:
            raise error("PRODUCER_FENCED", "another one has begun")
        if self.kafka.random.random() < self.kafka.dies:
            raise error("TRANSACTION_ABORTED", "once more")
        self.kafka.log += sent
        self.kafka.marks[self._id] = token
        self.kafka.may_die()
        if self.kafka.random.random() < self.kafka.dies:
            raise error("RECORDS_NOT_DELIVERED", "it is committed, and nobody heard it")


class Session:
    """Runs the tasks of a job in any order; where one fails, the others may have ended."""

    random: Random

    @property
    def sparkSession(self) -> Session:
        return self

    def range(self, _: int, count: int, __: int, ___: int) -> Session:
        self._count = count
        return self

    def mapInArrow(self, send: Callable[[Any], Any], _: str) -> Session:
        self._send = send
        return self

    def collect(self) -> list[Any]:
        rows, failures = [], []
        for at in self.random.sample(range(self._count), self._count):
            try:
                [sent] = self._send([pa.RecordBatch.from_pydict({"id": [at]})])
                rows += sent.to_pylist()
            except (KeyrangeError, Dies) as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return [SimpleNamespace(**row) for row in rows]


class OneByOne(contextlib.nullcontext[Any]):
    """In the place of threads, so that a seed says what happens."""

    def __enter__(self) -> OneByOne:
        return self

    def map(self, call: Callable[[int], None], senders: Iterable[int]) -> Iterator[None]:
        return map(call, senders)


@dataclass
class World:
    """What drivers share: manifests, commits, and which of them counts by the commits."""

    kafka: Kafka
    manifests: dict[tuple[str, int], Manifest] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    newest: int = 0
    # Who sends which batch of the stream, by its application.
    sent_as: list[tuple[str, int]] = field(default_factory=list)


class Running:
    """A driver, step by step: a batch is a generator that may be left, or gone on with later."""

    def __init__(self, world: World, application: str, stops: Iterable[str] = ()) -> None:
        world.newest += 1
        self.world, self.application = world, application
        stopped = frozenset(stops) - {application}
        self.driver = Driver(
            application.split(":")[2],
            world.newest,
            frozenset(each.split(":")[2] for each in stopped),
            {each: world.committed.get(each, -1) for each in stopped},
            stopped,
        )
        address = TopicAddress("out", "out", ClientSettings(), ProducerSettings())
        senders = world.kafka.random.choice((1, 2, 3))
        session = Session()
        session.random = world.kafka.random
        self.output = TopicOutput("", {}, OpenSenders(address), senders, session)

    def batch(self) -> Iterator[None]:
        world, application = self.world, self.application
        batch_id = world.committed.get(application, -1) + 1
        at = Planned("q", batch_id, NOWHERE, NOWHERE, batch_id - 1)
        if self.driver.stopped:
            self.output.stop_others(self.driver)
        yield
        manifest = world.manifests.get((application, batch_id))
        is_made = manifest is None
        if is_made:
            self.output.mark(application, at, self.driver)
        yield
        self._count()
        yield
        if manifest is None:
            manifest = self._manifest(batch_id)
            manifest = world.manifests.setdefault((application, batch_id), manifest)
        yield
        store: Any = SimpleNamespace(location="/verdicts")
        self.output.write(store, manifest, application, at, is_made, self.driver)
        yield
        self._count()
        if world.committed.get(application, -1) < batch_id:
            world.committed[application] = batch_id
            world.sent_as.append((application, batch_id))

    def _count(self) -> None:
        """As a driver looks at the commits."""
        if self.driver.number != self.world.newest:
            raise error("COMMITS_FENCED", "another driver")

    def _manifest(self, batch_id: int) -> Manifest:
        random = self.world.kafka.random
        names = [f"{self.application} {batch_id} {at}" for at in range(random.randint(0, FILES))]
        rows = [(name, random.randint(1, 5), 1, "{}", [], "") for name in names]
        made: Any = {"file": rows}
        return Manifest(batch_id, topics={"": self.output.as_told()}, rows=made)


@pytest.fixture
def naive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marked_sender, "TransactionalProducer", Producer)
    names = lambda rows: (each.name for each in rows.files)  # noqa: E731
    monkeypatch.setattr(shard_sender.FileRows, "__iter__", names)
    monkeypatch.setattr(marked_sender, "Cluster", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(shard_sender.ShardSender, "close", lambda _: None)
    monkeypatch.setattr(topic_output, "check_there", lambda *_, **__: None)
    monkeypatch.setattr(topic_output, "Directory", lambda *_: None)
    monkeypatch.setattr(topic_output, "ThreadPoolExecutor", lambda _: OneByOne())
    # So that batches have several senders, and both ways of sending take turns.
    monkeypatch.setattr(shards, "_BYTES_PER_SENDER", 6)
    monkeypatch.setattr(topic_output, "_SMALL_BYTES", 6)


_ENDS = {
    *("COMMITS_FENCED", "PRODUCER_FENCED", "TRANSACTION_ABORTED"),
    *("RECORDS_NOT_DELIVERED", "UNCOMMITTED_OUTPUT", "CHECKPOINT_BEHIND"),
}


def advance(steps: Iterator[None]) -> bool:
    """Whether it goes on; errors end it as they end a driver."""
    try:
        next(steps)
    except StopIteration:
        return False
    except Dies:
        return False
    except KeyrangeError as failure:
        if failure.condition.name not in _ENDS:
            raise
        return False
    return True


def check(world: World) -> None:
    """What is in the topic is what the commits say, once."""
    wanted = [
        row[0]
        for application, batch_id in world.sent_as
        for row in world.manifests[application, batch_id].rows["file"]
    ]
    assert sorted(world.kafka.log) == sorted(wanted)
    # The batches of an application are in the topic one after the other.
    order = [(name.split()[0], int(name.split()[1])) for name in world.kafka.log]
    for application in {each for each, _ in order}:
        own = [batch_id for each, batch_id in order if each == application]
        assert own == sorted(own)


@pytest.mark.usefixtures("naive")
@pytest.mark.parametrize("seed", range(by_form(12, 60, 60)))
def test_each_file_is_sent_once_whoever_ends_where(seed: int) -> None:
    """One checkpoint: a driver ends, or another one begins beside it and the old one goes on."""
    random = Random(seed)
    world = World(Kafka(random))
    Producer.kafka = world.kafka
    application = application_of("q", "s")
    world.kafka.dies = random.choice((0.0, 0.05, 0.15))
    running: list[tuple[Running, Iterator[None]]] = []
    for _ in range(400):
        if not running or random.random() < 0.03:
            driver = Running(world, application)
            running.append((driver, driver.batch()))
        at = random.randrange(len(running))
        driver, steps = running[at]
        if advance(steps):
            continue
        del running[at]
        if driver.driver.number == world.newest and random.random() < 0.9:
            running.append((driver, driver.batch()))
    world.kafka.dies = 0.0
    last = Running(world, application)
    for _ in last.batch():
        pass
    check(world)
    assert world.committed[application] > 0


@pytest.mark.usefixtures("naive")
@pytest.mark.parametrize("first", everyday(*range(0, 1_000, 100)))
def test_a_driver_of_another_checkpoint_stops_the_one_before(first: int) -> None:
    """Old drivers have looked at the commits, and go on when the new one has begun: either their
    batch is out before, which the new one tells, or nothing of it comes any more."""
    for seed in range(first, first + 100):
        take_over(Random(seed))


def take_over(random: Random) -> None:
    world = World(Kafka(random))
    Producer.kafka = world.kafka
    oldest = Running(world, application_of("q", "old"))
    for _ in range(random.randrange(3)):
        for _ in oldest.batch():
            pass
    before = oldest.batch()
    for _ in range(random.randrange(7)):
        advance(before)
    old = Running(world, oldest.application)
    steps = old.batch()
    for _ in range(random.randrange(9)):
        advance(random.choice((before, steps, steps)))
    new = Running(world, application_of("p", "new"), [old.application])
    theirs = new.batch()
    tells_of_output = False
    try:
        next(theirs)
    except KeyrangeError as failure:
        if failure.condition.name != "UNCOMMITTED_OUTPUT":
            raise
        tells_of_output = True
    said, late = list(world.kafka.log), [before, steps]
    while late:
        late = [each for each in random.sample(late, len(late)) if advance(each)]
    assert world.kafka.log == said
    if not tells_of_output:
        for _ in theirs:
            pass
        check(world)


@pytest.mark.usefixtures("naive")
@pytest.mark.parametrize("seed", range(40))
def test_what_kafka_has_forgotten_is_never_guessed(seed: int) -> None:
    """A driver ends at any step of a batch, and its marks are gone when the next one begins."""
    random = Random(seed)
    world = World(Kafka(random))
    Producer.kafka = world.kafka
    application = application_of("q", "s")
    first = Running(world, application)
    for _ in range(1 + random.randrange(2)):
        for _ in first.batch():
            pass
    steps = first.batch()
    for _ in range(random.randrange(6)):
        advance(steps)
    world.kafka.marks.clear()
    at = world.committed[application] + 1
    found = world.manifests.get((application, at))
    is_unsure = found is not None and bool(found.rows["file"])
    second = Running(world, application)
    if is_unsure:
        with pytest.raises(KeyrangeError, match="TOPIC_OUTPUT_FORGOTTEN"):
            list(second.batch())
        return
    list(second.batch())
    check(world)


@pytest.mark.usefixtures("naive")
@pytest.mark.parametrize("seed", range(40))
def test_a_checkpoint_that_is_behind_the_topic_sends_nothing(seed: int) -> None:
    """An older copy of it was put back: its next batches have numbers that are out, and other
    rows."""
    random = Random(seed)
    world = World(Kafka(random))
    Producer.kafka = world.kafka
    application = application_of("q", "s")
    first = Running(world, application)
    for _ in range(4):
        for _ in first.batch():
            pass
    if not any(world.manifests[application, at].rows["file"] for at in (2, 3)):
        return
    said = list(world.kafka.log)
    world.committed[application] = random.choice((0, 1))
    world.manifests.clear()
    second = Running(world, application)
    with pytest.raises(KeyrangeError, match="CHECKPOINT_BEHIND"):
        list(second.batch())
    assert world.kafka.log == said
