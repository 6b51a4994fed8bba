"""The state of the keys that a task works on: what was true when its batch was planned, and what it
has changed since.

What is true stands in files that a commit names (`state_files`); copies of them on this host
(`cache`) save to read them. Changes are kept in memory, sorted as runs are, and written at the
task's end to a file of its own, which is true once a commit names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.cache import Draft, StateCache, sweep_idle
from keyrange.keyed_state.due_timers import due_rows, next_timer, oldest_clock
from keyrange.keyed_state.expiry import alive, with_state
from keyrange.keyed_state.model.figures import StateFigures
from keyrange.keyed_state.model.state_runs import (
    MadeRun,
    StateRun,
    clipped,
    closed,
    to_merge,
)
from keyrange.keyed_state.run_file import RunFile
from keyrange.keyed_state.sorted_blocks import (
    Blocks,
    ChangedRows,
    Keys,
    LoadedBlocks,
    Numbers,
    all_in,
    blocks_of,
    joined,
    look_up,
    merged,
    sorted_by_hash,
)
from keyrange.keyed_state.state_files import FileBlocks, StateFileWriter
from keyrange.keyed_state.variables import KEY_HASH, StateForm
from keyrange.model.key_ranges import KeyRange, common, merge, subtract
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.timers import NO_RETRIES, Retries, SeenTimers
from keyrange.model.watermarks import PartitionClock
from keyrange.storage.directory import Directory

# From how many runs on somebody merges them who reads the key range for its owner.
_FOREIGN_RUNS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Where the state of a source is. `directory` of all sources, `cache`: of copies on this host,
    None for none. `seq`: the commit that the batch was planned from. `time_ms`: the batch's time,
    in ms since 1970, and `retries` that of timers that failed. `timers_max`: of about how many keys
    of a range timers fire, None for all. `scope`: which partitions share a state. `storage`:
    settings of the object store."""

    directory: str
    source_id: str
    seq: int
    time_ms: int
    cache: Path | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    timers_max: int | None = None
    scope: StateScope = OWN_STATE
    retries: Retries = NO_RETRIES


@dataclass(frozen=True, slots=True)
class PartitionRuns:
    """A partition of a task: the key ranges that it works on, and the runs that hold their state.
    In `shared` it works on some keys, and other tasks of the batch on others. `is_own`: whether
    these keys stay with this host. `place`: the directory of its copies. `fires`: ranges whose
    timers fire in this task, by the `clock`."""

    spans: tuple[KeyRange, ...]
    runs: tuple[StateRun, ...]
    is_own: bool
    place: str
    shared: tuple[KeyRange, ...] = ()
    fires: tuple[KeyRange, ...] = ()
    clock: PartitionClock = field(default_factory=PartitionClock)


@dataclass(frozen=True, slots=True)
class Firing:
    """Rows of the keys of a range of a partition with timers that are due at `clock_us`, in
    pieces."""

    partition: TopicPartition
    clock_us: int
    rows: Iterator[pa.RecordBatch]


class TaskStates:
    """The states that one task works with."""

    def __init__(self, form: StateForm, settings: StateSettings) -> None:
        self.form = form
        self.settings = settings
        self.figures = StateFigures()
        self._directory = Directory(settings.directory, settings.storage)
        self._ranges: dict[TopicPartition, list[_RangeState]] = {}
        self._clocks: dict[TopicPartition, PartitionClock] = {}
        self._caches: dict[str, StateCache] = {}
        # Key ranges whose timers are to fire.
        self._unfired: list[tuple[TopicPartition, KeyRange]] = []

    def begin(self, partitions: Mapping[TopicPartition, PartitionRuns]) -> None:
        """Records of these keys come, also where a portion of the partition with other keys came
        before: each key is in one range of the task, in which it is looked up and changed.
        `partitions` are those under which their state stands."""
        for partition, given in partitions.items():
            # What is shared is cut anew as long as nothing was changed there.
            known = self._ranges.get(partition, [])
            kept = [each for each in known if not each.may_be_cut]
            shared = [*given.shared, *(each.span for each in known if each.may_be_cut)]
            for spans, is_shared in ((given.spans, False), (shared, True)):
                new = subtract(merge(spans), [each.span for each in kept])
                kept += [_RangeState(self, span, given, is_shared) for span in new]
            self._ranges[partition] = sorted(kept, key=lambda each: each.span)
            self._clocks[partition] = given.clock
            self._unfired += [(partition, span) for span in given.fires]

    def clock(self, partition: TopicPartition) -> PartitionClock:
        """What late records and timers of a partition go by."""
        return self._clocks[self.settings.scope.home(partition)]

    @property
    def has_firing(self) -> bool:
        """Whether timers are to fire of key ranges that were not asked for."""
        return bool(self._unfired)

    def firing(self, waiting: Callable[[TopicPartition], Collection[int]]) -> Iterator[Firing]:
        """The key ranges whose timers fire, of those that are known and were not asked for.
        `waiting`: hashes of keys whose timers wait for a record."""
        while self._unfired:
            partition, wanted = self._unfired.pop(0)
            hashes = np.fromiter(waiting(partition), np.int64)
            for each in self._ranges[partition]:
                span = common(each.span, wanted)
                if span is not None:
                    for part, clock_us in self.clock(partition).within(span):
                        yield each.firing(partition, part, hashes, clock_us)

    def look_up(self, partition: TopicPartition, wanted: Keys) -> pa.RecordBatch:
        """The state of distinct keys, in their order: columns of the form, nulls where there is
        none. What has expired is not there any more."""
        found = [
            each.look_up(wanted.between(start, stop))
            for each, start, stop in self._cut(partition, wanted.hashes)
        ]
        batch = found[0] if len(found) == 1 else joined(found, self.form.schema)
        assert batch.num_rows == len(wanted), "a key lies in one range of a task"
        self.figures.looked_up += len(wanted)
        first = batch.column(self.form.names[0])
        self.figures.found += len(wanted) - first.null_count
        return alive(batch, self.form, self.time_ms)

    def change(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Take in the new state of distinct keys, columns of the form; nulls where it is
        cleared."""
        rows = sorted_by_hash(rows)
        hashes = np.asarray(rows.column(KEY_HASH).to_numpy())
        for each, start, stop in self._cut(partition, hashes):
            each.change(rows.slice(start, stop - start))

    def _cut(
        self, partition: TopicPartition, hashes: Numbers
    ) -> Iterator[tuple[_RangeState, int, int]]:
        """The stretch of some sorted hashes that lies in each key range."""
        for each in self._ranges[self.settings.scope.home(partition)]:
            start = int(np.searchsorted(hashes, each.span.from_hash))
            stop = int(np.searchsorted(hashes, each.span.until_hash - 1, side="right"))
            if start < stop:
                yield each, start, stop

    @property
    def time_ms(self) -> int:
        """The time of the batch, in ms since 1970."""
        return self.settings.time_ms

    @property
    def retries(self) -> Retries:
        """By what timers fire again that failed."""
        return self.settings.retries

    def timers(
        self, waiting: Mapping[TopicPartition, Collection[int]]
    ) -> Iterator[tuple[TopicPartition, SeenTimers]]:
        """When timers are due next of the key ranges that the task has worked on. `waiting`: hashes
        of keys whose timers wait for a record."""
        if self.form.has_timers:
            for partition, ranges in sorted(self._ranges.items()):
                hashes = np.fromiter(waiting.get(partition, ()), np.int64)
                for each in ranges:
                    for seen in each.timers(hashes, self._clocks[partition]):
                        yield partition, seen

    def finish(self) -> list[tuple[TopicPartition, MadeRun]]:
        """Write what was changed, and what is to be merged. Raises STATE_UNWRITABLE, STATE_GONE,
        STATE_DAMAGED, STATE_SCHEMA_CHANGED."""
        source_id = self.settings.source_id
        changes, mergers = (
            RunFile(self.form, StateFileWriter(self._directory, source_id, self.form))
            for _ in range(2)
        )
        try:
            for partition, ranges in sorted(self._ranges.items()):
                for each in ranges:
                    each.write(partition, changes, mergers)
            changed, merged_runs = changes.finish(), mergers.finish()
        except BaseException:
            changes.abandon()
            mergers.abandon()
            raise
        found = changed + merged_runs
        self.figures.written_bytes += sum(run.size_bytes for _, run in changed)
        self.figures.merged_bytes += sum(run.size_bytes for _, run in merged_runs)
        for ranges in self._ranges.values():
            for each in ranges:
                each.sweep(run for _, run in found)
        if self.settings.cache is not None:
            sweep_idle(self.settings.cache)
        return found

    def file_blocks(self, run: StateRun) -> FileBlocks:
        return FileBlocks(self._directory, run, self.form)

    def cache_at(self, place: str) -> StateCache | None:
        """The copies of a partition, which all of its key ranges have in common."""
        root = self.settings.cache
        if root is None:
            return None
        return self._caches.setdefault(place, StateCache(root / place))


class _RangeState:
    """The state of one key range of a partition."""

    def __init__(
        self, states: TaskStates, span: KeyRange, given: PartitionRuns, is_shared: bool
    ) -> None:
        self.span = span
        self._states = states
        self._is_shared = is_shared
        self._is_own = given.is_own and not self._is_shared
        # Where copies of its runs are, or would be.
        self._cache = states.cache_at(given.place)
        self._known = clipped(given.runs, span)
        self._runs: dict[StateRun, Blocks] = {}
        self._changes = ChangedRows()
        self._fired: list[KeyRange] = []

    @property
    def may_be_cut(self) -> bool:
        return self._is_shared and not self._changes

    def look_up(self, wanted: Keys) -> pa.RecordBatch:
        return look_up(self._all(), wanted, self._states.form)

    def _all(self) -> list[Blocks]:
        """What was changed, and the runs, the newest first."""
        return [*self._changes.runs(), *map(self._opened, self._known)]

    def firing(
        self, partition: TopicPartition, span: KeyRange, waiting: Numbers, clock_us: int
    ) -> Firing:
        """The timers that are due at `clock_us` in a part of the range; the oldest ones where they
        are many."""
        states, runs = self._states, self._all()
        self._fired.append(span)
        most = states.settings.timers_max
        if most is not None:
            clock_us = oldest_clock(runs, span, waiting, clock_us, most)
        rows = due_rows(runs, span, clock_us, states.retries.due_ms, states.form)
        return Firing(partition, clock_us, rows)

    def timers(self, waiting: Numbers, clock: PartitionClock) -> Iterator[SeenTimers]:
        """When the next timers of the range are due, as far as the task has seen."""
        for span in self._fired:
            for part, clock_us in clock.within(span):
                yield SeenTimers(next_timer(self._all(), part, waiting, clock_us), is_exact=True)
        if self._changes:
            changed = self._changes.runs()
            for span in subtract([self.span], self._fired):
                for part, clock_us in clock.within(span):
                    seen = next_timer(changed, part, waiting, clock_us)
                    yield SeenTimers(seen, is_exact=False)

    def change(self, rows: pa.RecordBatch) -> None:
        self._changes.add(rows)

    def write(self, partition: TopicPartition, changes: RunFile, mergers: RunFile) -> None:
        if not self._changes:
            return
        form, figures = self._states.form, self._states.figures
        rows = self._changes.joined()
        seq = self._states.settings.seq
        changes.add(partition, self.span, seq + 1, blocks_of(rows), self._draft())
        figures.changed += rows.num_rows
        figures.changed_bytes += rows.drop_columns([KEY_HASH]).nbytes
        chosen = self._chosen(rows.num_rows)
        if chosen:
            # What nothing lies below need not say that a key has no state.
            is_all = len(chosen) == len(self._known)
            runs = [LoadedBlocks(list(blocks_of(rows))), *map(self._opened, chosen)]
            from_seq = min(run.from_seq for run in chosen)
            blocks = merged(runs, form, self._left if is_all else lambda rows: rows)
            mergers.add(partition, self.span, from_seq, blocks, self._draft())

    def _chosen(self, rows: int) -> list[StateRun]:
        """The runs to be merged with what was changed. A merger says what is true of all keys of
        its range."""
        if self._is_shared:
            return []
        if self._is_own:
            return to_merge(self._known, rows)
        if len(self._known) < _FOREIGN_RUNS_MAX:
            return []
        return closed(self._known, self._known[: _FOREIGN_RUNS_MAX // 2])

    def _left(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_state(batch, self._states.form, self._states.time_ms)

    def sweep(self, made: Iterable[MadeRun]) -> None:
        if self._cache is not None and self._is_own and self._changes:
            named = [each.committed(self._states.settings.seq + 1) for each in made]
            self._cache.sweep(self.span, [*self._known, *named])

    def _draft(self) -> Draft | None:
        # Also of keys that are read for another executor, which may be on this host.
        return None if self._cache is None else self._cache.draft(self._states.form.schema)

    def _opened(self, run: StateRun) -> Blocks:
        if run not in self._runs:
            self._runs[run] = self._open(run)
        return self._runs[run]

    def _open(self, run: StateRun) -> Blocks:
        """A run from its copy on this host; what has none is copied, if the keys are this host's,
        else it is read where its keys are looked up."""
        states, cache = self._states, self._cache
        if cache is None:
            return states.file_blocks(run)
        parts = cache.parts(run)
        missing = subtract([run.span], [span for span, _ in parts])
        if missing and self._is_own:
            for span in missing:
                self._restore(cache, run, span)
            parts = cache.parts(run)
            missing = subtract([run.span], [span for span, _ in parts])
        if missing:
            # Also a host without room does without copies.
            return states.file_blocks(run)
        blocks = [block for _, part in parts for block in all_in(part)]
        if blocks and not blocks[0].schema.equals(states.form.schema, check_metadata=True):
            # What was copied for a job with other variables is read by this one's.
            states.form.check(blocks[0].schema, run.file)
        return LoadedBlocks(blocks)

    def _restore(self, cache: StateCache, run: StateRun, span: KeyRange) -> None:
        began = time.monotonic()
        [part] = clipped([run], span)
        source = self._states.file_blocks(part)
        cache.keep(part, all_in(source), source.schema)
        figures = self._states.figures
        figures.restored_bytes += source.read_bytes
        figures.restored_ms += (time.monotonic() - began) * 1000
