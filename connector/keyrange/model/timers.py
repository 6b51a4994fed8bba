"""When timers of keys are due next, by key range: what the driver plans batches by.

`NEVER` stands for no time, beyond all that there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.model.key_ranges import SPACE, KeyRange, common, subtract

NEVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class NextTimer:
    """Of the keys of a range no timer is due before `timer_us`, in microseconds since 1970 by the
    clock of their partition, and none that failed is tried again before `retry_ms`, in ms since
    1970."""

    span: KeyRange
    timer_us: int = NEVER
    retry_ms: int = NEVER

    def is_due(self, clock_us: int, due_ms: int) -> bool:
        return self.timer_us <= clock_us or self.retry_ms <= due_ms

    def flat(self) -> tuple[Any, ...]:
        """Its values one after the other, with both ends of the key range in it; None stands for
        no time."""
        times = (None if each == NEVER else each for each in (self.timer_us, self.retry_ms))
        return (self.span.from_hash, self.span.until_hash - 1, *times)

    @classmethod
    def of_flat(cls, values: Iterable[Any]) -> NextTimer:
        """What `flat` has made. Raises TypeError or ValueError for what cannot be one."""
        from_hash, last_hash, *times = values
        timer_us, retry_ms = (NEVER if each is None else each for each in times)
        return cls(KeyRange(from_hash, last_hash + 1), timer_us, retry_ms)

    def within(self, span: KeyRange) -> NextTimer | None:
        """What it says of a key range; None where that is nothing."""
        shared = common(self.span, span)
        return None if shared is None else NextTimer(shared, self.timer_us, self.retry_ms)


@dataclass(frozen=True, slots=True)
class Retries:
    """By what timers fire again that failed: those whose time came until `due_ms` do, and one that
    fails waits from `now_ms` on, in ms since 1970. That is the clock as people set it: the time of
    batches stands still where this goes back."""

    now_ms: int
    due_ms: int


NO_RETRIES: Final = Retries(0, 0)


@dataclass(frozen=True, slots=True)
class SeenTimers:
    """What a task says of a key range: `next_timer` is that of all its keys if the task has looked
    at all (`is_exact`), else that of those which it changed."""

    next_timer: NextTimer
    is_exact: bool

    def flat(self) -> tuple[Any, ...]:
        """Its values one after the other, as `NextTimer.flat` and then `is_exact`."""
        return (*self.next_timer.flat(), self.is_exact)

    @classmethod
    def of_flat(cls, values: Iterable[Any]) -> SeenTimers:
        """What `flat` has made."""
        *told, is_exact = values
        return cls(NextTimer.of_flat(told), is_exact)


def after_batch(before: Iterable[NextTimer], seen: Iterable[SeenTimers]) -> tuple[NextTimer, ...]:
    """When timers of a partition are due after a batch, by ranges in their order; ranges that are
    not named have none."""
    found = sorted(before)
    for each in sorted(seen, key=lambda each: each.next_timer.span):
        new = each.next_timer
        rest = [part for old in found for part in _outside(old, new.span)]
        inside = [part for old in found if (part := old.within(new.span)) is not None]
        if each.is_exact:
            inside = [new]
        else:
            uncovered = subtract([new.span], [part.span for part in inside])
            inside = [
                NextTimer(
                    part.span,
                    min(part.timer_us, new.timer_us),
                    min(part.retry_ms, new.retry_ms),
                )
                for part in inside
            ]
            inside += [NextTimer(span, new.timer_us, new.retry_ms) for span in uncovered]
        found = sorted([*rest, *inside])
    return _joined(found)


def earliest(timers: Iterable[NextTimer]) -> tuple[int, int]:
    """The least of their times: `timer_us` and `retry_ms`."""
    timers = list(timers)
    return (
        min((each.timer_us for each in timers), default=NEVER),
        min((each.retry_ms for each in timers), default=NEVER),
    )


def _outside(timer: NextTimer, span: KeyRange) -> list[NextTimer]:
    left = subtract([timer.span], [span])
    return [NextTimer(each, timer.timer_us, timer.retry_ms) for each in left]


def _joined(timers: Sequence[NextTimer]) -> tuple[NextTimer, ...]:
    """Neighbours that say the same are one, and one that says of no time is none."""
    found: list[NextTimer] = []
    for each in timers:
        if each.timer_us == each.retry_ms == NEVER:
            continue
        last = found[-1] if found else None
        if (
            last is not None
            and last.span.until_hash == each.span.from_hash
            and (last.timer_us, last.retry_ms) == (each.timer_us, each.retry_ms)
        ):
            found[-1] = NextTimer(
                KeyRange(last.span.from_hash, each.span.until_hash), each.timer_us, each.retry_ms
            )
        else:
            found.append(each)
    return tuple(found)


# Timers may be due in all key ranges: the next batch looks through the state of all keys.
UNKNOWN: Final = (NextTimer(SPACE, -NEVER),)
