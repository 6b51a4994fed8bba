"""How far time has come after a batch, and what a process that starts later reads of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange.individual_commits.batch_deliveries import batch_time
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot, known_at
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    fresh,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.table.commit_schema import commits_of, rows_of
from keyrange.individual_commits.times_after_batch import times_after
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER, UNKNOWN, NextTimer, SeenTimers
from keyrange.model.watermarks import (
    BEGIN,
    STARTS_MAX,
    BatchStart,
    PartitionClock,
    PartitionTime,
    Watermark,
    starts_after,
)
from keyrange.options.commits import CommitOptions
from keyrange.ranges.model.range_plan import even_ranges
from keyrange.work.job_time import EventTime, JobTime, ProcessingTime, job_time

AT = TopicPartition("t", 0)
DUE = PartitionTime(None, (NextTimer(SPACE, 7),))
BY_CLOCK = job_time(ProcessingTime())
BY_EVENTS = job_time(EventTime(delay="1ms"))
WITH_IDLE = job_time(EventTime(delay="1ms", idle_after="1ms"))
LOW, HIGH = even_ranges(2)


def commit(seq: int, times: Any, whole: bool = False) -> Commit:
    states = {AT: fresh("id", seq)}
    return Commit(
        seq,
        CommitKind.BATCH,
        *("g", "s", "q", "r", seq - 1, 1),
        states=states,
        times=times,
        whole=whole,
    )


def running(
    known: Snapshot, rows: dict[str, list[tuple[Any, ...]]], begins: dict[Any, int] | None = None
) -> Any:
    """A batch that was planned from `known`, whose tasks have said `rows`, and that `begins` to
    read some partitions."""
    planned = SimpleNamespace(
        end=Checkpoint({AT: 1}, {"t": "id"}, initial=begins or {}),
        mark=CommitMark(source_id="s", seq=known.seq, time_ms=9),
    )
    plan = SimpleNamespace(
        planned=planned,
        states=known.states,
        times=dict(known.times),
        clocks={AT: PartitionClock(9_000)},
        commits=CommitOptions(),
        deliveries=SimpleNamespace(states=known.states, busy=np.array([True])),
    )
    return SimpleNamespace(plan=plan, manifest=SimpleNamespace(rows=rows))


def looked(span: Any = SPACE, timer_us: int = NEVER) -> tuple[Any, ...]:
    """What a task says that has looked at all timers of a range."""
    return (*AT, *SeenTimers(NextTimer(span, timer_us), is_exact=True).flat())


def read(*commits: Commit) -> Snapshot:
    table = pa.concat_tables([rows_of(each) for each in commits])
    return known_at(commits_of(table, "s"), commits[-1].seq)


def after(known: Snapshot, rows: dict[str, list[tuple[Any, ...]]], time: JobTime) -> Any:
    return times_after(running(known, rows), known, known.states, time)


def test_timers_that_have_fired_are_due_no_more() -> None:
    """Also where nothing else is known of the partition's time: it would have batches for ever."""
    before = commit(1, {AT: DUE})
    known = read(before)
    assert known.times == {AT: DUE}
    times = after(known, {"timers": [looked()]}, BY_CLOCK)
    found = read(before, commit(2, times))
    assert found.time_of(AT, "id") == PartitionTime()
    assert after(found, {}, BY_CLOCK).get(AT, PartitionTime()) == PartitionTime()


def test_where_a_log_begins_anew_all_timers_are_looked_through() -> None:
    """One may have waited for a record that is gone, and no task has said when it is due."""
    known = read(commit(1, {AT: DUE}))
    told = {"timers": [looked()]}
    found = times_after(running(known, told, {AT: 0}), known, known.states, BY_CLOCK)
    assert found[AT].timers == UNKNOWN
    new = read(commit(1, {}))
    assert times_after(running(new, told, {AT: 0}), new, new.states, BY_CLOCK) == {}


def test_what_somebody_has_set_since_the_plan_is_looked_through() -> None:
    at_plan = read(commit(1, {AT: PartitionTime(Watermark(5, 1), ())}))
    now = read(commit(1, {}), commit(2, {AT: PartitionTime(None, UNKNOWN)}))
    batch = running(at_plan, {"timers": [looked()], "event_time": [(*AT, 99, 0)]})
    found = times_after(batch, now, now.states, BY_EVENTS)
    assert found == {AT: PartitionTime(None, UNKNOWN)}


def test_the_greatest_time_of_all_tasks_counts() -> None:
    known = read(commit(1, {AT: PartitionTime(Watermark(5, 1), (), late=4)}))
    rows = {"event_time": [(*AT, 20_000, 2), (*AT, 12_000, 1)]}
    times = after(known, rows, BY_EVENTS)
    assert times[AT].watermark == Watermark(19_000, 9)
    assert times[AT].late == 7, "all that were late until now"
    late = after(known, {"event_time": [(*AT, 1_000, 0)]}, BY_EVENTS)
    assert late[AT].watermark == Watermark(9_000, 9), "it does not go back behind the clock"


def test_a_partition_with_unread_records_is_not_idle() -> None:
    """It was read up to offset 1, long before."""
    known = read(commit(1, {AT: PartitionTime(Watermark(5_000, 1), ())}))
    end = Checkpoint({AT: 1}, {"t": "id"})
    told = (100, 100, WITH_IDLE)
    for log_end, clock_us in ((1, 5_000 + 98_000), (2, 5_000)):
        found = batch_time(known, end, {AT: log_end}, *told)
        assert found.clocks[AT] == PartitionClock(clock_us)
    # A log that begins anew is read from there.
    assert (
        batch_time(known, replace(end, initial={AT: 0}), {AT: 1}, *told).clocks[AT].at_us == 5_000
    )


def test_a_partition_that_was_read_by_a_clock_that_was_far_ahead_is_idle_as_others_are() -> None:
    """Else a day behind a clock that was a day ahead, with all that wait for it."""
    day_ms = 86_400_000
    timers = (NextTimer(LOW, 50_000),)
    known = read(commit(1, {AT: PartitionTime(Watermark(5_000, day_ms), timers)}))
    end, told = Checkpoint({AT: 1}, {"t": "id"}), (9, 9)
    found = batch_time(known, end, {}, *told, WITH_IDLE)
    assert found.fires == {AT: (LOW,)}, "there is a batch that takes note of it"
    assert found.clocks[AT] == PartitionClock(5_000)
    assert not batch_time(known, end, {}, *told, BY_EVENTS).fires
    looked_at = {"timers": [looked(LOW, 50_000)]}
    batch = running(known, looked_at)
    batch.plan.clocks = found.clocks
    times = times_after(batch, known, known.states, WITH_IDLE)
    assert times == {AT: PartitionTime(Watermark(5_000, 9), timers)}
    now = read(commit(1, {}), commit(2, times))
    assert not batch_time(now, end, {}, 10, 10, WITH_IDLE).fires
    assert batch_time(now, end, {}, 100, 100, WITH_IDLE).fires == {AT: (LOW,)}


def test_what_an_idle_partition_fired_by_is_its_watermark() -> None:
    known = read(commit(1, {AT: PartitionTime(Watermark(5_000, 1), ())}))
    assert after(known, {}, WITH_IDLE)[AT].watermark == Watermark(9_000, 8)
    assert after(known, {}, BY_EVENTS)[AT].watermark == Watermark(5_000, 1)
    batch = running(known, {})
    batch.plan.deliveries.busy[:] = False
    assert times_after(batch, known, known.states, WITH_IDLE)[AT].watermark == Watermark(5_000, 1)


def lagging(position: int, low: int, high: int) -> PartitionState:
    pieces = (KeyRangeState(LOW, low), KeyRangeState(HIGH, high))
    return PartitionState("id", position, pieces)


def test_a_key_range_that_lags_goes_by_the_clock_of_the_batch_that_it_lags_behind() -> None:
    """Else its records that were handed back would be late now, and its windows written without
    them."""
    known = read(commit(1, {AT: PartitionTime(Watermark(5_000, 1), ())}))
    batch = running(known, {"event_time": [(*AT, 90_000, 0)]})
    states = columns_of({AT: lagging(8, low=3, high=8)})
    times = times_after(batch, known, states, BY_EVENTS)
    assert times[AT] == PartitionTime(Watermark(89_000, 9), (), (BatchStart(1, 9_000),))
    timers = (NextTimer(SPACE, 20_000),)
    written = replace(
        commit(2, {AT: replace(times[AT], timers=timers)}), states={AT: lagging(8, 3, 8)}
    )
    now = read(commit(1, {}), written)
    end = Checkpoint({AT: 20}, {"t": "id"})
    found = batch_time(now, end, {}, 10, 10, BY_EVENTS)
    assert found.clocks[AT] == PartitionClock(89_000, ((LOW, 9_000),))
    assert found.fires == {AT: (HIGH,)}, "the timers of the other one wait for what it has to read"
    by_clock = batch_time(now, end, {}, 99, 99, BY_CLOCK)
    assert by_clock.fires == {AT: (SPACE,)}, "no record moves the time of batches"


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 12), st.integers(0, 12)),
        min_size=1,
        max_size=200,
    )
)
def test_the_clock_of_a_key_range_never_goes_back(
    steps: list[tuple[int, int, int, int]],
) -> None:
    """And it is that of the last batch that began where the range stands or before, as long as
    few batches lie between."""
    time, clock, position, scanned, last = PartitionTime(), BEGIN, 0, [0, 0], [BEGIN, BEGIN]
    passed: list[tuple[int, int]] = []
    for size, faster, *read_by in steps:
        passed = [each for each in passed if each[0] < position] + [(position, clock)]
        end = position + size
        scanned = [min(at + more, end) for at, more in zip(scanned, read_by, strict=True)]
        behind = [at for at in scanned if at < end]
        time = PartitionTime(None, (), starts_after(time, position, clock, behind))
        assert not behind or len(time.starts) <= STARTS_MAX + 1
        position, clock = end, max(clock, 0) + faster
        for number, at in enumerate(scanned):
            now = time.clock_before(at) if at < end else clock
            exact = max(each for each in passed if each[0] <= at)[1] if at < end else clock
            assert last[number] <= now <= exact
            assert now == exact or len(passed) > STARTS_MAX
            last[number] = now


_US = st.integers(-(10**15), 10**15)
_WAKES = st.none() | _US
_TIMES = st.builds(
    lambda watermark, wakes, starts: PartitionTime(
        watermark and Watermark(*watermark),
        tuple(
            NextTimer(
                span,
                NEVER if timer is None else timer,
                NEVER if retry is None else retry,
            )
            for span, (timer, retry) in zip(even_ranges(max(len(wakes), 1)), wakes, strict=False)
        ),
        tuple(BatchStart(*each) for each in starts),
    ),
    st.none() | st.tuples(_US, st.integers(0, 10**12)),
    st.lists(st.tuples(_WAKES, _WAKES), max_size=4),
    st.lists(st.tuples(st.integers(0, 99), st.just(BEGIN) | _US), max_size=3),
)


@given(st.lists(st.none() | _TIMES, min_size=1, max_size=4))
def test_what_commits_say_of_time_comes_back(said: list[PartitionTime | None]) -> None:
    commits = [
        commit(seq, {} if each is None else {AT: each}) for seq, each in enumerate(said, start=1)
    ]
    last = [each for each in said if each is not None][-1:]
    assert read(*commits).times == ({AT: last[0]} if last else {})
