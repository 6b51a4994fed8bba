"""Interrupts a user's function by a signal, and tells the time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from keyrange.errors import error


class RecordTimeout(BaseException):
    """Raised in a user's function whose time is up.

    Not an Exception, so that a function that catches those and tries again ends too.
    """


class RecordAlarm:
    """Calls functions with a limit of time, as a context manager: SIGALRM is its own meanwhile.

    Code that does not come back to the interpreter is interrupted only when it does.
    """

    def __init__(self, needed: bool = True) -> None:
        self._needed = needed
        self._running = False
        # When the call's time is up, and when the alarm rings next; in s of the monotonic clock.
        self._until_s = 0.0
        self._rings_at_s = float("inf")
        self._before: Any = None

    def __enter__(self) -> RecordAlarm:
        if self._needed:
            if threading.current_thread() is not threading.main_thread():
                raise error("NO_ALARM", "records are not worked on in the worker's main thread")
            self._before = signal.signal(signal.SIGALRM, self._rings)
        return self

    def __exit__(self, *_: object) -> None:
        if self._needed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before or signal.SIG_DFL)

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def call(self, function: Callable[[Any], Any], argument: Any, timeout_ms: float | None) -> Any:
        """The function's result. Raises RecordTimeout where it takes longer, and what it raises."""
        if timeout_ms is None:
            return function(argument)
        now_s = time.monotonic()
        self._until_s = now_s + max(timeout_ms / 1000, 0.001)
        try:
            self._running = True
            # The alarm is left to run from call to call: to set it costs more than most functions.
            # One that is overdue was stopped by a function that has set an alarm of its own.
            if self._until_s < self._rings_at_s or self._rings_at_s < now_s:
                self._set(now_s, self._until_s)
            return function(argument)
        finally:
            self._running = False

    def _set(self, now_s: float, at_s: float) -> None:
        self._rings_at_s = at_s
        signal.setitimer(signal.ITIMER_REAL, max(at_s - now_s, 0.001))

    def _rings(self, _number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if not self._running:
            # Of a call that has ended. The next one sets it.
            self._rings_at_s = float("inf")
        elif now_s < self._until_s:
            self._set(now_s, self._until_s)
        else:
            # It rings again, for functions that swallow whatever is raised.
            self._set(now_s, now_s + 1.0)
            raise RecordTimeout("the record's time is up")
