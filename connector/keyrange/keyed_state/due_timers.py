"""Which keys have timers that are due, and when the next one is.

When timers are due stands in the row of their key, and nowhere else: the column is looked through,
eight bytes for each key, in the blocks that are mapped anyway. So there is no index to keep, to
merge or to repair, and a timer that was set again costs nothing but its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.keyed_state.list_offsets import offsets_of
from keyrange.keyed_state.sorted_blocks import (
    Blocks,
    Numbers,
    all_in,
    hashes_of,
    keys_at,
    said_by_none,
    within,
)
from keyrange.keyed_state.variables import TIMER_RETRY, TIMERS, StateForm
from keyrange.model.key_ranges import KeyRange
from keyrange.model.timers import NEVER, NextTimer

# So many of the keys with the earliest timers are looked at together, whether it is still so; where
# it is so of none, so many times as many the next time.
_LOOKED_AT: Final = 1024
_MORE: Final = 8


def due_rows(
    runs: Sequence[Blocks], span: KeyRange, clock_us: int, due_ms: int, form: StateForm
) -> Iterator[pa.RecordBatch]:
    """Rows of the keys of a key range that have a timer due at `clock_us`, or whose timer failed
    and is tried again at `due_ms`. `runs`: the newest first, whose newest row of a key counts."""
    for at, run in enumerate(runs):
        for block in all_in(run):
            rows = within(block, span)
            timers_us, retries_ms = wake_times(rows)
            due = np.flatnonzero((timers_us <= clock_us) | (retries_ms <= due_ms))
            if len(due):
                newest = due[said_by_none(runs[:at], keys_at(rows, due))]
                if len(newest):
                    yield form.fitted(rows.take(pa.array(newest)))


def oldest_clock(
    runs: Sequence[Blocks], span: KeyRange, waiting: NDArray[np.int64], clock_us: int, most: int
) -> int:
    """The time by which no more than about `most` keys of a range have timers that are due, the
    oldest ones; `clock_us` where they are fewer. Keys with one of the hashes `waiting` do not
    count: theirs fire behind a record. `runs` as of `due_rows`."""
    found: list[Numbers] = []
    for at, run in enumerate(runs):
        for block in all_in(run):
            rows = within(block, span)
            timers_us, _ = wake_times(rows)
            is_due = timers_us <= clock_us
            if len(waiting):
                is_due &= ~np.isin(hashes_of(rows), waiting)
            due = np.flatnonzero(is_due)
            if len(due):
                found.append(timers_us[due[said_by_none(runs[:at], keys_at(rows, due))]])
    times_us = np.concatenate(found) if found else np.array([], np.int64)
    return clock_us if len(times_us) <= most else int(np.partition(times_us, most - 1)[most - 1])


def next_timer(
    runs: Sequence[Blocks], span: KeyRange, waiting: NDArray[np.int64], clock_us: int
) -> NextTimer:
    """When the first timer of the keys of a range is due. Timers that are due already do not count
    of keys with one of the hashes `waiting`: a record of theirs goes first, and who works on that
    looks for them. `runs` as of `due_rows`."""
    timer_us, retry_ms = NEVER, NEVER
    for at, run in enumerate(runs):
        for block in all_in(run):
            rows = within(block, span)
            timers_us, retries_ms = wake_times(rows)
            if len(waiting):
                timers_us[(timers_us <= clock_us) & np.isin(hashes_of(rows), waiting)] = NEVER
            timer_us = _earliest(timers_us, timer_us, rows, runs[:at])
            retry_ms = _earliest(retries_ms, retry_ms, rows, runs[:at])
    return NextTimer(span, timer_us, retry_ms)


def wake_times(rows: pa.RecordBatch) -> tuple[Numbers, Numbers]:
    """Of each row when its first timer is due, in microseconds, and where that failed when it is
    tried again, in milliseconds; NEVER where none is."""
    count = rows.num_rows
    timers_us, retries_ms = first_timers(rows), np.full(count, NEVER)
    if TIMERS not in rows.schema.names:
        # They were written before the job had time.
        return timers_us, retries_ms
    retry = rows.column(TIMER_RETRY)
    if retry.null_count < count:
        failed = retry.is_valid().to_numpy(zero_copy_only=False)
        retries_ms[failed] = retry.field("due_ms").to_numpy(zero_copy_only=False)[failed]
        timers_us[failed] = NEVER
    return timers_us, retries_ms


def first_timers(rows: pa.RecordBatch) -> Numbers:
    """Of each row its first timer, in microseconds, also of one that has failed; NEVER where there
    is none."""
    found = np.full(rows.num_rows, NEVER)
    if TIMERS in rows.schema.names:
        column = rows.column(TIMERS)
        offsets = column.offsets.to_numpy()
        has_some = offsets[1:] > offsets[:-1]
        if column.null_count:
            has_some &= column.is_valid().to_numpy(zero_copy_only=False)
        times = column.values.view(pa.int64()).to_numpy()
        found[has_some] = times[offsets[:-1][has_some]]
    return found


def _earliest(times: Numbers, known: int, rows: pa.RecordBatch, newer: Sequence[Blocks]) -> int:
    """The earliest of some times and one that is known, of rows of whose keys no newer run says
    something else."""
    earlier, count = np.flatnonzero(times < known), _LOOKED_AT
    while len(earlier):
        first = earlier
        if len(earlier) > count and newer:
            first = earlier[np.argpartition(times[earlier], count)[:count]]
            first.sort()
        own = first[said_by_none(newer, keys_at(rows, first))]
        if len(own):
            return int(times[own].min())
        # All of them are of the past: the next ones are later.
        earlier = np.setdiff1d(earlier, first, assume_unique=True)
        count *= _MORE
    return known


def without_times(column: pa.ListArray, left_out: NDArray[np.bool_]) -> pa.ListArray:
    """Lists of times without some of all their times, in their order; one that has none left is
    null."""
    owners = pc.list_parent_indices(column).to_numpy()[~left_out]
    times = column.flatten().filter(pa.array(~left_out))
    return pa.ListArray.from_arrays(offsets_of(owners, len(column)), times, type=column.type)
