"""Operators whose output is records as they are: each once, or the last one of each key."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import ddl_of_columns
from keyrange.keyed_state.list_offsets import offsets_of
from keyrange.keyed_state.variables import TIMERS, DefinedState, ListState, ValueState
from keyrange.model.timers import NEVER
from keyrange.windowing.operators import (
    JobParts,
    KeptRows,
    Numbers,
    Operator,
    RecordColumn,
    duration_us,
    last_due,
    record_column,
    times_of,
)
from keyrange.windowing.slots import Slots, slots_of
from keyrange.work.column_workers import own_columns
from keyrange.work.event_times import EVENT_TIME, MICROSECONDS

_SEEN: Final = "seen"
_LAST: Final = "last"
_AT: Final = "at"
# Ids are forgotten in so many steps of the time within which they count.
_STEPS: Final = 16


def _output(columns: pa.Schema, chosen: Sequence[str]) -> pa.Schema:
    """The columns of a table of records: a value that has fields is a column for each."""
    fields: list[pa.Field] = []
    for field in map(columns.field, chosen):
        is_row = field.name == "value" and pa.types.is_struct(field.type)
        fields += list(field.type) if is_row else [field]
    names = [field.name.lower() for field in fields]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two columns {twice[0]!r}: see option columns, which can leave some out")
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class Deduplication(Operator):
    """As `keyrange.deduplicate`."""

    _by: tuple[str, ...]
    _within_us: int

    def parts(self, columns: pa.Schema, chosen: Sequence[str]) -> JobParts:
        ids = [record_column(each, columns) for each in self._by]
        for each in ids:
            if pa.types.is_nested(each.type):
                raise ValueError(f"column {'.'.join(each.path)!r} is {each.type}, and no id")
        output = _output(columns, chosen)
        row = pa.schema(
            [(_AT, MICROSECONDS), *((f"id{at}", each.type) for at, each in enumerate(ids))]
        )
        function = _Deduplicating(ids, self._within_us, row, output.names)
        # The time within which an id counts may be another: what is seen says when it was.
        definition = f"each record once by {', '.join(self._by) or 'key'}"
        state = {_SEEN: DefinedState(ListState(ddl_of_columns(row)), definition)}
        names = [(name.replace(".", "_"), f"id{at}") for at, name in enumerate(self._by)]
        kept = KeptRows(_SEEN, ((EVENT_TIME, _AT), *names), EVENT_TIME, self._within_us)
        return JobParts(function, function.on_timer, output, state, kept)


class _Deduplicating:
    def __init__(
        self, ids: Sequence[RecordColumn], within_us: int, row: pa.Schema, names: list[str]
    ) -> None:
        self._ids, self._within_us, self._row = ids, within_us, pa.struct(list(row))
        self._own: Callable[[pa.RecordBatch], pa.RecordBatch] = own_columns(names)

    def __call__(
        self, records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        new_ids = [each.of(records) for each in self._ids]
        has_id = np.ones(records.num_rows, bool)
        for each in new_ids:
            has_id &= each.is_valid().to_numpy(zero_copy_only=False)
        owners, at, known_ids = self._seen(state)
        count = len(owners)
        groups_of_all = np.concatenate((owners, groups.to_numpy().astype(np.int64)))
        times = np.concatenate((at, times_of(records)))
        pairs = zip(known_ids, new_ids, strict=True)
        ids = [pa.concat_arrays([*pair]) for pair in pairs]
        is_first = self._firsts(_joined(groups_of_all, ids), times, count, has_id)
        found = np.flatnonzero(is_first[count:] | ~has_id)
        is_first[:count] = True
        kept = np.flatnonzero(is_first)
        kept = kept[np.argsort(groups_of_all[kept], kind="stable")]
        columns = [times[kept], *(each.take(pa.array(kept)) for each in ids)]
        new = self._state(groups_of_all[kept], columns, state.num_rows)
        return self._own(records.take(pa.array(found))), new

    def _firsts(
        self, slots: Slots, times: Numbers, known: int, has_id: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which rows are the first of their id within the time, in the order of their arrival. The
        first `known` rows are of before."""
        is_open = np.concatenate((np.zeros(known, bool), has_id))
        low, high = (np.full(slots.count, sign * NEVER) for sign in (1, -1))
        np.minimum.at(low, slots.of, times)
        np.maximum.at(high, slots.of, times)
        # Of most ids all records lie within the time: one counts, if none of before does.
        is_near = low + self._within_us > high
        is_new = np.bincount(slots.of[:known], minlength=slots.count) == 0
        firsts = slots.chosen(
            np.arange(len(times)), takes_last=False, valid=is_open & (is_near & is_new)[slots.of]
        )
        is_first = np.zeros(len(times), bool)
        is_first[firsts.drop_null().to_numpy()] = True
        is_asked = np.bincount(slots.of[is_open], minlength=slots.count) > 0
        rows = np.flatnonzero((is_asked & ~is_near)[slots.of])
        # Of each id the times that count, in their order.
        counting: defaultdict[int, list[int]] = defaultdict(list)
        told = (rows.tolist(), slots.of[rows].tolist(), times[rows].tolist())
        for row, slot, time in zip(*told, strict=True):
            own, within = counting[slot], self._within_us
            at = bisect_left(own, time)
            is_far = (at == 0 or time - own[at - 1] >= within) and (
                at == len(own) or own[at] - time >= within
            )
            if row < known or is_far:
                own.insert(at, time)
                is_first[row] = True
        return is_first

    def on_timer(
        self, timers: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch
    ) -> tuple[None, pa.RecordBatch]:
        owners, at, ids = self._seen(state)
        last = last_due(timers, groups, state.num_rows)
        kept = np.flatnonzero(at + self._within_us > last[owners])
        columns = [at[kept], *(each.take(pa.array(kept)) for each in ids)]
        return None, self._state(owners[kept], columns, state.num_rows)

    def _seen(self, state: pa.RecordBatch) -> tuple[Numbers, Numbers, list[pa.Array]]:
        lists = state.column(_SEEN)
        owners = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
        at, *ids = lists.flatten().flatten()
        return owners, np.asarray(at.view(pa.int64()).to_numpy()), ids

    def _state(self, owners: Numbers, columns: list[Any], count: int) -> pa.RecordBatch:
        """Ids of keys, in the order of these. Each key has one timer, for its earliest ids."""
        at, *ids = columns
        rows = pa.StructArray.from_arrays(
            [pa.array(at).view(MICROSECONDS), *ids], fields=list(self._row)
        )
        seen = pa.ListArray.from_arrays(offsets_of(owners, count), rows)
        step = max(self._within_us // _STEPS, 1)
        due = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(due, owners, -(-(at + self._within_us) // step) * step)
        some = np.flatnonzero(np.bincount(owners, minlength=count))
        times = pa.array(due[some]).view(MICROSECONDS)
        timers = pa.ListArray.from_arrays(offsets_of(some, count), times)
        return pa.RecordBatch.from_arrays([seen, timers], names=[_SEEN, TIMERS])


def _joined(groups: Numbers, ids: Sequence[pa.Array]) -> Slots:
    """A slot for each id of each key."""
    slots = slots_of(groups, np.zeros(len(groups), np.int64))
    for each in ids:
        # What has no id is no other's duplicate.
        numbers = pc.fill_null(each.dictionary_encode().indices, -1).to_numpy()
        slots = slots_of(slots.of, numbers.astype(np.int64))
    return slots


@dataclass(frozen=True, slots=True)
class LastByTime(Operator):
    """As `keyrange.last`."""

    def parts(self, columns: pa.Schema, chosen: Sequence[str]) -> JobParts:
        output = _output(columns, chosen)
        function = _TakingLast(output.names)
        replaces = ("key",) if "key" in output.names else ()
        state = {_LAST: ValueState("at timestamp")}
        return JobParts(function, None, output, state, replaces=replaces)


class _TakingLast:
    def __init__(self, names: list[str]) -> None:
        self._own: Callable[[pa.RecordBatch], pa.RecordBatch] = own_columns(names)

    def __call__(
        self, records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        times, count = times_of(records), state.num_rows
        order = np.argsort(times, kind="stable")
        latest = np.zeros(count, np.int64)
        # What is written last stays.
        latest[groups.to_numpy()[order]] = order
        known = state.column(_LAST).field(_AT)
        has_known = state.column(_LAST).is_valid().to_numpy(zero_copy_only=False)
        before = pc.fill_null(known.view(pa.int64()), 0).to_numpy()
        is_newer = ~has_known | (times[latest] >= before)
        at = pa.array(np.where(is_newer, times[latest], before)).view(MICROSECONDS)
        new = pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([at], [_AT])], names=[_LAST])
        rows = np.sort(latest[is_newer])
        return self._own(records.take(pa.array(rows))), new


def deduplicate(by: str | Sequence[str] = (), within: str = "1d") -> Deduplication:
    """The function of a job whose output is each record once: `keyrange.job(options,
    keyrange.deduplicate(by="id", within="1d"), time=keyrange.EventTime("at"))`.

    Of records of one key with the same `by`, a field of the value, a column, or several of these,
    or of all of one key where it is left out, the one that comes first counts, and those whose
    time is less than `within` from its own do not. A record without an id counts. The output has
    the records' columns, each field of a value that has fields as a column.
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    return Deduplication(names, duration_us("within", within))


def last(*, by_time: bool) -> LastByTime:
    """The function of a job whose output is the last record of each key by time, whatever the order
    in which records come, for a table with `keys="key"`: `keyrange.job(options,
    keyrange.last(by_time=True), time=keyrange.EventTime("at", late="deliver"))`.

    A record is among the output if none of its key with a later time was; of a batch at most one of
    each key is. By offsets a table with keys has the last row by itself.
    """
    if not by_time:
        text = "a job without a function has the last row by offsets, with keys="
        raise invalid_options(f"last needs by_time=True: {text}")
    return LastByTime()
