"""What happens around a query: to its driver, to the cluster, to those that run its tasks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from keyrange.errors import KeyrangeError
from simulation.faults import Crash, TaskDied
from simulation.query import ConcurrentRuns

if TYPE_CHECKING:
    from simulation.schedule import Schedule


class Surroundings:
    """Does something to a query now and then."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._of, self._random = schedule, random
        self._world, self._kind = schedule.world, schedule.kind

    def happen(self) -> None:
        """Something, or nothing."""
        for each in self._events():
            if self._random.random() < 0.15:
                each()

    def others(self) -> list[Callable[[], None]]:
        """What may happen in the middle of any call of the query."""
        found: list[Callable[[], None]] = [self._of.second_driver]
        if self._kind.loses:
            found += [self._expire, self._recreate]
        if self._kind.by_hand:
            found += [self._reset, self._replay]
        return found

    def _begin_anew(self) -> None:
        """The checkpoint is lost, after a batch was finished: another one resumes."""
        last = self._of.checkpoints[-1]
        if not self._kind.individual or last.finished + 1 != len(last.ends):
            return
        self._of.end_driver()
        self._of.checkpoints.append(self._of.new_checkpoint(len(self._of.checkpoints)))
        self._world.faults.note("a new checkpoint")

    def _old_driver(self) -> None:
        """The driver of the checkpoint before comes back, when another has gone on."""
        if len(self._of.checkpoints) == 1 or self._of.checkpoints[-1].finished < 0:
            return
        if not self._of.checkpoints[-2].ends:
            # It would be a new query, which resumes and stops the other one rightly.
            return
        self._world.faults.note("the driver of an older checkpoint is back")
        old = self._of.begin(self._of.checkpoints[-2])
        try:
            old.step()
        except (Crash, KeyrangeError, TaskDied, ConcurrentRuns):
            pass
        finally:
            self._world.faults.meanwhile(old.stop)

    def _events(self) -> list[Callable[[], None]]:
        found = [self._of.end_driver, self._grow, self._recut, self._new_leader]
        if self._kind.anew:
            found += [self._begin_anew, self._old_driver]
        if self._kind.pattern:
            found.append(self._hide)
        if self._kind.pinned:
            found.append(self._change_executors)
        if self._kind.clocks:
            found.append(self._set_clock)
        if self._kind.loses:
            found += [self._expire, self._recreate, self._mind_losses]
        if self._kind.by_hand:
            found += [self._reset, self._replay]
        return found

    def _grow(self) -> None:
        topics = self._world.topics
        partitions = sum(place.topic == "t" for place in topics.logs)
        if partitions < 4:
            for topic in sorted(topics.ids) if self._kind.shared else ["t"]:
                topics.create(topic, partitions + 1)
            self._world.faults.note("a partition more")

    def _recut(self) -> None:
        count = self._random.randint(1, 7)
        self._of.options = {**self._of.options, "keyRangesPerPartition": str(count)}
        self._of.end_driver()
        self._world.faults.note(f"{count} key ranges")

    def _new_leader(self) -> None:
        topics, now_s = self._world.topics, self._world.clock.passed_s
        place = self._random.choice(sorted(topics.logs))
        topics.epochs[place] += 1
        topics.late[place] = (now_s + self._random.choice([0.05, 0.15]), 3)
        self._world.faults.note(f"{place} has a new leader")

    def _hide(self) -> None:
        topic = self._random.choice(sorted(self._world.topics.ids))
        # A query that may go on without what is gone waits a moment before it does.
        is_patient = self._of.options["failOnDataLoss"] == "true"
        for_s = self._random.choice([0.5, 2.0, 10.0, 60.0] if is_patient else [0.5, 2.0])
        self._world.topics.hidden[topic] = self._world.clock.passed_s + for_s
        self._world.faults.note(f"{topic} is not told of for {for_s} s")

    def _change_executors(self) -> None:
        executors = self._world.executors
        slot = self._random.choice(["a", "b", "c"])
        if slot in executors and len(executors) > 1:
            del executors[slot]
        else:
            executors[slot] = self._random.choice([1, 2])
        self._world.faults.note(f"executors: {executors}")

    def _set_clock(self) -> None:
        self._world.clock.ahead_s = self._random.choice([-3_600.0, 0.0, 3_600.0])
        self._world.faults.note(f"the clock is {self._world.clock.ahead_s} s ahead")

    def _expire(self) -> None:
        """Retention takes the oldest records of a partition, or all."""
        topics = self._world.topics
        place = self._random.choice(sorted(topics.logs))
        log = topics.logs[place]
        if log.end > log.start:
            topics.expire(place, self._random.randint(log.start + 1, log.end))
            self._world.faults.note(f"{place} begins at {log.start}")

    def _recreate(self) -> None:
        topics = self._world.topics
        topic = self._random.choice(sorted(topics.ids))
        topics.recreate(topic, self._random.randint(1, 3))
        for_s = self._random.choice([0.0, 0.0, 0.5, 2.0])
        topics.hidden[topic] = self._world.clock.passed_s + for_s
        self._world.faults.note(f"{topic} is created anew after {for_s} s")

    def _mind_losses(self) -> None:
        """Somebody wants to know of losses, or not."""
        self._of.end_driver()
        self._of.options = {
            **self._of.options,
            "failOnDataLoss": self._random.choice(["true", "false"]),
        }

    def _reset(self) -> None:
        last = self._of.checkpoints[-1]
        # Nobody knows in the middle of a call whether a batch is being planned.
        is_open = self._world.faults.inside or last.finished + 1 < len(last.ends)
        self._of.by_hand.reset(self._of.settled(), is_open)
        self._of.fenced()

    def by_hand(self, number: int) -> None:
        """What somebody does behind some triggers of a calm query."""
        if number % 4 == 0:
            self._replay()
        elif number == 6:
            self._reset()

    def _replay(self) -> None:
        self._of.by_hand.replay(self._of.settled())
        self._of.fenced()
