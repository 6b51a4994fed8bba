"""How long the planning of a batch takes while checks of the volumes go on in its process, and
while none does: by turns, many times, so that what else the machine does is in both.

On a machine that does other things too, plans take longer now and then with checks and without.
What a check can add is waiting: for the interpreter, which one thread has at a time. Linux counts
for each thread how long it ran, and how long it could have and no processor was free; the rest it
waited. What a check adds is told by that, and how long plans took as it was.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.figures import Figure, from_runs, percentile
from keyrange.guard.factor_sources import Figures, ThrottleFactorSource
from keyrange.guard.volume_watch import Watch

# What a plan waits for, so many times, and how much it has to go through each time.
_ANSWERS = 5
_ANSWER_S = 0.001
_PARTITIONS = 10_000
_PATIENCE_S = 60.0
_SCHEDULED = Path("/proc/thread-self/schedstat")


class OnCall:
    """A source that checks again and again from `begin` to `end`, and not at all before."""

    def __init__(self, source: ThrottleFactorSource) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._is_called = False
        self._is_idle = False
        self._is_over = False

    def check(self) -> None:
        with self._changed:
            while not self._is_called:
                self._is_idle = True
                self._changed.notify_all()
                self._changed.wait()
        if not self._is_over:
            self._source.check()

    def figures(self, now_ms: int) -> Figures:
        return self._source.figures(now_ms)

    def close(self) -> None:
        self._source.close()

    def begin(self) -> None:
        with self._changed:
            self._is_called, self._is_idle = True, False
            self._changed.notify_all()

    def end(self) -> None:
        """Wait for the end of the check that runs."""
        with self._changed:
            self._is_called = False
            if not self._changed.wait_for(lambda: self._is_idle, _PATIENCE_S):
                raise RuntimeError("a check does not end")

    def leave(self) -> None:
        """Let the thread that checks go, after the last `end`; no check is made any more."""
        self._is_over = True
        self.begin()


@dataclass(frozen=True, slots=True)
class Plan:
    """How long one took, and waited of that: for answers, or for the interpreter."""

    took_ms: float
    waited_ms: float


@dataclass
class Pairs:
    """Plans without checks, and beside each its neighbour with them."""

    alone: list[Plan] = field(default_factory=list)
    beside: list[Plan] = field(default_factory=list)

    @property
    def delays_ms(self) -> list[float]:
        pairs = zip(self.alone, self.beside, strict=True)
        return [beside.waited_ms - alone.waited_ms for alone, beside in pairs]


def delay_figures(rounds: list[Pairs]) -> Iterator[Figure]:
    """What a check adds to a plan, 99 of 100 times and in the middle; and both kinds of plans."""
    for name, share in (("p50.", 0.5), ("", 0.99), ("max.", 1.0)):
        values = [percentile(each.delays_ms, share) for each in rounds]
        yield from_runs(f"volumes.batch_delay.{name}ms", values, "ms")
    for side in ("alone", "beside"):
        took = [[plan.took_ms for plan in getattr(each, side)] for each in rounds]
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            values = [percentile(each, share) for each in took]
            yield from_runs(f"volumes.plan.{side}.{name}.ms", values, "ms")


def paired_plans(source: ThrottleFactorSource, rounds: int, pairs: int) -> list[Pairs]:
    """So many pairs in each round; closes the source.

    A plan begins at a moment of a check that is drawn by lot, and its neighbour after the same wait
    without one. Which of both is the first changes from pair to pair.
    """
    called = OnCall(source)
    watch = Watch(called, interval_ms=1)
    called.begin()
    watch.start()
    watch.first(_PATIENCE_S * 1e3)  # it connects
    called.end()
    check_s = median(_check_seconds(called) for _ in range(5))
    found = []
    for _ in range(rounds):
        one = Pairs()
        for number in range(pairs):
            wait_s = random.uniform(0, check_s)
            for is_beside in (number % 2 == 0, number % 2 == 1):
                if is_beside:
                    called.begin()
                time.sleep(wait_s)
                plan = _planned(watch)
                called.end()
                (one.beside if is_beside else one.alone).append(plan)
        found.append(one)
    watch.close()
    called.leave()
    return found


def _check_seconds(called: OnCall) -> float:
    before = time.perf_counter()
    called.begin()
    called.end()
    return time.perf_counter() - before


def _planned(watch: Watch) -> Plan:
    """A plan waits for answers, asks for the factor, and counts."""
    busy_ms, before = _busy_ms(), time.perf_counter()
    for _ in range(_ANSWERS):
        time.sleep(_ANSWER_S)
        factor = watch.factor.value
        for partition in range(_PARTITIONS):
            factor = max(factor, partition * factor)
    took_ms = (time.perf_counter() - before) * 1e3
    return Plan(took_ms, took_ms - (_busy_ms() - busy_ms))


def _busy_ms() -> float:
    """For how long this thread ran, or could have run and no processor was free."""
    try:
        queued_ns = int(_SCHEDULED.read_text().split()[1])
    except OSError:
        queued_ns = 0
    return time.thread_time() * 1e3 + queued_ns / 1e6
