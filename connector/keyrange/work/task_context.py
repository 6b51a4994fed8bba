"""What one task of a batch has of its job, and what it has come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from keyrange.errors import error
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause
from keyrange.work.model.task_results import TaskPartition, TaskState, WorkSettings
from keyrange.work.outcome_rows import (
    OutcomeRows,
    bounded,
    done_rows,
    handed_back_rows,
    member_rows,
    output_rows,
)
from keyrange.work.record_runs import Numbers, OrderCheck, RecordRun, lower_ends
from keyrange.work.reported_offsets import Blocks


class FunctionRunner(Protocol):
    """How functions are called; `RecordTimer` does it, tests have clocks of their own."""

    def now_ms(self) -> float: ...

    def call(
        self, function: Callable[[Any], Any], argument: Any, timeout_ms: float | None
    ) -> Any: ...


@dataclass(frozen=True)
class JsonValues:
    """Values that are JSON objects: the columns that they are read into, and what comes of a record
    with a bad one: `null`, `fail` or `deadLetter`."""

    schema: pa.Schema
    bad: str


@dataclass(frozen=True)
class Job:
    """What every task of a batch is given.

    `mode`: record, arrow, json, where `values` are read and no function is called, or column, where
    the verdict is in `error_column` already. `schema` is
    that of the output. `keeps_offsets`: output rows say which record they are of. `mentions`: what
    the function was given is written down. `is_whole`: the batch is done as a whole, and fails
    with any of its records.
    """

    works: Mapping[TopicPartition, TaskPartition]
    terms: WorkSettings
    mode: str
    schema: pa.Schema
    function: Callable[[Any], Any] | None = None
    error_column: str | None = None
    keeps_offsets: bool = False
    mentions: bool = False
    nulls_first: bool = False
    is_whole: bool = False
    values: JsonValues | None = None

    @property
    def needs_order(self) -> bool:
        """Whether a record may fail and hold back those behind it, or all are written down. A job
        that says later by DataFrame what is done may explode, join or sort before."""
        if self.is_whole:
            return False
        return self.mode != "column" or self.error_column is not None or self.mentions


class Task:
    """What one task has of its job, and what it has come to."""

    def __init__(self, job: Job, hands: FunctionRunner) -> None:
        self.job = job
        self.hands = hands
        self.state = TaskState(job.terms)
        self.bounds: dict[TopicPartition, Numbers] = {}
        self.order = OrderCheck(self.bounds)
        self.blocks = Blocks()
        self.done: dict[TopicPartition, int] = {}
        self.begin(job.works)

    def begin(self, works: Mapping[TopicPartition, TaskPartition]) -> None:
        """Records of these partitions come; a task that asks what it reads learns it bit by bit."""
        self.state.begin(works)
        self.bounds.update({p: lower_ends(work.cells) for p, work in works.items()})

    def hand_back(self, stretch: RecordRun, rows: Any = slice(None)) -> None:
        for cell, offset in stretch.cells(self.bounds[stretch.partition], rows):
            self.state.hand_back_cell(stretch.partition, cell, offset)

    def fail(
        self,
        stretch: RecordRun,
        at: int,
        cause: Cause,
        text: str,
        not_done: OutcomeRows,
        keeps_record: bool = True,
    ) -> bool:
        """A row is not done; whether its key has to wait for it. Raises RECORD_FAILED."""
        if self.job.is_whole:
            at_offset = int(stretch.offsets[at])
            raise error(
                "RECORD_FAILED", bounded(text), partition=stretch.partition, offset=at_offset
            )
        partition, offset = stretch.partition, int(stretch.offsets[at])
        key_hash, has_key = int(stretch.key_hashes[at]), stretch.row_has_key(at)
        last = cause.is_final or self.state.is_last_delivery(partition, offset)
        waits = self.state.failed(partition, key_hash, has_key and not last)
        not_done.add(at, cause, bounded(text), last and keeps_record)
        return waits

    def free_rows(self, stretch: RecordRun, rows: Numbers, not_done: OutcomeRows) -> Numbers:
        """The rows whose key does not wait; the others are held back."""
        blocked = self.state.blocked(stretch.partition)
        if not blocked:
            return rows
        held = np.isin(stretch.key_hashes[rows], np.fromiter(blocked, np.int64, len(blocked)))
        if stretch.has_key is not None:
            held &= stretch.has_key[rows]
        for at in rows[held].tolist():
            not_done.add(at, Cause.HELD_BACK)
        return rows[~held]

    def count(self, partition: TopicPartition, records: int) -> None:
        self.done[partition] = self.done.get(partition, 0) + records

    def output(self, output: pa.RecordBatch, stretch: RecordRun, of: pa.Array) -> pa.RecordBatch:
        """Rows of output; `of` says of which row of the stretch each is."""
        if not self.job.keeps_offsets:
            return output_rows(output, None)
        names = ("topic", "partition", "offset")
        return output_rows(output, {name: stretch.batch.column(name).take(of) for name in names})

    def last_rows(self) -> Iterator[pa.StructArray]:
        """What a task says at its end."""
        yield handed_back_rows(self.state.handed_back, self.state.cells)
        yield done_rows(self.done)
        yield member_rows(
            "mentioned",
            [
                {**partition._asdict(), "block": number, "bits": bits}
                for partition, number, bits in self.blocks
            ],
        )
