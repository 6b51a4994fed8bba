"""The clock of the volume guard."""

from __future__ import annotations

import time
from typing import Final

# Goes on while the machine sleeps: a guard that was asleep has to know that its lease is over.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """ms of a clock that does not go back: all of the guard's times but those that people read."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
