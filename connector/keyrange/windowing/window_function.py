"""The functions of a job of windows: records go into the windows of their keys, and windows that
are over out of state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.keyed_state.list_offsets import offsets_of
from keyrange.keyed_state.variables import TIMERS
from keyrange.windowing.aggregates import Aggregate
from keyrange.windowing.kinds import Kind, Windows
from keyrange.windowing.operators import Numbers, times_of, watermark_of
from keyrange.windowing.slots import pair_codes
from keyrange.work.event_times import MICROSECONDS
from keyrange.work.keyed_states import first_rows
from keyrange.work.late_records import LATE

WINDOWS: Final = "windows"
KEY_START_END: Final = ("key", "window_start", "window_end")


class WindowFunction:
    """Called with records, and `on_timer` with timers, as functions of mode arrow are."""

    def __init__(
        self, kind: Kind, aggregates: Sequence[Aggregate], names: Sequence[str], updates: bool
    ) -> None:
        """`names`: of what is kept of a window, in state. `updates`: a row for each window that a
        batch has changed, and none when it is over."""
        self._kind, self._aggregates, self._updates = kind, tuple(aggregates), updates
        fields = chain.from_iterable(each.fields for each in aggregates)
        columns = [pa.field(name, MICROSECONDS) for name in KEY_START_END[1:]]
        columns += [pa.field(name, kind) for name, kind in zip(names, fields, strict=True)]
        self._row = pa.struct(columns)
        self._output = [*KEY_START_END, *(f.name for each in aggregates for f in each.output)]

    def __call__(
        self, records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
        numbers = groups.to_numpy().astype(np.int64)
        known = self._kept(state)
        timed = self._have_timers(known, state)
        new = self._new(records, numbers, known.at(np.flatnonzero(timed)))
        windows, slots = self._kind.merged(new.behind(known), self._aggregates)
        has_timer = np.zeros(slots.count, bool)
        has_timer[slots.of[: len(known.groups)][timed]] = True
        has_timer[slots.of[len(known.groups) :]] = True
        output = None
        if self._updates:
            is_changed = np.zeros(slots.count, bool)
            is_changed[slots.of[len(known.groups) :]] = True
            keys = records.column("key").take(pa.array(first_rows(numbers, state.num_rows)))
            output = self._rows(windows.at(np.flatnonzero(is_changed)), keys)
        return output, self._state(windows, has_timer, state.num_rows)

    def _new(self, records: pa.RecordBatch, groups: Numbers, timed: Windows) -> Windows:
        """The windows of records. A late one that is delivered counts for those that are not over,
        and for those that are `timed`, whose row is still to come: timers of a key wait for records
        that come again, of which one that was not late counts anyway."""
        if LATE not in records.schema.names or not pc.any(records.column(LATE)).as_py():
            return self._of_records(records, groups)
        is_late = records.column(LATE).to_numpy(zero_copy_only=False)
        in_time = np.flatnonzero(~is_late)
        new = self._of_records(records.take(pa.array(in_time)), groups[in_time])
        late = np.flatnonzero(is_late)
        found = self._of_records(records.take(pa.array(late)), groups[late])
        clock_us = watermark_of(records)
        is_open = self._kind.closes(found.ends) > clock_us
        waiting = timed.at(np.flatnonzero(self._kind.closes(timed.ends) <= clock_us))
        if count := len(waiting.groups):
            _, slots = self._kind.merged(found.behind(waiting), self._aggregates)
            is_open |= np.isin(slots.of[count:], slots.of[:count])
        return found.at(np.flatnonzero(is_open)).behind(new)

    def _of_records(self, records: pa.RecordBatch, groups: Numbers) -> Windows:
        times = times_of(records)
        columns = [each.of_records(records, times) for each in self._aggregates]
        return self._kind.of_records(groups, times, columns, self._aggregates)

    def on_timer(
        self, timers: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
        count = state.num_rows
        windows = self._kept(state)
        due = timers.column("at").view(pa.int64()).to_numpy()
        is_over = self._are_among(windows, groups.to_numpy().astype(np.int64), due)
        output = None
        if not self._updates:
            keys = timers.column("key").take(pa.array(first_rows(groups.to_numpy(), count)))
            output = self._rows(windows.at(np.flatnonzero(is_over)), keys)
        left = np.flatnonzero(~is_over)
        has_timer = self._have_timers(windows, state)[left]
        return output, self._state(windows.at(left), has_timer, count)

    def _have_timers(self, windows: Windows, state: pa.RecordBatch) -> NDArray[np.bool_]:
        """Which windows of state are to be written. One whose timer was given up has none, until
        that is set again."""
        timers = state.column(TIMERS)
        owners = pc.list_parent_indices(timers).to_numpy().astype(np.int64)
        return self._are_among(windows, owners, timers.flatten().view(pa.int64()).to_numpy())

    def _are_among(self, windows: Windows, owners: Numbers, times: Numbers) -> NDArray[np.bool_]:
        """Which windows are those that timers are for, of the groups that are their `owners`."""
        count = len(windows.groups)
        groups = np.concatenate((windows.groups, owners))
        codes, _ = pair_codes(groups, np.concatenate((self._kind.closes(windows.ends), times)))
        if not len(times):
            return np.zeros(count, bool)
        # Both are about in order, which is fast to sort and to look up.
        known = np.sort(codes[count:], kind="stable")
        places = np.searchsorted(known, codes[:count])
        places[places == len(known)] = 0
        return np.asarray(known[places] == codes[:count])

    def _kept(self, state: pa.RecordBatch) -> Windows:
        lists = state.column(WINDOWS)
        owners = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
        starts, ends, *kept = lists.flatten().flatten()
        rest = iter(kept)
        columns = [[next(rest) for _ in each.fields] for each in self._aggregates]
        begins = np.asarray(starts.view(pa.int64()).to_numpy())
        return Windows(owners, begins, np.asarray(ends.view(pa.int64()).to_numpy()), columns)

    def _state(self, windows: Windows, has_timer: NDArray[np.bool_], count: int) -> pa.RecordBatch:
        starts, ends = _times(windows.starts), _times(windows.ends)
        columns = [starts, ends, *chain.from_iterable(windows.columns)]
        rows = pa.StructArray.from_arrays(columns, fields=list(self._row))
        offsets = offsets_of(windows.groups, count)
        times = _times(self._kind.closes(windows.ends)[has_timer])
        timers = pa.ListArray.from_arrays(offsets_of(windows.groups[has_timer], count), times)
        return pa.RecordBatch.from_arrays(
            [pa.ListArray.from_arrays(offsets, rows), timers], names=[WINDOWS, TIMERS]
        )

    def _rows(self, windows: Windows, keys: pa.Array) -> pa.RecordBatch | None:
        if not len(windows.groups):
            return None
        keys = keys.take(pa.array(windows.groups))
        columns: list[Any] = [keys, _times(windows.starts), _times(windows.ends)]
        whole = pa.RecordBatch.from_arrays(columns, names=list(KEY_START_END))
        for each, own in zip(self._aggregates, windows.columns, strict=True):
            columns += each.results(own, whole)
        return pa.RecordBatch.from_arrays(columns, names=self._output)


def _times(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).view(MICROSECONDS)
