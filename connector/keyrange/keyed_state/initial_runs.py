"""Runs of state that somebody has, before the first batch: rows that come sorted, in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.due_timers import next_timer
from keyrange.keyed_state.expiry import with_state
from keyrange.keyed_state.initial_rows import PLACE, unfit
from keyrange.keyed_state.model.state_runs import MadeRun
from keyrange.keyed_state.sorted_blocks import LoadedBlocks, blocks_of, hashes_of
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import KEY, StateForm
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NextTimer
from keyrange.model.watermarks import BEGIN
from keyrange.storage.directory import Directory

# The commit by which imported state counts, the first of a source of its own.
SEQ: Final = 1
# A run has about as many keys, where these come together, and as many bytes: all are in memory.
RUN_ROWS: Final = 250_000
RUN_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Buckets:
    """Even key ranges of partitions; `spans_of_each` of each partition. A bucket is a number."""

    partitions: Sequence[TopicPartition]
    spans_of_each: int

    @classmethod
    def about(cls, partitions: Sequence[TopicPartition], count: int) -> Buckets:
        """About so many of all partitions together."""
        return cls(partitions, max(1, -(-count // len(partitions))))

    def __len__(self) -> int:
        return len(self.partitions) * self.spans_of_each

    @property
    def _spans(self) -> list[KeyRange]:
        return split_evenly(SPACE, self.spans_of_each)

    def numbers(self, placed: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The bucket of each row."""
        begins = np.array([span.from_hash for span in self._spans], np.int64)
        spans = np.searchsorted(begins, hashes_of(placed), side="right") - 1
        places = placed.column(PLACE).to_numpy().astype(np.int64)
        return np.asarray(places * self.spans_of_each + spans)

    def between(self, first: int, last: int) -> tuple[TopicPartition, KeyRange]:
        """What two buckets of a partition and all between them are."""
        place, at = divmod(first, self.spans_of_each)
        until_hash = self._spans[last % self.spans_of_each].until_hash
        return self.partitions[place], KeyRange(self._spans[at].from_hash, until_hash)


@dataclass(frozen=True, slots=True)
class InitialRun:
    """A run that was written, and when the first timer of its keys is due."""

    partition: TopicPartition
    run: MadeRun
    next_timer: NextTimer

    def flat(self) -> tuple[Any, ...]:
        timer = self.next_timer
        return (*self.partition, *self.run.flat(), timer.timer_us, timer.retry_ms)

    @classmethod
    def of_flat(cls, values: Iterable[Any]) -> InitialRun:
        """What `flat` has made."""
        topic, number, *run, timer_us, retry_ms = values
        made = MadeRun.of_flat(run)
        return cls(TopicPartition(topic, number), made, NextTimer(made.span, timer_us, retry_ms))


@dataclass
class InitialFile:
    """A file of runs, one for each bucket. `empty`: how many rows were left out, whose keys have no
    value, or none that has not expired by `now_ms`."""

    directory: Directory
    source_id: str
    form: StateForm
    now_ms: int
    empty: int = 0

    def write(
        self, buckets: Iterable[tuple[TopicPartition, KeyRange, pa.RecordBatch]]
    ) -> list[InitialRun]:
        """Rows of the form, by buckets, sorted by hash and key. Raises INITIAL_STATE_UNFIT where a
        key comes twice, STATE_UNWRITABLE."""
        writer = StateFileWriter(self.directory, self.source_id, self.form)
        timers: list[NextTimer] = []
        try:
            for partition, span, rows in buckets:
                _check_once(partition, rows)
                kept = with_state(rows, self.form, self.now_ms)
                self.empty += rows.num_rows - kept.num_rows
                blocks = list(blocks_of(kept))
                if writer.add(partition, span, SEQ, blocks):
                    timers.append(self._next_timer(blocks, span))
            written = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return [InitialRun(*each, timer) for each, timer in zip(written, timers, strict=True)]

    def _next_timer(self, blocks: list[pa.RecordBatch], span: KeyRange) -> NextTimer:
        if not self.form.has_timers:
            return NextTimer(span)
        return next_timer([LoadedBlocks(blocks)], span, np.array([], np.int64), BEGIN)


def _check_once(partition: TopicPartition, rows: pa.RecordBatch) -> None:
    hashes, keys = hashes_of(rows), rows.column(KEY)
    for row in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        if keys[row] == keys[row + 1]:
            why = f"a key of partition {partition} is there twice; its hash is {hashes[row]}"
            raise unfit(f"column {KEY!r}: {why}")


def by_bucket(
    batches: Iterable[pa.RecordBatch], buckets: Buckets, form: StateForm
) -> Iterator[tuple[TopicPartition, KeyRange, pa.RecordBatch]]:
    """Placed rows that come sorted by place, hash and key, as rows of runs: some neighbouring
    buckets of a partition each."""
    waiting: list[pa.RecordBatch] = []
    first = last = -1
    for batch in batches:
        numbers = buckets.numbers(batch)
        for each in np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1):
            if not len(each):
                continue
            number = int(numbers[each[0]])
            if waiting and number != last and not _goes_on(waiting, buckets, last, number):
                yield (*buckets.between(first, last), _joined(waiting, form))
                waiting = []
            first, last = (first if waiting else number), number
            waiting.append(batch.slice(int(each[0]), len(each)))
    if waiting:
        yield (*buckets.between(first, last), _joined(waiting, form))


def _goes_on(waiting: list[pa.RecordBatch], buckets: Buckets, last: int, number: int) -> bool:
    """Whether a bucket becomes one run with those before it: they are small, and neighbours."""
    is_small = sum(each.num_rows for each in waiting) < RUN_ROWS
    is_small &= sum(each.nbytes for each in waiting) < RUN_BYTES
    return is_small and number == last + 1 and number % buckets.spans_of_each > 0


def _joined(batches: list[pa.RecordBatch], form: StateForm) -> pa.RecordBatch:
    [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    # Spark hands columns on with other metadata, and none that says what may be null.
    columns = [batch.column(name) for name in form.schema.names]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, form.schema, strict=True)],
        schema=form.schema,
    )
