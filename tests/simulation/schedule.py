"""One simulation by its seed: what kind of query, what goes wrong, and that all is well after."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import keyrange
from keyrange.errors import KeyrangeError
from simulation import invariants, timed_invariants
from simulation.by_hand import ByHand, letters
from simulation.consumers import Group
from simulation.faults import Chances, Crash, TaskDied
from simulation.kinds import MEMBERS, Kind, changed, choose, options_of
from simulation.query import Checkpoint, ConcurrentRuns, Run
from simulation.surroundings import Surroundings
from simulation.timed import TimedJob, TimedSink, times_of
from simulation.timed_invariants import Timed
from simulation.topics import Place, produce
from simulation.world import OUTPUT, World

_STEPS = 7
# Calm triggers until everything has to be done.
# Nobody waits for the hour by which a clock was ahead.
_CALM_STEPS = 80
_CALM_STEPS_WITH_NEW = 3
# And until nobody sets anything by hand any more.
_CALM_STEPS_BY_HAND = 13
# So many of them without anything to do: nothing will come.
_IDLE_STEPS = 40
# What a query ends with whose driver was replaced.
_REPLACED = {"ASSIGNMENT_CHANGED", "COMMITS_FENCED", "CONCURRENT_QUERY"}
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


class Failed(AssertionError):
    """A simulation in which something does not hold, with all that it takes to see it again."""


def simulate(seed: int, kind: Kind | None = None) -> World:
    """Run one schedule. Raises Failed, which prints seed and schedule."""
    random = Random(seed)
    chosen = kind or choose(random)
    world = World(seed)
    schedule = (
        Group(world, random, chosen.by_offset)
        if chosen.consumers
        else Schedule(world, chosen, random)
    )
    try:
        with world.installed():
            schedule.run()
    except Exception as failure:
        lines = "\n  ".join([*world.faults.noted])
        raise Failed(
            f"{type(failure).__name__}: {failure}\nsimulate({seed}, {chosen})\n  {lines}"
        ) from failure
    return world


class Schedule:
    """A query with its drivers, one after the other, and all that happens around them."""

    def __init__(self, world: World, kind: Kind, random: Random) -> None:
        self.world, self.kind, self.random = world, kind, random
        self.checkpoints = [self.new_checkpoint(0)]
        self.driver: Run | None = None
        self.options = options_of(kind, world.home, random)
        # Whether what was changed was refused by name, and put back.
        self.refused = False
        # Whether faults may be the reason for what a query ends with.
        self.calm = False
        # Drivers beside which there was another one: each may stop the other.
        self.rivals: list[Run] = []
        self.by_hand = ByHand(world, random, self.options.get("stateDirectory", ""))
        world.is_slow = kind.budget
        self._surroundings = Surroundings(self, random)
        self.job = TimedJob(world.home, random, kind.shared) if kind.timed else None
        if self.job is not None:
            world.sink = TimedSink(self.job.uri)

    def run(self) -> None:
        world, random = self.world, self.random
        # What is new in a subscribed pattern has to begin at 0.
        begin = 0 if self.kind.pattern else random.choice([0, 0, 7, 2**31 - 5])
        partitions = random.randint(1, 3)
        world.topics.create("t", partitions, begin)
        if self.kind.shared:
            world.topics.create("a", partitions, begin)
        if self.kind.pattern and random.random() < 0.7:
            world.topics.create("t2", 1)
        if self.kind.pinned:
            world.executors = {"a": 1} if random.random() < 0.5 else {"a": 1, "b": 2}
        world.shares = random.random() < 0.1
        self._stir()
        for _ in range(_STEPS):
            self._surroundings.happen()
            self._produce(random.choice([0, 1, 3, 8]))
            self._step()
        self._calm_down()
        invariants.check(world, self.checkpoints, self.by_hand, self._late())
        self._check_timers()
        if self.kind.pinned:
            invariants.all_have_ranges(world.table(MEMBERS), world.executors)

    def _produce(self, batches: int) -> None:
        times = times_of if self.kind.timed else None
        produce(self.world.topics, self.random, keys=6, batches=batches, times_of=times)

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
        self.world.faults.others = self._surroundings.others()

    def _calm_down(self) -> None:
        """Without faults everything comes to its end."""
        world = self.world
        world.faults.note("calm")
        world.faults.chances = Chances()
        world.clock.ahead_s = 0.0
        world.clock.sleep(60.0)
        self.calm = True
        world.is_slow = False
        idle = 0
        for number in range(_CALM_STEPS):
            if number < _CALM_STEPS_WITH_NEW:
                self._produce(1)
            idle = 0 if self._step() else idle + 1
            if self.kind.by_hand and self.job is not None and number < _CALM_STEPS_BY_HAND:
                # Most timers are given up when nothing else fails any more.
                self._surroundings.by_hand(number)
                continue
            if idle > 3 and (idle > _IDLE_STEPS or self._is_over()):
                return
            world.clock.sleep(30.0)
        raise AssertionError("the query does not come to its end")

    def _is_over(self) -> bool:
        """Whether nothing more is to come."""
        settled = self.settled()
        left = [at for at, _ in self.world.topics.produced() if not settled[at]]
        accounted = invariants.accounted(self.world, self.checkpoints, self.by_hand)
        late = self._late()
        return (accounted | late).issuperset(left) and self.by_hand.is_done(settled, late)

    def _late(self) -> set[Place]:
        if self.job is None:
            return set()
        return timed_invariants.late(Timed(self.world, self.checkpoints, self.job))

    def _check_timers(self) -> None:
        if self.job is None:
            return
        kind = self.kind
        timed = Timed(self.world, self.checkpoints, self.job)
        few = self.options["max.num.ranges.to.commit"] == "4"
        timed.is_even = not (few or self.kind.budget or self.kind.anew)
        strict = not (kind.anew or kind.loses or kind.by_hand)
        excused = invariants.accounted(self.world, self.checkpoints, self.by_hand)
        excused |= {place for place, _ in letters(self.world)} | timed_invariants.late(timed)
        timed_invariants.check(timed, self.by_hand.again, excused, strict)

    def settled(self) -> Counter[Place]:
        """How often each record is in the sink or among the dead letters."""
        return Counter(invariants.settled(self.world))

    def _step(self) -> bool:
        """One trigger of the query, which is started where it does not run; whether it did
        anything."""
        world = self.world
        world.clock.sleep(self.random.choice([0.01, 1.5, 7.0]))
        driver = self.driver
        try:
            if driver is None:
                driver = self.driver = self.begin(self.checkpoints[-1])
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

    def end_driver(self) -> None:
        if self.driver is not None:
            self._end(self.driver, "the query is stopped")

    def fenced(self) -> None:
        """Somebody else wrote to the commits: the driver that runs may end with that."""
        if self.driver is not None:
            self.rivals.append(self.driver)

    def begin(self, checkpoint: Checkpoint) -> Run:
        if self.kind.changes and not self.refused:
            self.options = changed(self.options, self.random)
            self.world.faults.note(f"options: {self.options}")
        self.refused = False
        return Run(self.world, checkpoint, self.options, self._body, self.job)

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
        if self.kind.changes and named in ("COMMIT_TERMS_CHANGED", "BATCH_UNFINISHED"):
            was = "spread" if self.options["nullKeys"] == "first" else "first"
            self.options = {**self.options, "nullKeys": was}
            self.refused = True
            return
        if named.startswith("KAFKA_DATA_LOSS.") and self.options["failOnDataLoss"] == "true":
            if any(self.world.topics.generations.values()) or self.world.topics.gone:
                # Somebody finds out, and reads on with what is left.
                self.options = {**self.options, "failOnDataLoss": "false"}
                return
            if named in _HIDDEN:
                return
        if named == "BROKER_ERROR" and self.kind.loses:
            return
        if self.calm or (named not in _EXCUSED and not isinstance(failure, TaskDied)):
            raise failure

    def second_driver(self) -> None:
        """Another driver of the same query begins while the first is in the middle of a call: that
        one goes on later, and is to do no harm."""
        executor, self.driver = self.world.executor, None
        for _ in range(self.random.randint(1, 3)):
            self._step()
            if self.driver is not None:
                self.rivals.append(self.driver)
        self.world.enter(executor)

    def new_checkpoint(self, number: int) -> Checkpoint:
        return Checkpoint(self.world.home / f"checkpoint-{number}")

    def _body(self, batch: Any, batch_id: int) -> None:
        """What the job does in foreachBatch."""
        faults = self.world.faults
        if self.kind.individual:
            output = keyrange.process(batch, self._work, OUTPUT)
            named = keyrange.transaction()
            application, version = named["txnAppId"], int(named["txnVersion"])
        else:
            output = batch.select("topic", "partition", "offset", "value", "key")
            application, version = str(self.checkpoints[-1].path), batch_id
        rows = [tuple(row) for row in output.collect()]
        if not self.kind.individual:
            rows = [(*row[:3], int(row[3][1:]), row[4] and row[4].decode()) for row in rows]
        faults.at("the sink")
        self.world.sink.write(application, version, rows)
        faults.at("the sink, written")

    def _work(self, record: Any) -> Any:
        """The user's function: "!" fails always, "?" now and then; some take long."""
        world = self.world
        if world.is_slow and world.random.random() < 0.2:
            world.clock.sleep(world.random.choice([0.1, 1.0]))
        chance = world.faults.chances.record_fails
        what = record.value[:1]
        if what == b"!" or (what == b"?" and world.random.random() < chance):
            raise ValueError("not this one")
        key = record.key.decode() if record.key is not None else None
        return (record.topic, record.partition, record.offset, int(record.value[1:]), key)
