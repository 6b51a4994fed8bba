"""A clock for a process that is simulated: nobody waits, and time passes all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BEGIN_S = 1_700_000_000.0
# Who only looks at the time until it has passed comes to an end too.
_LOOK_S = 1e-5


class Clock:
    """The time since the beginning, and the wall clock, which somebody may set."""

    def __init__(self) -> None:
        self.passed_s = 1_000.0
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        # A thread of the binding service looks at any moment of the other's: nothing moves by it.
        if threading.current_thread() is threading.main_thread():
            self.passed_s += _LOOK_S
        return self.passed_s

    def time(self) -> float:
        return _BEGIN_S + self.ahead_s + self.monotonic()

    def sleep(self, seconds: float) -> None:
        self.passed_s += max(seconds, 0.0)

    @property
    def now_ms(self) -> int:
        return int(self.time() * 1000)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """All of the process goes by this clock."""
        own = {
            "time": self.time,
            "time_ns": lambda: int(self.time() * 1e9),
            "monotonic": self.monotonic,
            "monotonic_ns": lambda: int(self.monotonic() * 1e9),
            "process_time": lambda: 0.0,
            "sleep": self.sleep,
        }
        before = {name: getattr(time, name) for name in own}
        try:
            for name, function in own.items():
                setattr(time, name, function)
            yield
        finally:
            for name, function in before.items():
                setattr(time, name, function)
