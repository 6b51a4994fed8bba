"""How long something is tried, and the pauses between tries."""

from __future__ import annotations

import random
import time

from keyrange.options.kafka_properties import ClientSettings


class Deadline:
    """A point in time, and the pauses between tries before it."""

    def __init__(self, timeout_ms: float, settings: ClientSettings) -> None:
        self._at = time.monotonic() + timeout_ms / 1000
        self._pause_ms = float(settings.retry_backoff_ms)
        self._pause_max_ms = float(settings.retry_backoff_max_ms)

    @property
    def left_ms(self) -> float:
        return (self._at - time.monotonic()) * 1000

    @property
    def passed(self) -> bool:
        return self.left_ms <= 0

    def pause(self) -> None:
        """Wait a little, each time longer, with jitter; never past the deadline."""
        pause_ms = min(self._pause_ms * random.uniform(0.8, 1.2), max(self.left_ms, 0))
        self._pause_ms = min(2 * self._pause_ms, self._pause_max_ms)
        time.sleep(pause_ms / 1000)
