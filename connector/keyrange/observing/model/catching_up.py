"""When a query will have caught up, if it goes on as it did, and how sure that is.

Rule of this file: figures in, figures out. A lag falls in steps, with each batch, and grows in
between, so a line is laid through what was seen, and one through each half of it: where these say
very different things, so does the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression


@dataclass(frozen=True, slots=True)
class LagAt:
    """A lag in offsets, seen at a time in ms."""

    at_ms: int
    offsets: int


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """`shrinks_per_s` is by how many offsets a second the lag shrinks; it grows where that is
    negative. `ms` is the time that is left, None where it does not shrink; it is somewhere between
    `least_ms` and `most_ms`, None where the lag may as well not shrink."""

    shrinks_per_s: float
    ms: int | None
    least_ms: int | None
    most_ms: int | None


_SEEN_MIN = 3


def catching_up(seen: Sequence[LagAt]) -> CatchingUp | None:
    """What follows from lags in order of time; None where too few were seen to tell."""
    if len({each.at_ms for each in seen}) < _SEEN_MIN:
        return None
    middle = len(seen) // 2
    slopes = [_shrinks_per_ms(part) for part in (seen, seen[: middle + 1], seen[middle:])]
    whole = slopes[0]
    lag = seen[-1].offsets
    if lag == 0:
        return CatchingUp(whole * 1000, 0, 0, 0)
    if whole <= 0:
        return CatchingUp(whole * 1000, None, None, None)
    slowest = min(slopes)
    return CatchingUp(
        shrinks_per_s=whole * 1000,
        ms=round(lag / whole),
        least_ms=round(lag / max(slopes)),
        most_ms=round(lag / slowest) if slowest > 0 else None,
    )


def _shrinks_per_ms(seen: Sequence[LagAt]) -> float:
    """The slope of the line with the least squares, downwards."""
    # From the first one on: times since 1970 would cost all digits.
    times = [each.at_ms - seen[0].at_ms for each in seen]
    if len(set(times)) < 2:
        return 0.0
    return -linear_regression(times, [each.offsets for each in seen]).slope
