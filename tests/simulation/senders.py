"""Transactional senders over a naive Kafka and a network that cuts, delays and loses: by a seed.

The job is a list of transactions, each of rows for partitions. Whoever sends asks for the last
token, and sends what comes behind it. A sender that ends is followed by another one, and so is one
that is killed; a killed one may live on for a while (a zombie).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from keyrange.kafka.model.sender_messages import Answer, Batch, Send, Token
from keyrange.kafka.model.sender_states import Phase
from keyrange.kafka.model.transactional_sender import SenderSettings, TransactionalSender
from keyrange.model.offsets import TopicPartition
from simulation.transactions import Cluster

Rows = dict[TopicPartition, list[list[str]]]
TIMEOUT_MS = 60_000
DELIVERY_MS = 20_000


@dataclass
class Wire:
    """A connection to one broker: requests under way, and answers on their way back."""

    sent: deque[Send] = field(default_factory=deque)
    answers: deque[tuple[Send, Answer]] = field(default_factory=deque)


class Process:
    """A sender at work on the job, with connections of its own."""

    def __init__(self, job: list[Rows], bumps_epochs: bool, request_bytes: int) -> None:
        settings = SenderSettings(
            "id",
            TopicPartition("t", 0),
            bumps_epochs,
            request_bytes,
            delivery_timeout_ms=DELIVERY_MS,
        )
        self.sender = TransactionalSender(settings)
        self.job = job
        self.wires: dict[int | None, Wire] = {}
        self._at = -1

    @property
    def is_done(self) -> bool:
        token = self.sender.token
        last = token is not None and token.number == len(self.job) - 1
        return self.sender.phase is Phase.READY and last

    @property
    def is_over(self) -> bool:
        return self.sender.phase is Phase.OVER

    def work(self, now_ms: int) -> None:
        """Begin the next transaction where one is due, and send what the sender wants sent."""
        sender = self.sender
        if sender.phase is Phase.READY and not self.is_done:
            self._at = -1 if sender.token is None else sender.token.number
            rows = self.job[self._at + 1]
            sender.begin()
            for place, batches in rows.items():
                for batch in batches:
                    sender.offer(Batch(place, len(batch), 10 * len(batch), batch), now_ms)
            sender.commit(Token(self._at + 1, f"batch {self._at + 1}"))
        for send in sender.next_requests(now_ms):
            self.wires.setdefault(send.node_id, Wire()).sent.append(send)

    def cut(self, node_id: int | None, now_ms: int) -> list[Send]:
        """Break a connection; returns what had not reached the broker, and may yet."""
        wire = self.wires.pop(node_id)
        left = list(wire.sent)
        for send in [*(each for each, _ in wire.answers), *left]:
            self.sender.failed(send, "cut", now_ms)
        return left


class World:
    """Everything that happens, one thing after the other. `trouble` is the share of steps in which
    something goes wrong; `kill_at` numbers the steps behind which the sender is killed."""

    def __init__(
        self,
        job: list[Rows],
        bumps_epochs: bool,
        random: Random,
        trouble: float = 0.0,
        kill_at: frozenset[int] = frozenset(),
    ) -> None:
        self.job, self.random, self.trouble, self.kill_at = job, random, trouble, kill_at
        self.bumps_epochs = bumps_epochs
        self.cluster = Cluster(bumps_epochs, TIMEOUT_MS, random if trouble else None)
        self.process = self._started()
        self.zombies: list[Process] = []
        # What was on its way when a connection broke, and how soon it comes.
        self.late: deque[Send] = deque()
        self.haste = random.choice((0.2, 0.02, 0.005))
        self.steps = 0
        self.failures: list[str] = []

    def _started(self) -> Process:
        return Process(self.job, self.bumps_epochs, self.random.choice((15, 40, 1000)))

    def run(self, steps_max: int = 200_000) -> None:
        """Until the job is done, and what was late has come."""
        while not self.process.is_done:
            self.steps += 1
            assert self.steps < steps_max, f"no end in sight: {self.process.sender.phase}"
            self._step()
            if self.steps in self.kill_at:
                self.kill()
            if self.process.is_over:
                failure = self.process.sender.failure
                self.failures.append(failure.error.condition.name if failure else "")
                self._close(self.process)
                self.process = self._started()
        for process in self.zombies:
            self._close(process)
        while self.late:
            self.cluster.answer(self.late.popleft())
        self.cluster.now_ms += 2 * TIMEOUT_MS
        for _ in range(3):
            self.cluster.work()

    def kill(self) -> None:
        """The process dies, or nobody hears of it any more while it lives on."""
        if self.trouble and self.random.random() < 0.4:
            self.zombies.append(self.process)
        else:
            self._close(self.process)
        self.process = self._started()

    def _close(self, process: Process) -> None:
        for node_id in list(process.wires):
            self._keep_late(process.cut(node_id, self.cluster.now_ms))

    def _keep_late(self, sends: list[Send]) -> None:
        """Of what was under way when a connection broke the first part may come late."""
        count = self.random.randint(0, len(sends))
        self.late.extend(sends[:count])

    def _step(self) -> None:
        random, cluster = self.random, self.cluster
        cluster.now_ms += random.choice((0, 1, 5, 20))
        if random.random() < 0.5:
            cluster.work()
        if random.random() < self.trouble:
            self._make_trouble()
        if self.late and random.random() < self.haste:
            cluster.answer(self.late.popleft())
        self.zombies = [each for each in self.zombies if not (each.is_over or each.is_done)]
        for process in [self.process, *self.zombies]:
            process.work(cluster.now_ms)
            self._move_one(process)

    def _move_one(self, process: Process) -> None:
        """One request reaches its broker, or one answer the sender, or nothing moves."""
        if self.random.random() < 0.3:
            return
        able = [wire for wire in process.wires.values() if wire.sent or wire.answers]
        if not able:
            at_ms = process.sender.wake_at_ms
            if process is self.process:
                self.cluster.now_ms = max(self.cluster.now_ms, at_ms)
            return
        wire = self.random.choice(able)
        if wire.sent and (not wire.answers or self.random.random() < 0.6):
            send = wire.sent.popleft()
            wire.answers.append((send, self.cluster.answer(send)))
        else:
            process.sender.answered(*wire.answers.popleft(), self.cluster.now_ms)

    def _make_trouble(self) -> None:
        random, cluster = self.random, self.cluster
        kind = random.random()
        process = random.choice([self.process, *self.zombies])
        if kind < 0.45 and process.wires:
            node_id = random.choice(list(process.wires))
            self._keep_late(process.cut(node_id, cluster.now_ms))
        elif kind < 0.75:
            cluster.move(random)
        elif kind < 0.85:
            self.kill()
        elif kind < 0.88:
            cluster.now_ms += TIMEOUT_MS + 1

    def check(self) -> None:
        """Each row once, in the order of the job; no transaction hangs; the token is the last."""
        for place in {place for rows in self.job for place in rows}:
            expected = [row for rows in self.job for batch in rows.get(place, []) for row in batch]
            assert self.cluster.logs[place].committed() == expected
            assert not self.cluster.logs[place].hangs
        assert self.cluster.token == Token(len(self.job) - 1, f"batch {len(self.job) - 1}")


def some_job(random: Random, transactions: int) -> list[Rows]:
    """Rows that name their transaction, partition and place."""
    places = [TopicPartition("t", number) for number in range(random.randint(1, 4))]
    return [
        {
            place: [
                [f"{at}.{place.partition}.{batch}.{row}" for row in range(random.randint(1, 3))]
                for batch in range(random.choice((1, 2, 9)))
            ]
            for place in places
            if random.random() < 0.7
        }
        for at in range(transactions)
    ]
