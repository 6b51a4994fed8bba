"""One simulation by its seed: what kind of query, what goes wrong, and that all is well after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import keyrange
from keyrange.errors import KeyrangeError
from simulation import invariants
from simulation.faults import Chances, Crash, TaskDied
from simulation.log import produce
from simulation.query import Checkpoint, ConcurrentRuns, Run
from simulation.world import OUTPUT, World

COMMITS, MEMBERS = "/simulated/commits", "/simulated/members"
_STEPS = 7
# Calm triggers until everything has to be done.
_CALM_STEPS = 150
_CALM_STEPS_WITH_NEW = 3
# What a query ends with whose driver was replaced.
_REPLACED = {"ASSIGNMENT_CHANGED", "COMMITS_FENCED"}
# What a query may end with that cannot tell whether a topic is gone.
_HIDDEN = {"KAFKA_DATA_LOSS.PARTITIONS_DELETED", "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"}
# What a query may end with while a store or a broker is away.
_EXCUSED = {
    "ASSIGNMENT_UNREADABLE",
    "ASSIGNMENT_UNWRITABLE",
    "BROKER_UNREACHABLE",
    "COMMITS_UNREADABLE",
    "COMMITS_UNWRITABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_TOPIC_OR_PARTITION",
}


@dataclass(frozen=True)
class Kind:
    """What is simulated."""

    individual: bool = True
    pinned: bool = False
    pattern: bool = False
    budget: bool = False
    anew: bool = False
    clocks: bool = False


class Failed(AssertionError):
    """A simulation in which something does not hold, with all that it takes to see it again."""


def simulate(seed: int, kind: Kind | None = None) -> World:
    """Run one schedule. Raises Failed, which prints seed and schedule."""
    random = Random(seed)
    chosen = kind or choose(random)
    world = World(seed)
    schedule = Schedule(world, chosen, random)
    try:
        with world.installed():
            schedule.run()
    except Exception as failure:
        lines = "\n  ".join([*world.faults.noted])
        raise Failed(
            f"{type(failure).__name__}: {failure}\nsimulate({seed}, {chosen})\n  {lines}"
        ) from failure
    return world


def choose(random: Random) -> Kind:
    individual = random.random() < 0.8
    return Kind(
        individual=individual,
        pinned=random.random() < 0.4,
        pattern=random.random() < 0.4,
        budget=individual and random.random() < 0.4,
        anew=individual and random.random() < 0.3,
        clocks=individual and random.random() < 0.3,
    )


class Schedule:
    """A query with its drivers, one after the other, and all that happens around them."""

    def __init__(self, world: World, kind: Kind, random: Random) -> None:
        self.world, self.kind, self.random = world, kind, random
        self.checkpoints = [self._new_checkpoint(0)]
        self.driver: Run | None = None
        self.options = self._options()
        # Whether faults may be the reason for what a query ends with.
        self.calm = False
        # Drivers beside which there was another one: each may stop the other.
        self.rivals: list[Run] = []

    def run(self) -> None:
        world, random = self.world, self.random
        # What is new in a subscribed pattern has to begin at 0.
        begin = 0 if self.kind.pattern else random.choice([0, 0, 7, 2**31 - 5])
        world.topics.create("t", random.randint(1, 3), begin)
        if self.kind.pattern and random.random() < 0.7:
            world.topics.create("t2", 1)
        if self.kind.pinned:
            world.executors = {"a": 1} if random.random() < 0.5 else {"a": 1, "b": 2}
        world.shares = random.random() < 0.1
        self._stir()
        for _ in range(_STEPS):
            self._happens()
            produce(world.topics, random, keys=6, batches=random.choice([0, 1, 3, 8]))
            self._step()
        self._calm_down()
        invariants.check(world, self.checkpoints, COMMITS)
        if self.kind.pinned:
            invariants.all_have_ranges(world.table(MEMBERS), world.executors)

    def _stir(self) -> None:
        """Each schedule has some kinds of faults, and some not at all."""
        random = self.random
        some = lambda most: random.choice([0.0, 0.0, most / 4, most])  # noqa: E731
        self.world.faults.chances = Chances(
            crash=some(0.03),
            fails=some(0.05),
            lands=some(0.2),
            slow=some(0.03),
            broker=some(0.1),
            task_dies=some(0.1),
            speculation=some(0.3),
            record_fails=random.choice([0.0, 0.1, 0.5]),
            interrupts=some(0.03),
        )
        self.world.faults.others = [self._second_driver]

    def _calm_down(self) -> None:
        """Without faults everything comes to its end."""
        world = self.world
        world.faults.note("calm")
        world.faults.chances = Chances()
        world.clock.ahead_s = 0.0
        world.clock.sleep(60.0)
        self.calm = True
        idle = 0
        for number in range(_CALM_STEPS):
            if number < _CALM_STEPS_WITH_NEW:
                produce(world.topics, self.random, keys=6, batches=1)
            idle = 0 if self._step() else idle + 1
            if idle > 3 and self._is_over():
                return
            world.clock.sleep(30.0)
        raise AssertionError("the query does not come to its end")

    def _is_over(self) -> bool:
        world = self.world
        records = sum(len(log.keys) for log in world.topics.logs.values())
        settled = len(world.sink.rows) + len(invariants.dead_letters(world, COMMITS))
        return settled >= records

    def _step(self) -> bool:
        """One trigger of the query, which is started where it does not run; whether it did
        anything."""
        world = self.world
        world.clock.sleep(self.random.choice([0.01, 1.5, 7.0]))
        driver = self.driver
        try:
            if driver is None:
                driver = self.driver = self._begin(self.checkpoints[-1])
            return driver.step()
        except Crash:
            self._end(driver, "crash")
        except (KeyrangeError, TaskDied, ConcurrentRuns, OSError) as failure:
            was_replaced = driver is not self.driver
            self._end(driver, f"the query ended: {failure}")
            if not was_replaced:
                self._check_excused(failure, driver in self.rivals)
        finally:
            if driver is not self.driver:
                self._end(driver, "")
        return True

    def _begin(self, checkpoint: Checkpoint) -> Run:
        return Run(self.world, checkpoint, self.options, self._body)

    def _end(self, driver: Run | None, why: str) -> None:
        if why:
            self.world.faults.note(why)
        if self.driver is driver:
            self.driver = None
        if driver is not None:
            self.world.faults.meanwhile(driver.stop)

    def _check_excused(self, failure: Exception, is_rival: bool) -> None:
        """A query may end for what was done to it, and for nothing else."""
        named = failure.condition.name if isinstance(failure, KeyrangeError) else ""
        if is_rival and (named in _REPLACED or isinstance(failure, ConcurrentRuns)):
            return
        if named in _HIDDEN and self.options["failOnDataLoss"] == "true":
            return
        if self.calm or (named not in _EXCUSED and not isinstance(failure, TaskDied)):
            raise failure

    def _second_driver(self) -> None:
        """Another driver of the same query begins while the first is in the middle of a call: that
        one goes on later, and is to do no harm."""
        executor, self.driver = self.world.executor, None
        for _ in range(self.random.randint(1, 3)):
            self._step()
            if self.driver is not None:
                self.rivals.append(self.driver)
        self.world.enter(executor)

    def _begin_anew(self) -> None:
        """The checkpoint is lost, after a batch was finished: another one resumes."""
        last = self.checkpoints[-1]
        if not self.kind.individual or last.finished + 1 != len(last.ends):
            return
        self._end_driver()
        self.checkpoints.append(self._new_checkpoint(len(self.checkpoints)))
        self.world.faults.note("a new checkpoint")

    def _old_driver(self) -> None:
        """The driver of the checkpoint before comes back, when another has gone on."""
        if len(self.checkpoints) == 1 or self.checkpoints[-1].finished < 0:
            return
        self.world.faults.note("the driver of an older checkpoint is back")
        old = self._begin(self.checkpoints[-2])
        try:
            old.step()
        except (Crash, KeyrangeError, TaskDied, ConcurrentRuns):
            pass
        finally:
            self.world.faults.meanwhile(old.stop)

    def _happens(self) -> None:
        """Something in the surroundings."""
        for each in self._events():
            if self.random.random() < 0.15:
                each()

    def _events(self) -> list[Callable[[], None]]:
        found = [self._end_driver, self._grow, self._recut, self._new_leader]
        if self.kind.anew:
            found += [self._begin_anew, self._old_driver]
        if self.kind.pattern:
            found.append(self._hide)
        if self.kind.pinned:
            found.append(self._change_executors)
        if self.kind.clocks:
            found.append(self._set_clock)
        return found

    def _end_driver(self) -> None:
        if self.driver is not None:
            self._end(self.driver, "the query is stopped")

    def _grow(self) -> None:
        topics = self.world.topics
        partitions = sum(place.topic == "t" for place in topics.logs)
        if partitions < 4:
            topics.create("t", partitions + 1)
            self.world.faults.note("a partition more")

    def _recut(self) -> None:
        count = self.random.randint(1, 7)
        self.options = {**self.options, "keyRangesPerPartition": str(count)}
        self._end_driver()
        self.world.faults.note(f"{count} key ranges")

    def _new_leader(self) -> None:
        topics, now_s = self.world.topics, self.world.clock.passed_s
        place = self.random.choice(sorted(topics.logs))
        topics.epochs[place] += 1
        topics.late[place] = (now_s + self.random.choice([0.05, 0.15]), 3)
        self.world.faults.note(f"{place} has a new leader")

    def _hide(self) -> None:
        topic = self.random.choice(sorted(self.world.topics.ids))
        # A query that may go on without what is gone waits a moment before it does.
        is_patient = self.options["failOnDataLoss"] == "true"
        for_s = self.random.choice([0.5, 2.0, 10.0, 60.0] if is_patient else [0.5, 2.0])
        self.world.topics.hidden[topic] = self.world.clock.passed_s + for_s
        self.world.faults.note(f"{topic} is not told of for {for_s} s")

    def _change_executors(self) -> None:
        executors = self.world.executors
        slot = self.random.choice(["a", "b", "c"])
        if slot in executors and len(executors) > 1:
            del executors[slot]
        else:
            executors[slot] = self.random.choice([1, 2])
        self.world.faults.note(f"executors: {executors}")

    def _set_clock(self) -> None:
        self.world.clock.ahead_s = self.random.choice([-3_600.0, 0.0, 3_600.0])
        self.world.faults.note(f"the clock is {self.world.clock.ahead_s} s ahead")

    def _new_checkpoint(self, number: int) -> Checkpoint:
        return Checkpoint(self.world.home / f"checkpoint-{number}")

    def _options(self) -> dict[str, str]:
        random, kind = self.random, self.kind
        found = {
            "kafka.bootstrap.servers": "b1:9092",
            "startingOffsets": "earliest",
            "splitBy": "keyRange",
            "keyRangesPerPartition": str(random.randint(1, 6)),
            "maxOffsetsPerTrigger": random.choice(["15", "40", "1000"]),
            "kafka.retry.backoff.ms": "10",
            "kafka.retry.backoff.max.ms": "100",
            "maxBatchRows": "1000",
            "failOnDataLoss": random.choice(["true", "false"]) if kind.pattern else "true",
        }
        found["subscribePattern" if kind.pattern else "subscribe"] = "t.*" if kind.pattern else "t"
        if kind.individual:
            found |= {
                "commitMode": "individual",
                "commitTable": COMMITS,
                "commitTable.onFreshStart": "resume",
                "verdictDirectory": str(self.world.home / "verdicts"),
                "redelivery.backoff": random.choice(["1ms", "5s"]),
                "redelivery.backoff.max": "20s",
                "maxDeliveries": random.choice(["2", "5"]),
                "max.num.ranges.to.commit": random.choice(["4", "10000"]),
            }
        if kind.budget:
            found["batch.time.budget"] = random.choice(["500ms", "3s"])
        if kind.pinned:
            found |= {
                "pin": "prefer",
                "memberTable": MEMBERS,
                "pin.driver.host": "driver",
                "pin.wait.ms": "500",
                "splitsPerCore": random.choice(["1", "2", "3"]),
                "expansion.timeout.ms": "3000",
                "registration.timeout.ms": "20000",
                "session.timeout.ms": "10000",
                "slot.directory": str(self.world.home / "slots"),
                "memberNames": "dynamic",
            }
        return found

    def _body(self, batch: Any, batch_id: int) -> None:
        """What the job does in foreachBatch."""
        faults = self.world.faults
        if self.kind.individual:
            output = keyrange.process(batch, self._work, OUTPUT)
            named = keyrange.transaction()
            application, version = named["txnAppId"], int(named["txnVersion"])
        else:
            output = batch.select("topic", "partition", "offset", "key")
            application, version = str(self.checkpoints[-1].path), batch_id
        rows = [tuple(row) for row in output.collect()]
        if not self.kind.individual:
            rows = [(*row[:3], row[3] and row[3].decode()) for row in rows]
        faults.at("the sink")
        self.world.sink.write(application, version, rows)
        faults.at("the sink, written")

    def _work(self, record: Any) -> Any:
        """The user's function: "!" fails always, "?" now and then; some take long."""
        world = self.world
        if self.kind.budget and not self.calm and world.random.random() < 0.2:
            world.clock.sleep(world.random.choice([0.1, 1.0]))
        chance = world.faults.chances.record_fails
        if record.value == b"!" or (record.value == b"?" and world.random.random() < chance):
            raise ValueError("not this one")
        key = record.key.decode() if record.key is not None else None
        return (record.topic, record.partition, record.offset, key)
