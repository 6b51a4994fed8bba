"""Deadlines of a run's steps: one that hangs is named, with what all threads were doing."""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# The step is told so again and again: a client may take the first time for a failure of its own.
_AGAIN_S: Final = 5.0


class StepHung(Exception):
    """A step was not over after its time."""


@contextmanager
def step(name: str, limit_s: float) -> Iterator[None]:
    """Raise StepHung in the main thread when the block is not left after `limit_s` seconds.

    Steps may lie in one another; each deadline is a whole step's."""

    def late(*_: object) -> None:
        print(f"{name}: not over after {limit_s:.0f} s", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        raise StepHung(f"{name}: not over after {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    left_s, again_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    began = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:
            rest_s = left_s - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(rest_s, 0.01), again_s)


def end_after(limit_s: float) -> None:
    """End this process after so many seconds, wherever it is: also where no signal is heard."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
