"""How far event time has come in a partition, and what its keys' timers go by.

A key lies in one partition, and so the watermark of its partition is all that counts for it: no
partition waits for another one. Only partitions that share the state of keys have a time in common.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from keyrange.model.key_ranges import KeyRange, common, subtract
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER, NextTimer

# Before all times: that of a partition of which no record was read.
BEGIN: Final = -(2**63)
# Times that SQL shows: the years 1 to 9999.
LEAST_US: Final = -62_135_596_800_000_000
GREATEST_US: Final = 253_402_300_799_999_999
# How many batches that key ranges lag behind have watermarks of their own. What lags farther goes
# by earlier ones.
STARTS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record is expected before `at_us`, in microseconds since 1970. `since_ms`: since when it
    stands there, in ms since 1970: the time of the batch in which the partition's last records were
    read, later by as much as it has gone on since as the clock does. Of a partition that shares its
    state and of which no record was read it is BEGIN since it was there."""

    at_us: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class BatchStart:
    """The clock of a partition, in microseconds since 1970, in the batch that began at an
    offset of it."""

    offset: int
    clock_us: int


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """What a commit says of a partition's time: its watermark, None before the first record, and
    when timers are due, by ranges in their order. `starts`: while some key range lags behind, of
    the batches whose records it has not read, in the order of offsets. `late`: how many records
    were before the watermark until now."""

    watermark: Watermark | None = None
    timers: tuple[NextTimer, ...] = ()
    starts: tuple[BatchStart, ...] = ()
    late: int = 0

    def clock_before(self, offset: int) -> int:
        """What a key range goes by that was read up to `offset` and no farther: the clock of the
        batch that had the partition's record there first. So a record that is handed back is late
        only if it was late the first time, and no timer fires before the records that came before
        its time, as the partition's batches had them. BEGIN where nobody knows it any more."""
        at = bisect_right(self.starts, offset, key=lambda start: start.offset)
        return self.starts[at - 1].clock_us if at else BEGIN


@dataclass(frozen=True, slots=True)
class PartitionClock:
    """What late records and timers of a partition go by in a batch, in microseconds since 1970.
    Key ranges that lag `behind`, in their order, go by clocks of their own."""

    at_us: int = BEGIN
    behind: tuple[tuple[KeyRange, int], ...] = ()

    def of(self, key_hash: int) -> int:
        """That of a key."""
        own = (at_us for span, at_us in self.behind if span.contains(key_hash))
        return next(own, self.at_us)

    def with_lags(self, lags: Iterable[tuple[KeyRange, int]]) -> PartitionClock:
        """With the clocks of key ranges that lag behind; a key in several goes by the least. They
        have records of their keys before them that others have passed: the partition's clock would
        make these late, and fire timers too early."""
        left = sorted(lags, key=lambda lag: lag[0].from_hash, reverse=True)
        bounds = {bound for span, _ in left for bound in (span.from_hash, span.until_hash)}
        behind: list[tuple[KeyRange, int]] = []
        here: list[tuple[KeyRange, int]] = []
        for begin, end in pairwise(sorted(bounds)):
            while left and left[-1][0].from_hash <= begin:
                here.append(left.pop())
            here = [each for each in here if each[0].until_hash > begin]
            if not here:
                continue
            at_us = min(self.at_us, *(each for _, each in here))
            from_hash = begin
            if behind and (behind[-1][0].until_hash, behind[-1][1]) == (begin, at_us):
                from_hash = behind.pop()[0].from_hash
            behind.append((KeyRange(from_hash, end), at_us))
        return replace(self, behind=tuple(behind))

    def within(self, span: KeyRange) -> Iterator[tuple[KeyRange, int]]:
        """The parts of a key range, each with its clock."""
        found = [
            (part, at_us) for own, at_us in self.behind if (part := common(own, span)) is not None
        ]
        rest = subtract([span], [part for part, _ in found]) if found else [span]
        yield from sorted([*found, *((part, self.at_us) for part in rest)])


def starts_after(
    before: PartitionTime, position: int, clock: int, scanned: Iterable[int]
) -> tuple[BatchStart, ...]:
    """`PartitionTime.starts` behind a batch that began at `position` and went by `clock`. Key
    ranges that lag were read as far as `scanned`."""
    # Of a log that was cut back what came behind is gone.
    found = [each for each in before.starts if each.offset < position]
    return kept_starts([*found, BatchStart(position, clock)], scanned)


def kept_starts(starts: Sequence[BatchStart], scanned: Iterable[int]) -> tuple[BatchStart, ...]:
    """Those of which key ranges have use that lag and were read as far as `scanned`, and not
    many more than STARTS_MAX."""
    offsets = [each.offset for each in starts]
    in_use = {bisect_right(offsets, each) - 1 for each in scanned}
    if not in_use:
        return ()
    kept = list(range(max(min(in_use), 0), len(starts)))
    # Not one that a range goes by: its clock would go back.
    while len(kept) > STARTS_MAX and (spare := [at for at in kept[:-1] if at not in in_use]):
        dropped = set(spare[::2])
        kept = [at for at in kept if at not in dropped]
    return tuple(starts[at] for at in kept)


def clock_us(watermark: Watermark | None, idle_after_us: int | None, now_ms: int) -> int:
    """The event time of a partition in a batch whose time is `now_ms`. One of which nothing was
    read for `idle_after_us` goes on as the clock does, from where it stood: unless it has records
    (`known_by`)."""
    if watermark is None or watermark.at_us == BEGIN:
        return BEGIN
    if idle_after_us is None:
        return watermark.at_us
    idle_us = (now_ms - watermark.since_ms) * 1000 - idle_after_us
    return min(watermark.at_us + max(idle_us, 0), GREATEST_US)


def moved(
    before: Watermark | None,
    clock: int,
    seen_us: int | None,
    delay_us: int,
    idle_after_us: int | None,
    now_ms: int,
) -> Watermark | None:
    """The watermark after a batch that has worked on keys of the partition: `clock` was that of the
    batch, `seen_us` the greatest time that was read in it. It never goes back, nor behind the clock
    that functions went by: where nothing was read it may have gone on as the clock does."""
    if seen_us is None:
        if before is None or idle_after_us is None or clock <= before.at_us:
            return before
        return Watermark(clock, max(before.since_ms, now_ms - idle_after_us // 1000))
    at_us = max(min(seen_us - delay_us, GREATEST_US), LEAST_US, clock)
    # The clock is behind it where another partition is slower.
    return Watermark(at_us if before is None else max(at_us, before.at_us), now_ms)


def known_by(
    times: Mapping[TopicPartition, PartitionTime], unread: Container[TopicPartition], now_ms: int
) -> list[Watermark | None]:
    """The watermarks of partitions, some with records that no batch has read yet (`unread`). These
    are not idle, however long ago the last one was read: the query was stopped, held back or slow,
    and none of them is late for that."""
    return [
        replace(each.watermark, since_ms=max(each.watermark.since_ms, now_ms))
        if each.watermark is not None and at in unread
        else each.watermark
        for at, each in times.items()
    ]


def shared_clock_us(
    watermarks: Iterable[Watermark | None], idle_after_us: int | None, now_ms: int
) -> int:
    """The event time of partitions that share the state of keys: that of the slowest of them, so
    that no record of it is late because another one is faster.

    One of which nothing was read for `idle_after_us` does not count; if that is so of all, the
    farthest goes on as the clock does. One without a watermark is new, and begins where the others
    are.
    """
    known = [each for each in watermarks if each is not None]
    busy = [each for each in known if not _is_idle(each, idle_after_us, now_ms)]
    clocks = (clock_us(each, idle_after_us, now_ms) for each in busy or known)
    return min(clocks, default=BEGIN) if busy else max(clocks, default=BEGIN)


def shared_due_ms(
    watermarks: Iterable[Watermark | None], idle_after_us: int | None, timer_us: int
) -> int:
    """When the clock makes a timer due of partitions that share the state of keys, in ms since
    1970; NEVER where it does not."""
    known = [each for each in watermarks if each is not None]
    if timer_us == NEVER or idle_after_us is None or not known:
        return NEVER
    # Time jumps where a partition does not count any more, and goes on where none does.
    idle_at = [each.since_ms + idle_after_us // 1000 + 1 for each in known]
    for at_ms in sorted(idle_at):
        if shared_clock_us(known, idle_after_us, at_ms) >= timer_us:
            return at_ms
    goes_on = [
        each.since_ms + (idle_after_us + timer_us - each.at_us) // 1000 + 1
        for each in known
        if each.at_us != BEGIN
    ]
    return min(goes_on, default=NEVER)


def _is_idle(watermark: Watermark, idle_after_us: int | None, now_ms: int) -> bool:
    if idle_after_us is None:
        return False
    return (now_ms - watermark.since_ms) * 1000 > idle_after_us


def shared_from(watermark: Watermark | None, clock: int, now_ms: int) -> Watermark:
    """The watermark behind a batch of a partition that shares the state of keys: of one of which
    nothing was ever read it is where the others are."""
    return watermark or Watermark(clock, now_ms)
