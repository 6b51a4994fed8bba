"""What goes wrong in a simulation, and when: each call that may fail asks here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from simulation.clock import Clock


class Crash(BaseException):
    """The process is gone, and with it what was not durable."""


class TaskDied(Exception):
    """A task's process is gone; Spark tries the task again."""


@dataclass
class Chances:
    """How likely each fault is, at each call that may have it."""

    crash: float = 0.0
    fails: float = 0.0
    lands: float = 0.0
    slow: float = 0.0
    broker: float = 0.0
    task_dies: float = 0.0
    speculation: float = 0.0
    record_fails: float = 0.0
    interrupts: float = 0.0


@dataclass
class Faults:
    """Draws faults by a seed, and notes them: the schedule of a run."""

    random: Random
    clock: Clock
    chances: Chances = field(default_factory=Chances)
    noted: list[str] = field(default_factory=list)
    # What another process does in the middle of a call of this one.
    others: list[Callable[[], None]] = field(default_factory=list)
    # Whether that is what happens at this moment, which has no faults of its own.
    inside: bool = False

    def happens(self, chance: float, what: str) -> bool:
        if self.inside or chance <= 0 or self.random.random() >= chance:
            return False
        self.note(what)
        return True

    def note(self, what: str) -> None:
        self.noted.append(f"{self.clock.passed_s:.3f} {what}")

    def at(self, call: str) -> None:
        """A call that a process may not survive, that may take long, and in the middle of which
        others may do something."""
        if self.happens(self.chances.slow, f"slow {call}"):
            self.clock.sleep(self.random.choice([0.5, 5.0, 40.0]))
        if self.others and self.happens(self.chances.interrupts, f"meanwhile, at {call}"):
            self.meanwhile(self.random.choice(self.others))
        if self.happens(self.chances.crash, f"crash at {call}"):
            raise Crash(call)

    def meanwhile(self, other: Callable[[], None]) -> None:
        self.inside = True
        try:
            other()
        finally:
            self.inside = False

    def counts(self) -> Counter[str]:
        return Counter(line.split(" ", 1)[1].split(" at ")[0] for line in self.noted)
