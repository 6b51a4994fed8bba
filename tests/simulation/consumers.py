"""Consumers of one group by a seed: claims, commit logs and memberships as they are, each consumer
in the middle of any call of another, and crashes at each."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import keyrange
from brokers.group_coordinator import CoordinatorModel
from keyrange import KeyRangeListener
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.auditing import Handovers, audit
from keyrange.individual_commits.table.commit_schema import commits_of
from keyrange.model.key_ranges import SPACE, merge, split_evenly
from keyrange.model.offsets import TopicPartition
from simulation.faults import Chances, Crash
from simulation.invariants import of_source
from simulation.kinds import COMMITS, MEMBERS
from simulation.members import SimulatedMember
from simulation.topics import Place, produce
from simulation.world import World

CELLS = split_evenly(SPACE, 4)
_STEPS = 60
_CALM_STEPS = 600
# What a call may end with while a store or a broker is away, or another consumer has the ranges.
_EXCUSED = {
    "ASSIGNMENT_CHANGED",
    "ASSIGNMENT_UNREADABLE",
    "ASSIGNMENT_UNWRITABLE",
    "BROKER_UNREACHABLE",
    "COMMITS_UNREADABLE",
    "COMMITS_UNWRITABLE",
    "MEMBERSHIP_ENDED",
    "RANGES_LOST",
    "REQUEST_TIMED_OUT",
}


class Journal:
    """What all consumers have done: `done` is committed, of `unsure` nobody knows, and of what was
    `tried` whoever commits it knows sooner or later."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Whether consumers share records out by offset: then no key has an order.
        self.by_offset = False
        self.done: set[Place] = set()
        self.unsure: set[Place] = set()
        self.tried: set[Place] = set()
        self.key_hashes: dict[Place, int] = {}
        # Who has heard that ranges were lost.
        self.losers: list[str] = []

    def wrong(self, key_hash: Place, mine: set[Place]) -> str:
        """What is wrong with handing a record out, if whoever gets it can commit it: it comes to
        who has all that lies before it of its key, or after that is done."""
        if key_hash in self.done:
            return f"{key_hash} is committed, and handed out again"
        log = self._world.topics.logs[TopicPartition(key_hash.topic, key_hash.partition)]
        key = log.keys[key_hash.offset]
        if key is not None and not self.by_offset:
            before = [key_hash._replace(offset=at) for at in log.keys if log.keys[at] == key]
            late = [at for at in before if at.offset < key_hash.offset]
            left = [at for at in late if at not in self.done | self.unsure | self.tried | mine]
            if left:
                return f"{key_hash} is handed out before {left[:3]}"
        return ""


class Process(KeyRangeListener):
    """One life of a consumer."""

    def __init__(self, world: World, journal: Journal, name: str, random: Random) -> None:
        self._world, self._journal, self._random = world, journal, random
        self.name = name
        # What it was handed and has not lost; what of that it has acknowledged.
        self._mine: set[Place] = set()
        self._pending: set[Place] = set()
        self._late: list[Place] = []
        self._wrong: dict[Place, str] = {}
        split_by = "offset" if journal.by_offset else "keyRange"
        self._consumer = keyrange.Consumer(_options(world, name) | {"splitBy": split_by})
        # A consumer commits by itself too, where ranges are revoked.
        holding: Any = self._consumer._holding
        self._write, holding.commit = holding.commit, self._commit
        self.ends: dict[TopicPartition, int] = {}

    def subscribe(self) -> None:
        self._consumer.subscribe(["t"], self)

    def assign(self, everything: bool) -> None:
        """Take some key ranges, or all, from whoever has them."""
        key_hashes, count = sorted(self._world.topics.logs), self._random.randint(1, len(CELLS))
        wanted = key_hashes if everything else self._random.sample(key_hashes, 1)
        cells = CELLS if everything else self._random.sample(CELLS, count)
        self._consumer.assign({key_hash: merge(cells) for key_hash in wanted}, self)

    @property
    def member(self) -> SimulatedMember | None:
        sharing: Any = self._consumer._sharing
        return None if sharing is None else sharing.member

    @property
    def spans(self) -> Mapping[TopicPartition, Any]:
        return self._consumer.assignment()

    def work(self) -> None:
        """Poll, work, and say what is done; some of it later."""
        if self._random.random() < 0.2:
            self._steer()
        handed = []
        for batch in self._consumer.poll(self._random.choice([0, 300])):
            names = ("topic", "partition", "offset", "keyHash")
            for topic, partition, offset, hashed in zip(
                *(batch.column(name).to_pylist() for name in names), strict=True
            ):
                key_hash = Place(topic, partition, offset, 0)
                self._wrong[key_hash] = self._journal.wrong(key_hash, self._mine)
                self._journal.key_hashes[key_hash] = hashed
                self._mine.add(key_hash)
                handed.append(key_hash)
        left = [each for each in self._late if each in self._mine] + handed
        self._late = [each for each in left if self._random.random() < 0.4]
        for each in left:
            if each not in self._late and self._consumer.acknowledge(each[:2], [each.offset]):
                self._pending.add(each)
        if self._random.random() < 0.6:
            self.ends = self._consumer.commit()

    def _steer(self) -> None:
        """Read nothing of a partition for a while, or go on from another offset of it."""
        consumer = self._consumer
        consumer.resume(*consumer.paused())
        if not self.spans:
            return
        partition = self._random.choice(sorted(self.spans))
        what = self._random.choice(["pause", "back", "forward"])
        if what == "pause":
            consumer.pause(partition)
            return
        position, log = consumer.position(partition), self._world.topics.logs[partition]
        if what == "back":
            least = consumer.committed(partition)
            assert least is not None
            # Who has taken its ranges, which it has not heard yet, may have come further by now.
            if least <= position:
                self._go_back(partition, self._random.randint(least, position))
        elif self._random.random() < 0.2:
            offset = self._random.randint(position, log.end)
            consumer.seek(partition, offset)
            # Whether it is done is seen with the next commit.
            self._journal.unsure |= {
                Place(*partition, at, 0) for at in log.keys if position <= at < offset
            }

    def _go_back(self, partition: TopicPartition, offset: int) -> None:
        """Unless others have done what lies before it since the group was asked."""
        try:
            self._consumer.seek(partition, offset)
        except KeyrangeError as failure:
            done = self._consumer.committed(partition)
            if failure.condition.name != "SEEK_REFUSED" or done is None or done <= offset:
                raise

    def close(self) -> None:
        self._consumer.close()

    def gone(self) -> None:
        """It has ended, whatever it was at."""
        self._journal.unsure |= self._pending
        self._pending.clear()

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        """Some of it is done at the last moment."""
        gone = self._within(self._mine, ranges)
        for each in sorted(gone.intersection(self._late)):
            if self._random.random() < 0.5:
                self._consumer.acknowledge(each[:2], [each.offset])
                self._journal.unsure.add(each)
        self._mine -= gone

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self._journal.losers.append(self.name)
        self._mine -= self._within(self._mine, ranges)
        lost = self._within(self._pending, ranges)
        self._journal.unsure |= lost
        self._pending -= lost

    def _commit(self) -> Any:
        """What was acknowledged is in the table afterwards; others may be handed what follows
        before this process goes on."""
        committed = set(self._pending)
        self._journal.tried |= committed
        ends = self._write()
        wrong = [self._wrong[each] for each in committed if self._wrong[each]]
        wrong += [f"{each} is committed twice" for each in committed & self._journal.done]
        assert not wrong, wrong[:3]
        self._journal.done |= committed
        self._pending -= committed
        return ends

    def _within(self, key_hashes: set[Place], ranges: Any) -> set[Place]:
        return {
            each
            for each in key_hashes
            for span in ranges.get(TopicPartition(each.topic, each.partition), ())
            if span.contains(self._journal.key_hashes[each])
        }


class Group:
    """A schedule of consumers. `process` makes one, `excused` is what it may end with."""

    process: type[Process] = Process
    excused = _EXCUSED

    def __init__(self, world: World, random: Random, by_offset: bool = False) -> None:
        self.world, self.random = world, random
        self.journal = Journal(world)
        self.group = CoordinatorModel()
        SimulatedMember.clock, SimulatedMember.group = world.clock, self.group
        self.names = ["a", "b", "c", "d"][: random.randint(1, 4)]
        self.there: dict[str, Process] = {}
        self._under_way: list[str] = []
        self._away: dict[str, float] = {}
        self._calm = False
        # Whether each says what it reads, and takes it from the others.
        self._assigns = random.random() < 0.4
        # Whether nothing fails, and nobody is so late that others take over what it has.
        self._is_quiet = random.random() < 0.2
        self.journal.by_offset = by_offset

    def run(self) -> None:
        world, random = self.world, self.random
        world.topics.create("t", random.randint(1, 3), random.choice([0, 7, 2**31 - 5]))
        some = lambda most: random.choice([0.0, 0.0, most / 4, most])  # noqa: E731
        world.faults.chances = Chances(
            crash=some(0.02),
            fails=some(0.05),
            lands=some(0.2),
            slow=some(0.02),
            broker=some(0.1),
            interrupts=some(0.2),
        )
        if self._is_quiet:
            world.faults.chances = Chances(interrupts=world.faults.chances.interrupts)
        world.faults.others = [self.step, self._members]
        for _ in range(_STEPS):
            if random.random() < 0.3:
                produce(world.topics, random, keys=6, batches=random.choice([1, 3]))
            self.step()
        self._calm_down()
        audit_all(world)
        if self._is_quiet and not self._assigns:
            assert not self.journal.losers, f"{self.journal.losers} lost what they had"

    def step(self) -> None:
        """Somebody does something."""
        self.world.clock.sleep(self.random.choice([0.05, 0.3, 1.5]))
        self._members()
        busy = [each.name for each in self.there.values() if each.member and each.member.is_leading]
        now_s = self.world.clock.monotonic()
        busy += [name for name, until in self._away.items() if until > now_s]
        idle = [name for name in self.names if name not in (*self._under_way, *busy)]
        if not idle or len(self._under_way) > 2:
            return
        name = self.random.choice(idle)
        self._under_way.append(name)
        try:
            self._step(name)
        finally:
            self._under_way.remove(name)

    def _step(self, name: str) -> None:
        process, world = self.there.get(name), self.world
        try:
            if process is None:
                process = self.process(world, self.journal, name, self.random)
                if self._assigns:
                    process.assign(everything=self._calm)
                else:
                    process.subscribe()
                self.there[name] = process
            elif self._assigns and (self.random.random() < 0.15 or self._takes_all(process)):
                process.assign(everything=self._calm)
            elif not self._calm and self.random.random() < 0.03:
                world.faults.note(f"{name} is closed")
                del self.there[name]
                process.close()
            else:
                process.work()
        except Crash:
            self._gone(name, process, "crash")
        except KeyrangeError as failure:
            world.faults.note(f"{name}: {failure}")
            if failure.condition.name not in self.excused:
                raise
            member = process and process.member
            ended = name not in self.there or (member is not None and member.seen.ended)
            if ended or self.random.random() < 0.5:
                self._gone(name, process, "ended")

    def _gone(self, name: str, process: Process | None, why: str) -> None:
        self.world.faults.note(f"{name}: {why}")
        self.there.pop(name, None)
        for_s = 0.0 if self._calm else self.random.choice([0.0, 1.0, 15.0, 60.0])
        self._away[name] = self.world.clock.passed_s + for_s
        if process is not None:
            process.gone()

    def _members(self) -> None:
        """What the members' threads do meanwhile."""
        for name, process in list(self.there.items()):
            try:
                if process.member is not None:
                    process.member.step()
            except Crash:
                self._gone(name, process, "crash as leader")
        self.group.passes(int(self.world.clock.monotonic() * 1000))

    def _calm_down(self) -> None:
        self.world.faults.note("calm")
        self.world.faults.chances = Chances()
        self._calm = True
        self._away.clear()
        if self._assigns:
            # Otherwise they take all from one another for ever.
            self.names = self.names[:1]
        for _ in range(_CALM_STEPS):
            self.step()
            if self._is_over():
                return
        left = [at for at, _ in self.world.topics.produced() if at not in self._settled]
        raise AssertionError(f"the group does not come to its end: {left[:5]}")

    def _takes_all(self, process: Process) -> bool:
        """Whether it has to take what others had that are not there any more."""
        held = process.spans
        return self._calm and any(held.get(p) != [SPACE] for p in self.world.topics.logs)

    @property
    def _settled(self) -> set[Place]:
        return self.journal.done | self.journal.unsure

    def _is_over(self) -> bool:
        """All is done, and the commits say so."""
        if not self._settled.issuperset(at for at, _ in self.world.topics.produced()):
            return False
        for key_hash, log in self.world.topics.logs.items():
            mine = [self.there[name] for name in self.names if name in self.there]
            mine = [each for each in mine if key_hash in each.spans]
            spans = merge([span for each in mine for span in each.spans[key_hash]])
            if spans != [SPACE] or any(each.ends.get(key_hash, -1) < log.end for each in mine):
                return False
        return True


def audit_all(world: World) -> None:
    """The commits of all consumers contradict one another in nothing."""
    rows = world.table(COMMITS).rows()
    sources = sorted(set(rows.column("source_id").to_pylist()))
    histories = {each: list(commits_of(of_source(rows, each), each)) for each in sources}
    handovers = Handovers(histories)
    for source, commits in histories.items():
        found = list(audit(commits, handovers))
        assert not found, f"commits of {source}: {found[:5]}"


def _options(world: World, name: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "b1:9092",
        "commitTable": COMMITS,
        "commitGroup": "g",
        "mirrorOffsets": "false",
        "memberTable": MEMBERS,
        "memberGroup": "m",
        "member.name": name,
        "slot.directory": str(world.home / "slots"),
        "startingOffsets": "earliest",
        "session.timeout.ms": "10000",
        "heartbeat.interval.ms": "1000",
        "registration.timeout.ms": "10000",
        "expansion.timeout.ms": "500",
        "kafka.retry.backoff.ms": "10",
        "kafka.retry.backoff.max.ms": "100",
        "maxBatchRows": "20",
    }
