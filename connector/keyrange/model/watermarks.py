"""How far event time has come in a partition, and what its keys' timers go by.

A key lies in one partition, and so the watermark of its partition is all that counts for it: no
partition waits for another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keyrange.model.timers import NextTimer

# Before all times: that of a partition of which no record was read.
BEGIN: Final = -(2**63)
# Times that SQL shows: the years 1 to 9999.
_LEAST_US: Final = -62_135_596_800_000_000
_GREATEST_US: Final = 253_402_300_799_999_999


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record is expected before `at_us`, in microseconds since 1970. `since_ms`: the time of the
    batch in which the partition's last records were read, in ms since 1970."""

    at_us: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """What a commit says of a partition's time: its watermark, None before the first record, and
    when timers are due, by ranges in their order."""

    watermark: Watermark | None = None
    timers: tuple[NextTimer, ...] = ()


def clock_us(watermark: Watermark | None, idle_after_us: int | None, now_ms: int) -> int:
    """The event time of a partition in a batch whose time is `now_ms`. One of which nothing was
    read for `idle_after_us` goes on as the clock does, from where it stood."""
    if watermark is None:
        return BEGIN
    if idle_after_us is None:
        return watermark.at_us
    idle_us = (now_ms - watermark.since_ms) * 1000 - idle_after_us
    return min(watermark.at_us + max(idle_us, 0), _GREATEST_US)


def moved(
    before: Watermark | None, clock: int, seen_us: int | None, delay_us: int, now_ms: int
) -> Watermark | None:
    """The watermark after a batch: `clock` was that of the batch, `seen_us` the greatest time that
    was read in it. It never goes back."""
    if seen_us is None:
        return before
    at_us = max(min(seen_us - delay_us, _GREATEST_US), _LEAST_US)
    return Watermark(max(at_us, clock), now_ms)
