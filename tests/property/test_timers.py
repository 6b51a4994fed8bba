"""Timers of keys: which are due, and when the next one is, by a dictionary; what a commit says of
that by points; event time that never goes back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange import ValueState
from keyrange.keyed_state.due_timers import due_rows, next_timer, oldest_clock, without_times
from keyrange.keyed_state.sorted_blocks import LoadedBlocks, sorted_by_hash
from keyrange.keyed_state.state_handles import instant
from keyrange.keyed_state.variables import KEY, StateForm, timer_variables, variables_of
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.timers import NEVER, NextTimer, SeenTimers, after_batch, earliest
from keyrange.model.watermarks import BEGIN, Watermark, clock_us, moved

_FORM = StateForm((*variables_of({"n": ValueState("n long")}), *timer_variables()))
_UNTIMED = StateForm(variables_of({"n": ValueState("n long")}))
# Few of them: keys share hashes.
_HASHES = (0, 1, 5, HASH_MAX)
_KEYS = [(key_hash, key) for key_hash in _HASHES for key in (b"a", b"b")]
_TIMES = st.lists(st.integers(-3, 8), max_size=2, unique=True).map(sorted)
# What a run says of a key: whether it is cleared, its timers, and when one that failed comes again.
_SAYS = st.tuples(st.booleans(), _TIMES, st.none() | st.integers(-2, 8))
_ROWS = st.lists(st.none() | _SAYS, min_size=len(_KEYS), max_size=len(_KEYS)).map(
    lambda says: {key: each for key, each in zip(_KEYS, says, strict=True) if each is not None}
)
# Its rows, whether they were written by a job with time, and how many stand in a block.
_RUN = st.tuples(_ROWS, st.sampled_from([True, True, True, False]), st.integers(1, 5))
_RUNS = st.lists(_RUN, min_size=1, max_size=4)


def _said(says: tuple[bool, list[int], int | None], is_timed: bool) -> tuple[Any, Any]:
    is_cleared, timers, retry = says
    if is_cleared or not is_timed or not timers:
        return None, None
    return timers, retry


def _run(rows: dict[tuple[int, bytes], Any], is_timed: bool, block_rows: int) -> LoadedBlocks:
    """A run, in blocks of a few rows, that was written with time or before there was any."""
    made = []
    for (key_hash, key), says in rows.items():
        timers, retry = _said(says, is_timed)
        row = {"key_hash": key_hash, KEY: key, "n": None if says[0] else {"n": 1}}
        row["timers"] = timers and list(map(instant, timers))
        told = {"deliveries": 1, "due_ms": retry, "clock_us": 0}
        row["timer_retry"] = None if retry is None else told
        made.append(row)
    names = _FORM.schema.names
    columns = [
        pa.array([row[name if name != names[0] else "key_hash"] for row in made], field.type)
        for name, field in zip(names, _FORM.schema, strict=True)
    ]
    batch = sorted_by_hash(pa.RecordBatch.from_arrays(columns, schema=_FORM.schema))
    if not is_timed:
        batch = batch.select(_UNTIMED.schema.names)
    count = batch.num_rows
    blocks = [batch.slice(at, block_rows) for at in range(0, count, block_rows)]
    return LoadedBlocks(blocks)


def _truth(runs: Sequence[Any]) -> dict[tuple[int, bytes], tuple[int, int]]:
    """Of each key when its first timer is due, and when one that failed comes again."""
    found: dict[tuple[int, bytes], tuple[int, int]] = {}
    for rows, is_timed, _ in runs:
        for key, says in rows.items():
            timers, retry = _said(says, is_timed)
            wakes = (NEVER, NEVER)
            if retry is not None:
                wakes = (NEVER, retry)
            elif timers:
                wakes = (timers[0], NEVER)
            found.setdefault(key, wakes)
    return found


_SPANS = st.just(SPACE) | st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True).map(
    lambda ends: KeyRange(min(ends), HASH_MAX + 1 if max(ends) == 7 else max(ends))
)


@given(_RUNS, _SPANS, st.integers(-3, 9))
def test_due_rows_are_those_of_the_newest_rows(
    runs: list[Any], span: KeyRange, now_ms: int
) -> None:
    """At each time: a timer is due at its own, and not right before it."""
    made = [_run(*each) for each in runs]
    for clock in range(-4, 10):
        found = [
            (row["hash"], row["key"])
            for batch in due_rows(made, span, clock, now_ms, _FORM)
            for row in _named(batch)
        ]
        wanted = [
            key
            for key, (timer, retry) in _truth(runs).items()
            if span.contains(key[0]) and (timer <= clock or retry <= now_ms)
        ]
        assert sorted(found) == sorted(wanted)


def _named(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [
        {"hash": key_hash, "key": key}
        for key_hash, key in zip(
            batch.column(0).to_pylist(), batch.column(KEY).to_pylist(), strict=True
        )
    ]


@given(_RUNS, _SPANS, st.sets(st.sampled_from(_HASHES)), st.integers(-4, 13))
def test_the_next_timer_is_the_least_of_keys_that_do_not_wait(
    runs: list[Any], span: KeyRange, waiting: set[int], clock: int
) -> None:
    made = [_run(*each) for each in runs]
    found = next_timer(made, span, np.array(sorted(waiting), np.int64), clock)
    inside = [(key, *each) for key, each in _truth(runs).items() if span.contains(key[0])]
    timers = [
        timer for (key_hash, _), timer, _ in inside if not (timer <= clock and key_hash in waiting)
    ]
    assert found == NextTimer(
        span,
        min(timers, default=NEVER),
        min((retry for _, _, retry in inside), default=NEVER),
    )


@given(_RUNS, _SPANS, st.sets(st.sampled_from(_HASHES)), st.integers(-4, 13), st.integers(1, 5))
def test_of_many_timers_the_oldest_fire_of_keys_that_do_not_wait(
    runs: list[Any], span: KeyRange, waiting: set[int], clock: int, most: int
) -> None:
    made = [_run(*each) for each in runs]
    due = sorted(
        timer
        for (key_hash, _), (timer, _) in _truth(runs).items()
        if span.contains(key_hash) and timer <= clock and key_hash not in waiting
    )
    found = oldest_clock(made, span, np.array(sorted(waiting), np.int64), clock, most)
    assert found == (clock if len(due) <= most else due[most - 1])


@given(st.lists(_TIMES, max_size=5), st.data())
def test_times_are_left_out_of_lists(lists: list[list[int]], data: st.DataObject) -> None:
    count = sum(map(len, lists))
    left_out = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    kind = pa.list_(pa.int64())
    found = without_times(
        pa.array([each or None for each in lists], kind), np.array(left_out, bool)
    )
    flags = iter(left_out)
    wanted = [[each for each in times if not next(flags)] or None for times in lists]
    assert found.to_pylist() == wanted


_ENDS = st.lists(st.integers(0, 9), min_size=2, max_size=2, unique=True).map(sorted)
_WAKES = st.tuples(*[st.sampled_from([1, 2, 3, NEVER])] * 2)
_SEEN = st.lists(
    st.tuples(_ENDS, _WAKES, st.booleans()).map(
        lambda each: SeenTimers(NextTimer(KeyRange(*each[0]), *each[1]), each[2])
    ),
    max_size=4,
)


def _at(timers: Sequence[NextTimer], point: int) -> tuple[int, int]:
    return earliest(each for each in timers if each.span.contains(point))


@given(st.lists(_SEEN, max_size=4))
def test_what_a_commit_says_is_what_was_said_of_each_key(batches: list[list[SeenTimers]]) -> None:
    """What a task says of all keys counts alone; else the earlier of what was known and is said.
    Tasks of one batch have different keys: the later of two that share some is as of a batch
    behind."""
    known: tuple[NextTimer, ...] = ()
    wanted = dict.fromkeys(range(10), (NEVER, NEVER))
    for seen in batches:
        for each in sorted(seen, key=lambda each: each.next_timer.span):
            new = (each.next_timer.timer_us, each.next_timer.retry_ms)
            for point in filter(each.next_timer.span.contains, wanted):
                was = (NEVER, NEVER) if each.is_exact else wanted[point]
                wanted[point] = (min(was[0], new[0]), min(was[1], new[1]))
        known = after_batch(known, seen)
        assert {point: _at(known, point) for point in wanted} == wanted
        assert list(known) == sorted(known)
        for one, next_one in pairwise(known):
            assert one.span.until_hash <= next_one.span.from_hash
        assert all(NextTimer.of_flat(each.flat()) == each for each in known)
    assert all(SeenTimers.of_flat(each.flat()) == each for seen in batches for each in seen)


_US = st.integers(-(10**13), 10**13)
# What was read, how much time passed, and by how much another partition is slower.
_STEPS = st.lists(
    st.tuples(st.none() | _US, st.integers(0, 10**10), st.just(0) | st.integers(0, 10**13)),
    max_size=8,
)


@given(_STEPS, st.none() | st.integers(0, 10**12), st.integers(0, 10**12))
def test_event_time_never_goes_back(
    steps: list[tuple[int | None, int, int]], idle_us: int | None, delay_us: int
) -> None:
    watermark: Watermark | None = None
    now_ms, last, greatest = 0, BEGIN, None
    for seen_us, passed_ms, slower_us in steps:
        now_ms += passed_ms
        clock = clock_us(watermark, idle_us, now_ms)
        assert clock >= last
        shared = max(clock - slower_us, BEGIN)
        before, watermark = (
            watermark,
            moved(watermark, shared, seen_us, delay_us, idle_us, now_ms),
        )
        if before is not None:
            assert watermark is not None
            assert watermark.at_us >= before.at_us
            clock = watermark.at_us
        if seen_us is not None:
            greatest = seen_us if greatest is None else max(greatest, seen_us)
        if idle_us is None and greatest is not None:
            assert watermark is not None
            assert watermark.at_us == greatest - delay_us
        last = clock
    assert (watermark is None) == (greatest is None)
