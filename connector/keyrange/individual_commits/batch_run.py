"""One run of a batch in the process that commits: what the calls in the user's function come to."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from keyrange.errors import error
from keyrange.individual_commits import reported_outcomes
from keyrange.individual_commits.batch_deliveries import BatchPlan
from keyrange.individual_commits.batch_failure_limit import (
    NO_RECORDS,
    Worked,
    check_failures,
    worked_in,
)
from keyrange.individual_commits.failed_timers import FAILED_TIMERS, FailedTimer
from keyrange.individual_commits.model import verdict_manifest
from keyrange.individual_commits.model.batch_results import Failure
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.individual_commits.model.verdict_manifest import Found, Left, Manifest
from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK, ReportedResults
from keyrange.individual_commits.table_output import BatchOutput
from keyrange.individual_commits.transactional_output import Release, left_of, needed, staged
from keyrange.individual_commits.verdict_files import Wanted
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.offsets import TopicPartition
from keyrange.storage.as_written import AS_WRITTEN
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.model.table_columns import quoted
from keyrange.work.model.outcome import Cause, RecordOutcome
from keyrange.work.outcome_rows import HIDDEN

_current: contextvars.ContextVar[BatchRun] = contextvars.ContextVar("keyrange_batch")


class BatchRun:
    """What is said of a batch while the user's function runs."""

    def __init__(
        self,
        batch: DataFrame,
        plan: BatchPlan,
        store: VerdictStore,
        now_ms: int,
        check: Callable[[], Snapshot | None] = lambda: None,
        driver: Driver | None = None,
        before: Worked = NO_RECORDS,
    ) -> None:
        """`check` raises COMMITS_FENCED where another driver has taken over from `driver`.
        `before`: what earlier batches of this driver came to."""
        self._check, self._driver, self._before = check, driver, before
        self.batch, self.plan = batch, plan
        self.store, self.now_ms = store, now_ms
        self.manifest: Manifest | None = None
        # What was known of the commits just before output was appended to a table of the job's.
        self.appended_at: Snapshot | None = None
        # Called when the verdict stands, just before its output is appended to such a table.
        self.when_decided: Callable[[], object] = lambda: None
        self._staged: list[Manifest] | None = None
        self._said_by: tuple[str, ReportedResults] | None = None
        self._acknowledged: list[DataFrame] = []
        self._rejected = ReportedResults()
        # Whether the job said something of the batch.
        self.said = False
        # Whether its rows are those of a verdict, and to read it is to work on it.
        self.is_worked_on = False
        # Whether its job keeps state for keys.
        self.keeps_state = False
        # Whether errors are exceptions of a function, and no texts of a column.
        self.errors_are_exceptions = True
        # What a call has failed with behind which no verdict was made.
        self.failure: BaseException | None = None

    def __enter__(self) -> BatchRun:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def check_first(self, call: str) -> None:
        if self.manifest is not None:
            raise error(
                "VERDICT_TWICE",
                f"{call} was called, and the batch has a verdict by an earlier call",
                batch=self.plan.planned.batch_id,
            )

    def check_state(self) -> None:
        """Raises STATE_LEFT_OUT where the batch's job keeps no state, and others did: before
        there is a verdict, which the next run would take, whether that keeps state or not."""
        kept = [partition for partition, runs in self.plan.runs.items() if runs]
        if kept and not self.keeps_state and not self.plan.deliveries.is_empty:
            raise error(
                "STATE_LEFT_OUT",
                "the commits of this query hold the state of keys, and this job keeps none",
                partition=min(kept),
                batch=self.plan.planned.batch_id,
            )

    def make_verdict(
        self, schema: StructType, rows: Callable[[], DataFrame], counted: bool
    ) -> DataFrame:
        """The output of the batch's verdict, which is made now or was made before.

        `schema` is that of the output, `rows` makes rows of a verdict. Raises as `VerdictStore`."""
        self.check_state()
        at = self.plan.planned
        manifest = self.store.manifest(at.batch_id, at.start, at.end)
        if manifest is None:
            attempt, path = self.store.new_attempt(at.batch_id)
            with self.store.writing():
                rows().write.parquet(path)
            files, form = self.store.files_of(at.batch_id, attempt), json.loads(schema.json())
            manifest = self._publish(attempt=attempt, files=files, schema=form, counted=counted)
        verdict_manifest.check_output(manifest, {})
        self._check_options(manifest)
        self.manifest = manifest
        self._check()
        made, self.failure = self._output(manifest), None
        return made

    def check_heard(self) -> None:
        """Raises what a call has failed with, which the job's function has caught."""
        if self.failure is not None:
            raise self.failure

    def write_verdict(self, output: BatchOutput) -> None:
        """Write the output of the batch's verdict to what it is made for. The batch's rows are what
        tasks hand on that write files (`appended_files`).

        Raises as `VerdictStore`, `SinkTable` and `TopicOutput` do.
        """
        self.said = self.is_worked_on = True
        self.check_state()
        output.prepare({}, self.plan.planned.batch_id)
        output.stop_others(self._driver)
        at = self.plan.planned
        given = (self.store, self.batch, at, self._publish, self._check_append, self._driver)
        manifest, is_made = output.manifest(*given)
        self._check_options(manifest)
        self.manifest = manifest
        self.when_decided()
        # Another driver may take over from here on, with a checkpoint and transactions of its own.
        written = self._released(manifest, output) if manifest.is_held else manifest
        output.write(self.store, written, at, is_made, self._driver)

    def _check_append(self) -> None:
        """A driver that was replaced makes no verdict: the function may be another one by now."""
        self.appended_at = self._check()

    def _released(self, manifest: Manifest, output: BatchOutput) -> Manifest:
        """What the batch writes of output that is held, its own and that of earlier ones."""
        known = self.store.released_by(manifest.batch_id)
        if known is not None:
            return known
        held = [each for each in [*self.staged(), manifest] if each.has_output]
        with self.store.writing():
            files = output.release(self.store, held, self._release(manifest))
        return self.store.release(verdict_manifest.released(manifest, files))

    def _release(self, manifest: Manifest) -> Release:
        befores, afters = (
            each.committed_offsets for each in (self.plan.states, self.judged.states)
        )
        bounds = {partition: (befores[partition], after) for partition, after in afters.items()}
        topic_ids = self.plan.planned.end.topic_ids
        return Release(manifest.batch_id, bounds, topic_ids, manifest.left)

    def keep_empty_verdict(self) -> None:
        """A batch of which nothing was said, because nothing was in it, is a link in the chain of
        staged output all the same."""
        if self.plan.commits.transactional and self.manifest is None:
            at = self.plan.planned
            found = self.store.manifest(at.batch_id, at.start, at.end)
            self.manifest = found or self._publish()

    def _publish(self, **made: Any) -> Manifest:
        """Make the verdict of which the fields of the manifest are given that are new with it."""
        at = self.plan.planned
        start, end = verdict_manifest.planned(at.start, at.end)
        manifest = Manifest(
            at.batch_id,
            **made,
            start=start,
            end=end,
            staged=tuple(each.batch_id for each in self.staged()),
            terms=self.plan.verdict_terms,
            left=self._left(),
        )
        self._check_failures(manifest)
        return self.store.publish(manifest, at.start, at.end)

    def _check_failures(self, made: Manifest) -> None:
        """Raises TOO_MANY_FAILURES or FUNCTION_FAILED. The verdict is not kept then: the next run
        calls the function again."""
        if made.counted:
            told = reported_outcomes.reported_in(
                self.store.rows_in(made, reported_outcomes.REPORTED)
            )
            self._said_by = made.attempt, told
            batch, most = worked_in(self.plan, told), self.plan.commits.failure_ratio_max
            at = self.plan.planned.batch_id
            check_failures(at, most, batch, self._before, lambda: self._failures_in(made))

    def _check_options(self, manifest: Manifest) -> None:
        """Raises BATCH_UNFINISHED where a verdict that was made before says less, or something
        else, than one that was made by the options of this run."""
        for name, is_now in self.plan.verdict_terms.items():
            was = manifest.terms.get(name, is_now)
            if was != is_now:
                raise error(
                    "BATCH_UNFINISHED",
                    f"option {name} was {was} and is {is_now}, and a batch is not finished of "
                    "which there is a verdict",
                    batch=self.plan.planned.batch_id,
                )

    def staged(self) -> list[Manifest]:
        """The earlier batches with output that was not released before this one.

        A batch that is replayed has written down which: of those before them some may be gone.
        """
        if self._staged is None:
            if not self.plan.commits.transactional:
                self._staged = []
            elif self.manifest is not None:
                self._staged = [needed(self.store, each) for each in self.manifest.staged]
            else:
                self._staged = staged(self.store, self.plan.planned, self.plan.states)
        return self._staged

    def _left(self) -> Mapping[int, Left]:
        if self.manifest is not None:
            return self.manifest.left
        found = self.staged()
        if not found:
            return {}
        before = needed(self.store, self.plan.planned.batch_id - 1)
        return left_of(found, before, self.plan.reached, self.plan.set_back)

    def _output(self, manifest: Manifest) -> DataFrame:
        names = map(quoted, StructType.fromJson(dict(manifest.schema)).names)
        if not self.plan.commits.transactional:
            return self._output_rows(manifest).select(*names)
        release = self._release(manifest)
        earlier = [each for each in self.staged() if each.has_output and release.spans(each)]
        given = [(each, self._output_rows(each)) for each in [*earlier, manifest]]
        return release.rows(given, f"{HIDDEN}.location").select(*names)

    def _output_rows(self, manifest: Manifest) -> DataFrame:
        return self.rows_of(manifest).where(reported_outcomes.is_output())

    def rows_of(self, manifest: Manifest) -> DataFrame:
        """All rows of a verdict."""
        columns = {"type": "struct", "fields": []} if manifest.is_of_job else dict(manifest.schema)
        schema = StructType.fromJson(columns).add(HIDDEN, HIDDEN_SPARK)
        reader = self.batch.sparkSession.read.schema(schema).options(**AS_WRITTEN)
        return reader.parquet(*self.store.paths(manifest))

    def check_materialized(self, frame: DataFrame, call: str) -> None:
        """Raises NOT_MATERIALIZED where a frame is made of anything but this batch's verdict."""
        if self.plan.commits.transactional:
            raise error(
                "VERDICT_TOO_LATE",
                f"{call} was called behind the verdict by which output is released",
                batch=self.plan.planned.batch_id,
            )
        found, paths = self.manifest, frame.inputFiles()
        inside = found is not None and self.store.holds(found.batch_id, found.attempt, paths)
        if not inside or not paths:
            raise error(
                "NOT_MATERIALIZED",
                f"what {call} was given is not made of what keyrange.materialize returned",
                batch=self.plan.planned.batch_id,
            )

    def acknowledge(self, frame: DataFrame) -> None:
        self.said = True
        self._acknowledged.append(frame)

    def reject(self, frame: DataFrame, error_column: str | None) -> None:
        self.said = True
        for row in reported_outcomes.rejected_in(frame, error_column):
            partition = TopicPartition(row.topic, row.partition)
            self._rejected.add(partition, RecordOutcome(row.offset, row.key_hash, Cause.REJECTED))
            self._rejected.errors.setdefault(partition, {})[row.offset] = row.error

    @cached_property
    def told(self) -> ReportedResults:
        """All that was said of the batch."""
        made = self.manifest
        rows = self.rows_of(made) if made is not None and made.files else None
        told = self._reported()
        for partition, said in self._rejected.not_done.items():
            for each in said.values():
                told.add(partition, each)
        told.errors = self._rejected.errors
        if rows is not None and made is not None and not made.counted:
            reported_outcomes.count_output(rows, told)
        is_silent = self.plan.deliveries.is_empty or self.is_worked_on
        if self.plan.wants_mentions and not is_silent:
            left = reported_outcomes.unmentioned(self.batch, self._acknowledged, rows)
            for partition, found in left.items():
                for each in found:
                    told.add(partition, each)
        return told

    def _reported(self) -> ReportedResults:
        """What the verdict says, which is read once."""
        if self._said_by is not None and self.manifest is not None:
            attempt, told = self._said_by
            if attempt == self.manifest.attempt:
                return told
        return reported_outcomes.reported_in(self.reported(reported_outcomes.REPORTED))

    def reported(self, wanted: Wanted, offsets: Collection[int] | None = None) -> Found:
        """What the verdict says besides output; with `offsets` of records at these."""
        if self.manifest is None:
            return {member: [] for member in wanted}
        return self.store.rows_in(self.manifest, wanted, offsets)

    @cached_property
    def failed_timers(self) -> list[FailedTimer]:
        """The timers for which the function raised; none before there is a verdict."""
        if not self.plan.clocks:
            return []
        return [FailedTimer(*each) for each in self.reported(FAILED_TIMERS)["failed_timer"]]

    def failures(self) -> list[Failure]:
        """The records that failed. Raises VERDICT_DAMAGED."""
        found = [] if self.manifest is None else self._failures_in(self.manifest)
        known = {(each.partition, each.offset) for each in found}
        # What the job said by DataFrame, or did not say, is in no file.
        for partition, said in self.told.not_done.items():
            errors = self._rejected.errors.get(partition, {})
            found += [
                Failure(partition, at, each.cause, errors.get(at, ""), is_exception=False)
                for at, each in said.items()
                if each.cause.was_worked_on and (partition, at) not in known
            ]
        return found

    def _failures_in(self, manifest: Manifest) -> list[Failure]:
        found = self.store.failures_in(manifest)
        return [replace(each, is_exception=self.errors_are_exceptions) for each in found]

    @cached_property
    def judged(self) -> Outcome:
        """The states after the batch, and what is given up. Raises IMPLAUSIBLE_VERDICT."""
        return self.plan.judge(self.told, self.now_ms)

    def moves_committed(self) -> bool:
        """Whether committed offsets move with a batch of which nothing is said."""
        judged = self.plan.judge(ReportedResults(), self.now_ms)
        return bool((judged.states.committed > self.plan.deliveries.states.committed).any())


def running() -> BatchRun | None:
    """The batch whose function runs."""
    return _current.get(None)


def current(call: str) -> BatchRun:
    """The batch whose function runs. Raises OUTSIDE_EACH_BATCH."""
    found = running()
    if found is None:
        raise error("OUTSIDE_EACH_BATCH", f"{call} was called where no batch runs")
    return found
