"""How Spark runs a job: as tasks in the cores of executors, side by side, each tried up to four
times, some of them twice at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from simulation.faults import TaskDied

if TYPE_CHECKING:
    from simulation.frames import Part
    from simulation.world import World

_TRIES = 4


@dataclass
class _Attempt:
    number: int
    executor: str
    rows: Iterator[pa.RecordBatch]
    made: list[pa.RecordBatch] = field(default_factory=list)


class Jobs:
    """Runs the jobs of one application."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self, parts: Sequence[Part]) -> list[list[pa.RecordBatch]]:
        """What each part makes. Raises what a task has failed with every time."""
        return _Job(self._world, parts).run()


class _Job:
    def __init__(self, world: World, parts: Sequence[Part]) -> None:
        self._world, self._parts = world, parts
        self._faults = world.faults
        self._waiting = list(range(len(parts)))
        self._running: list[_Attempt] = []
        self._done: dict[int, list[pa.RecordBatch]] = {}
        self._failures: Counter[int] = Counter()

    def run(self) -> list[list[pa.RecordBatch]]:
        try:
            while len(self._done) < len(self._parts):
                self._begin()
                self._step(self._faults.random.choice(self._running))
        finally:
            for each in self._running:
                self._within(each, _end(each))
        return [self._done[number] for number in range(len(self._parts))]

    def _begin(self) -> None:
        """Fill the cores that are free."""
        free = [
            executor
            for executor, cores in sorted(self._world.executors.items())
            for _ in range(cores - sum(each.executor == executor for each in self._running))
        ]
        self._faults.random.shuffle(free)
        for executor in free:
            if self._waiting:
                number = self._waiting.pop(0)
            elif self._running and self._faults.happens(
                self._faults.chances.speculation, "a second attempt at a task"
            ):
                number = self._faults.random.choice(self._running).number
            else:
                return
            self._running.append(_Attempt(number, executor, iter(())))
            self._running[-1].rows = self._parts[number]()

    def _step(self, attempt: _Attempt) -> None:
        """One batch of rows more of a task."""
        try:
            if self._faults.happens(self._faults.chances.task_dies, f"death of {attempt.number}"):
                raise TaskDied(f"task {attempt.number}")
            attempt.made.append(self._within(attempt, lambda: next(attempt.rows)))
        except StopIteration:
            self._done[attempt.number] = attempt.made
            for each in [each for each in self._running if each.number == attempt.number]:
                self._stop(each)
        except Exception:
            self._stop(attempt)
            self._failures[attempt.number] += 1
            if self._failures[attempt.number] == _TRIES:
                raise
            if all(each.number != attempt.number for each in self._running):
                self._waiting.append(attempt.number)

    def _stop(self, attempt: _Attempt) -> None:
        self._running.remove(attempt)
        self._within(attempt, _end(attempt))

    def _within(self, attempt: _Attempt, call: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        self._world.enter(attempt.executor)
        return call()


def _end(attempt: _Attempt) -> Callable[[], None]:
    return getattr(attempt.rows, "close", lambda: None)
