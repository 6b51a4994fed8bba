"""The state of keys made once more from the log: a function on the records that are done between
two commits, in their order, above the state at the first of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.individual_commits.model.batch_results import Failure, failure_kinds, kinds_text
from keyrange.individual_commits.model.commit import CommitKind, Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.keyed_state_rows import Runs, StoredState
from keyrange.keyed_state.model.state_runs import files_of
from keyrange.keyed_state.variables import StateForm
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.storage.directory import Directory
from keyrange.values.reading import ValueReader
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.state_in_memory import FoldedState, told_in
from keyrange.work.task_context import Job
from keyrange.work.task_run import work_of

_NO_OUTPUT: Final = pa.schema([])


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """What lies between two commits: where each partition stood at the first, or at its own first
    one behind it, and stands at the last, how many dead letters its batches have given up, and the
    runs of the state that it begins with."""

    from_seq: int
    before: dict[TopicPartition, PartitionState]
    after: dict[TopicPartition, PartitionState]
    dead: int
    base: Runs = field(default_factory=dict)

    @property
    def spans(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets that are to be read."""
        found = {
            each: OffsetRange(self.before[each].committed, state.position)
            for each, state in self.after.items()
            if self.before[each].committed < state.position
        }
        return dict(sorted(found.items()))


def plan_fold(
    commits: Commits, known: Snapshot, stored: StoredState, from_seq: int | None
) -> FoldPlan:
    """From a commit on, or from the first one whose state is kept. Raises INVALID_OPTIONS where
    nobody can tell what should have come of it."""
    timed = [each.name for each in stored.form.variables if each.ttl_ms]
    if timed:
        raise invalid_options(
            f"--function: when {timed[0]} expires depends on when batches ran, which no log tells"
        )
    if stored.form.has_timers:
        raise invalid_options(
            "--function: which records were late, and when timers fired, depends on when batches "
            "ran, which no log tells"
        )
    first = _first_kept(commits, known, stored) if from_seq is None else from_seq
    then, dead = commits.table.known(first), 0
    before = {each: then.states[each] for each in stored.runs if each in then.states}
    base = {each: then.runs.get(each, ()) for each in before}
    for commit in commits.table.history(first + 1, known.seq + 1):
        if commit.kind is CommitKind.RESET:
            raise invalid_options(
                f"commit {commit.seq} has set records back by hand, so the function saw them "
                f"twice: give --from {commit.seq} or later"
            )
        dead += sum(each.dead for each in commit.counts.values())
        # Where a query begins with a partition its first batch alone knows.
        for each in stored.runs.keys() & commit.states.keys() - before.keys():
            before[each], base[each] = commit.states[each], commit.runs.get(each, ())
    for partition, was in before.items():
        if was.topic_id != known.states[partition].topic_id:
            raise invalid_options(
                f"{partition.topic} was created anew since commit {first}: give a later --from"
            )
    return FoldPlan(first, before, {each: known.states[each] for each in before}, dead, base)


def _first_kept(commits: Commits, known: Snapshot, stored: StoredState) -> int:
    """The first commit whose state is kept. There may be a million before it, which nobody reads:
    by and large what is kept at one is kept at all behind it."""
    size_of = cache(Directory(stored.directory, stored.storage).size)

    def is_kept(seq: int) -> bool:
        files = files_of(commits.table.known(seq).runs)
        return bool(files) and all(size_of(each) is not None for each in files)

    return 1 + bisect_left(range(1, known.seq), True, key=is_kept)


class StateFold:
    """A function on top of the state at a plan's first commit."""

    def __init__(
        self,
        plan: FoldPlan,
        base: StoredState,
        form: StateForm,
        function: Callable[..., Any],
        mode: str,
    ) -> None:
        """`base`: the state at the plan's first commit; `form`: of the last one."""
        self._plan = plan
        self.states = FoldedState(form, base.blocks)
        works = {partition: TaskPartition((SPACE,)) for partition in plan.after}
        own = _without_output(function, mode)
        self._job = Job(works, WorkSettings(), mode, _NO_OUTPUT, own)
        self.records = 0
        # How many were not given to the function, as an earlier one of their key had failed.
        self._waited = 0
        # What the function has raised: partition, offset and text.
        self.failures: list[tuple[TopicPartition, int, str]] = []

    def run(self, batches: Iterable[pa.RecordBatch], values: ValueReader | None) -> None:
        """Fold batches of one partition each, in the order of offsets, with column keyHash;
        `values` reads what the function is given. Raises INVALID_OPTIONS where the function fails
        with every record."""
        work = work_of(replace(self._job, values=values), self.states)
        for rows in work(self._done(batches)):
            for told in told_in(rows, "outcome"):
                if Cause(told["cause"]).was_worked_on:
                    partition = TopicPartition(told["topic"], told["partition"])
                    self.failures.append((partition, told["offset"], told["error"]))
                else:
                    self._waited += 1
        if self.failures and self.records == len(self.failures) + self._waited:
            # It tells of the function as it is called here, and not of the state.
            kinds = failure_kinds(
                Failure(at, offset, Cause.REJECTED, text or "")
                for at, offset, text in self.failures
            )
            raise invalid_options(
                f"--function failed with all {len(self.failures):,} records that it was called "
                f"with: {kinds_text(kinds)}. A job's function gets keys and values as the "
                "job's options say: give those that the job has, such as --option "
                "valueFormat=..., valueSchema=..., keyFormat=... and schemaRegistry.url=..., "
                "and --mode as of the job"
            )

    def _done(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            topic, number = (batch.column(name)[0].as_py() for name in ("topic", "partition"))
            at = TopicPartition(topic, number)
            found = done_between(batch, self._plan.before[at], self._plan.after[at])
            self.records += found.num_rows
            if found.num_rows:
                yield found


def _without_output(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    def of_record(record: Any, state: Any) -> None:
        function(record, state)

    def of_batch(records: Any, groups: Any, state: Any) -> Any:
        return (None, *tuple(function(records, groups, state))[1:])

    return of_record if mode == "record" else of_batch


def done_between(
    batch: pa.RecordBatch, before: PartitionState, after: PartitionState
) -> pa.RecordBatch:
    """The records of a partition that have a key and are done `after` and not `before`; the batch
    has columns offset and keyHash."""
    chosen = _done(after, batch) & ~_done(before, batch)
    chosen &= batch.column("key").is_valid().to_numpy(zero_copy_only=False)
    return batch.filter(pa.array(chosen))


def _done(state: PartitionState, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
    offsets, hashes = (batch.column(name).to_numpy() for name in ("offset", "keyHash"))
    begins = np.array([piece.span.from_hash for piece in state.pieces], np.int64)
    scanned = np.array([piece.scanned for piece in state.pieces], np.int64)
    pending = np.array([record.offset for record in state.pending], np.int64)
    at = np.searchsorted(begins, hashes, side="right") - 1
    found: Any = (offsets < scanned[at]) & ~np.isin(offsets, pending)
    return found  # type: ignore[no-any-return]
