"""Event times of a run's records, and what a job with time makes of them: windows of their keys.

Of a mode with `time` "session" windows are those of `keyrange.windows`, of one with "timers" or
"clock" they are written by hand, one after the other, by event time or by the clock. Each says
which records are in a window.
"""

from __future__ import annotations

import os
import random
import tempfile
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

import keyrange
from nemesis.work import content_of

# Event times in ms since 1970: of the first record; of the last one of each partition, by which all
# windows before it are over; and of a clock that is wrong, which no watermark follows.
BEGAN_MS: Final = int(datetime(2010, 1, 1, tzinfo=UTC).timestamp() * 1000)
END_MS: Final = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1000)
AHEAD_MS: Final = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)
# From one record to the next one of a run. A key has one in ninety.
STEP_MS: Final = 1_000
DELAY_MS: Final = 60_000
GAP_MS: Final = 240_000
SIZE_MS: Final = 600_000
# Two of them are more than a long holds.
HEAVY: Final = 1 << 62

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE: Final = timedelta(milliseconds=SIZE_MS)
# How long one by the clock is open.
_OPEN: Final = timedelta(seconds=2)
_EMPTY: Final = (0, 0, [], [], [])
# Of so many windows one fails the first time, and one the first two times: a third one would help.
_FAILING: Final = 6
_TRIES: Final = 3
_NEW: Final = os.O_CREAT | os.O_EXCL
# The columns that say which records are in a window: their numbers, partitions and offsets.
PLACES: Final = ("numbers", "partitions", "offsets")
_STATE: Final = (
    "count bigint, total bigint, numbers array<bigint>, partitions array<int>, "
    "offsets array<bigint>"
)
# The columns of a row that are a window's.
WINDOW_SCHEMA: Final = f"window_start timestamp, window_end timestamp, {_STATE}"


def event_ms(n: int, chance: random.Random) -> int:
    """The event time of a record: not in order, some too late, and some far ahead."""
    at_ms = BEGAN_MS + n * STEP_MS
    which = chance.random()
    if which < 0.02:
        return AHEAD_MS + n * STEP_MS
    if which < 0.06:
        return at_ms - chance.randrange(3_600_000, 20_000_000)
    if which < 0.15:
        return at_ms - chance.randrange(DELAY_MS, SIZE_MS)
    return at_ms - chance.randrange(DELAY_MS * 2 // 3)


def weight(mark: str) -> int | str:
    """What a value has of a mark: with "!" it is no number, and of two "?" in a window there is no
    sum."""
    return {"!": "no number", "?": HEAVY}.get(mark, 0)


def job_of(kind: str, late: str) -> dict[str, Any]:
    """What `keyrange.job` is given beside its options; but for sessions without what it calls."""
    if kind == "clock":
        return {"time": keyrange.ProcessingTime()}
    column = "at" if kind == "session" else "timestamp"
    time = keyrange.EventTime(column, delay=f"{DELAY_MS}ms", late=late)
    return {"function": sessions(), "time": time} if kind == "session" else {"time": time}


def window_state() -> dict[str, Any]:
    return {"windows": keyrange.MapState("start timestamp", _STATE)}


def sessions() -> Any:
    found = keyrange.windows.session(f"{GAP_MS}ms").count().sum(total="n").sum("weight")
    found = found.collect(numbers="n", partitions="partition", offsets="offset")
    return found.apply(checked, "checked bigint", "n")


def checked(rows: pa.RecordBatch, groups: pa.Array, windows: pa.RecordBatch) -> pa.RecordBatch:
    """The sum of numbers, once more."""
    for key, start in zip(*(windows.column(at).to_pylist() for at in range(2)), strict=True):
        may_fail(key, start)
    totals = [0] * windows.num_rows
    for n, group in zip(rows.column("n").to_pylist(), groups.to_pylist(), strict=True):
        totals[group] += n
    return pa.RecordBatch.from_arrays([pa.array(totals, pa.int64())], names=["checked"])


def remember(record: Any, state: Any, by_clock: bool) -> None:
    """A record goes into the window of its time, or into the one that is open."""
    n, place = content_of(record).n, (record.partition, record.offset)
    if by_clock:
        start, size = next(state.windows.keys(), datetime.now(UTC)), _OPEN
    else:
        start, size = record.timestamp - (record.timestamp - _EPOCH) % _SIZE, _SIZE
    count, total, *places = state.windows.get(start, _EMPTY)
    more = ([*known, new] for known, new in zip(places, (n, *place), strict=True))
    state.windows.update(start, (count + 1, total + n, *more))
    state.timers.set(start + size)


def closed(key: bytes, at: datetime, state: Any, by_clock: bool) -> tuple[Any, ...]:
    """What a row says of a window that is over: one that is not there has no records."""
    start = at - (_OPEN if by_clock else _SIZE)
    found = state.windows.get(start, _EMPTY)
    state.windows.remove(start)
    may_fail(key, start)
    return (start, at, *found)


def may_fail(key: bytes, start: datetime) -> None:
    """Fail the first times that somebody asks for some windows, whichever process it is."""
    name = f"window-{key.decode()}-{start.timestamp():.0f}"
    fails = zlib.crc32(name.encode()) % _FAILING
    for number in range(fails if fails < _TRIES else 0):
        try:
            descriptor = os.open(f"{tempfile.gettempdir()}/{name}-{number}", _NEW)
        except FileExistsError:
            continue
        os.close(descriptor)
        raise ValueError("not now")
