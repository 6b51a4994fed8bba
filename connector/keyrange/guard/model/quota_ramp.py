"""How far and how fast rates are lowered: never so that a client is muted for long.

A broker mutes a client that was over its quota for (observed - quota) / quota windows. The
Java client keeps to it even when the quota is gone, so a quota that is too small by far stops
clients for hours after it was removed. Halving a rate once a window, a client that sends at it is
muted for one window, plus what a request of every connection that shares the quota adds.
"""

from __future__ import annotations

from typing import Final

FALL: Final = 2
RISE: Final = 4
# Kafka's quota.window.num of quota.window.size.seconds, 11 of one second.
WINDOW_MS: Final = 11_000
_FLOOR_MIN: Final = 16 * 1024


def floor_rate(mute_ms: int, connections: int, request_bytes: int) -> int:
    """Bytes a second below which no rate is lowered, so that nobody is muted beyond `mute_ms`.

    The step and the requests add up, so a window of the time belongs to the step.
    """
    left_ms = mute_ms - (FALL - 1) * WINDOW_MS
    if left_ms <= 0:
        raise ValueError(f"{mute_ms} ms are no more than one step's {WINDOW_MS}")
    return max(_FLOOR_MIN, -(-connections * request_bytes * 1_000 // left_ms))


def stepped(rate: int, target: int) -> int:
    """The next rate on the way to a target."""
    if target < rate:
        return max(target, -(-rate // FALL))
    return min(target, rate * RISE)
