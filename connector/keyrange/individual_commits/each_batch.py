"""`keyrange.each_batch`: what a job gives to foreachBatch around its own function.

It is pickled to where foreachBatch runs, which under Spark Connect is a process of the server, so
it holds no session and opens nothing before the first batch.
"""

from __future__ import annotations

import functools
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from keyrange.errors import KeyrangeError, error, invalid_options
from keyrange.individual_commits import given_up_records, last_batch_results
from keyrange.individual_commits.batch_counts import counts_of
from keyrange.individual_commits.batch_deliveries import (
    BatchPlan,
    batch_time,
    idle_deliveries,
    plan_batch_deliveries,
)
from keyrange.individual_commits.batch_failure_limit import NO_RECORDS, Worked, worked_in
from keyrange.individual_commits.batch_in_checkpoint import (
    LastRead,
    Planned,
    check_not_overtaken,
    check_query,
    read_planned,
)
from keyrange.individual_commits.batch_run import BatchRun
from keyrange.individual_commits.dead_letter_sink import DeadLetterSink
from keyrange.individual_commits.failed_timers import failed_timers_text
from keyrange.individual_commits.model import driver_takeover
from keyrange.individual_commits.model.batch_results import BatchResult, failure_kinds, kinds_text
from keyrange.individual_commits.model.commit import Commit, CommitKind, CommitTable, Snapshot
from keyrange.individual_commits.model.driver_fences import check_run
from keyrange.individual_commits.model.offset_reset import carried, is_set_back
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_before_batch import cuts_of, planned_from
from keyrange.individual_commits.model.state_columns import StateColumns
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.individual_commits.old_state_files import OldStateFiles
from keyrange.individual_commits.pending_errors import PendingErrors
from keyrange.individual_commits.reported_outcomes import check_columns
from keyrange.individual_commits.state_runs_after_batch import runs_after
from keyrange.individual_commits.times_after_batch import times_after
from keyrange.individual_commits.transactional_output import ends_of_output, released_before
from keyrange.individual_commits.verdict_store import VerdictStore, keeping
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.options.commits import CommitOptions
from keyrange.options.locations import misplaced
from keyrange.options.option import OptionValue
from keyrange.storage.locations import as_spark_names
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.object_store import FAILURES
from keyrange.text.escaping import one_line
from keyrange.work.job_time import JobTime

_log = logging.getLogger(__name__)

Function = Callable[[DataFrame, int], Any]
OpenTable = Callable[[CommitOptions, str], CommitTable]


def each_batch(
    function: Function, options: Mapping[str, OptionValue], checkpoint: str
) -> EachBatch:
    """What foreachBatch is given: it calls `function(batch, batch_id)` and then commits what that
    said of the batch's records, in one commit.

    `options` are those of the source, `checkpoint` the query's checkpointLocation. In `function`
    call `keyrange.process`, or `keyrange.materialize` and then `acknowledge` and `reject`; write to
    sinks so that a batch id is taken once, since after a crash `function` runs again with what the
    first run kept.

    Raises INVALID_OPTIONS where commitMode is not individual, or a place lies in another one. The
    batch fails with OTHER_CHECKPOINT where the query has another checkpoint, NO_VERDICT where
    `function` said nothing, COMMITS_FENCED where another driver has taken over, IMPLAUSIBLE_VERDICT
    where it spoke of other records than the batch's, UNSUITABLE_FRAME where dead letters would lack
    their bytes.
    """
    parsed = parse_options(options, "stream")
    if not parsed.commits.individual:
        raise invalid_options("option 'commitMode' must be individual for keyrange.each_batch")
    if wrong := misplaced("", checkpoint, parsed.commits, parsed.members):
        raise invalid_options(wrong)
    return EachBatch(function, parsed, checkpoint, needs=parsed.raw_columns)


def open_table(options: CommitOptions, source_id: str) -> CommitTable:
    """The commits of one source; pyarrow and deltalake are loaded only here."""
    from keyrange.individual_commits.table.commit_table import open_commit_table

    return open_commit_table(options, source_id)


@dataclass
class _Run:
    """What is known of this driver's run once it has begun to commit."""

    run_id: str
    source_id: str
    table: CommitTable
    driver: Driver
    table_of: Callable[[str], CommitTable]
    last: LastRead
    old_files: OldStateFiles
    # Letters of batches that were not committed; None before the run's first batch.
    standing: given_up_records.Standing | None = None
    # What its batches came to.
    before: Worked = NO_RECORDS
    # As its last commit says.
    released: Mapping[TopicPartition, int] = field(default_factory=dict)
    errors: PendingErrors | None = None
    store: VerdictStore | None = None

    def checked(self, known: Snapshot) -> Snapshot:
        """Raises COMMITS_FENCED where another driver has taken over: what this one then writes to a
        sink would be there twice."""
        check_run(known, self.run_id, self.source_id)
        return known


@dataclass
class EachBatch:
    """A function of a job, with the commits around it."""

    function: Function
    options: SourceOptions
    checkpoint: str
    open_table: OpenTable = open_table
    bury: DeadLetterSink = field(default_factory=DeadLetterSink)
    # Whether `function` looks itself, before its output counts, whether it is still the driver.
    looks_late: bool = False
    # What the timers of a job go by that keeps state.
    time: JobTime | None = None
    # Columns of a batch that hold the bytes of dead letters.
    needs: tuple[str, ...] = ()
    _run: _Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Another process is another run.
        return {**self.__dict__, "_run": None}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._commit_batch(batch, batch_id)
        except BaseException:
            # The query ends with it. Started again with this object it is another run, which goes
            # on from what others have written meanwhile.
            self._run = None
            raise

    def _commit_batch(self, batch: DataFrame, batch_id: int) -> None:
        if self.needs and self._run is None:
            check_columns(batch, "foreachBatch", self.needs)
        last = self._run.last if self._run else LastRead(self.options.commits.revealed_storage())
        planned = read_planned(self.checkpoint, batch_id, last)
        check_query(batch.sparkSession, planned, self.checkpoint)
        run = self._begin(planned, last)
        # A job looks before it appends its output, and does nothing that counts before.
        known = run.checked(run.table.seen() if self.looks_late else run.table.known())
        check_not_overtaken(known, planned.batch_id, self.checkpoint)
        plan = self._plan(run, planned, known)
        store = self._open_store(run)
        check, driver, before = lambda: run.checked(run.table.known()), run.driver, run.before
        with BatchRun(batch, plan, store, _now_ms(), check, driver, before) as running:
            self._call(run, running)
            judged = running.judged
            known = running.appended_at or run.table.known()
            commit = self._commit(run, running, known, judged)
            run.table.append(commit)
            # Its first batch has told the table of the drivers that it has stopped.
            run.driver = replace(
                run.driver, stopped=frozenset(), committed={}, applications=frozenset()
            )
            run.before += worked_in(plan, running.told)
            run.released = commit.released
            self._tell(run, running, known, commit)
        self._clean(run, running, commit, store)

    def _call(self, run: _Run, running: BatchRun) -> None:
        """Call the function, and write the letters of what was given up: beside the output, where
        the function appends that itself, since a store of objects takes its time for each."""
        begun: list[Future[None]] = []
        self.bury.stop_others(self.options, run.driver)
        with ThreadPoolExecutor(1) as beside:
            running.when_decided = lambda: begun.append(beside.submit(self._bury, run, running))
            self.function(running.batch, running.plan.planned.batch_id)
            running.check_heard()
            self._check_said(running)
            running.keep_empty_verdict()
            if begun:
                begun[0].result()
            else:
                self._bury(run, running)

    def _bury(self, run: _Run, running: BatchRun) -> None:
        letters = given_up_records.letters_of(running)
        if run.standing is None:
            run.standing = given_up_records.standing_letters(
                self.bury, self.options.commits, run.source_id, run.table_of
            )
        stood = given_up_records.append_letters(self.bury, running, letters, run.standing)
        self.bury.send(self.options, running.plan.planned, letters, stood, run.driver)

    def _begin(self, planned: Planned, last: LastRead) -> _Run:
        """The first batch of a run fences off the driver before it, and that of another source."""
        source_id = planned.mark.source_id
        if self._run is None or self._run.source_id != source_id:
            run_id, how = uuid.uuid4().hex, self.options.commits.on_fresh_start
            # The commits of a source, opened once.
            table_of = functools.cache(functools.partial(self.open_table, self.options.commits))
            table = table_of(source_id)
            fence = self._commit_of(planned, run_id, seq=1, kind=CommitKind.FENCE, batch_id=-1)
            driver = driver_takeover.begin(
                table_of, fence, planned.mark, how != "fail", anew=how == "ignore"
            )
            old = OldStateFiles(self.options.commits)
            self._run = _Run(run_id, source_id, table, driver, table_of, last, old)
        return self._run

    def _commit_of(self, planned: Planned, run_id: str, **fields: Any) -> Commit:
        return Commit(
            group=self.options.commits.group,
            source_id=planned.mark.source_id,
            query_id=planned.query_id,
            run_id=run_id,
            committed_at_ms=_now_ms(),
            terms=self.options.commits.terms(self.options.key_ranges),
            **fields,
        )

    def _plan(self, run: _Run, planned: Planned, last: Snapshot) -> BatchPlan:
        start, end = planned.start, planned.end
        known = last
        if start != end:
            known = planned_from(planned.mark, run.table_of)
        scope, mark = self.options.commits.scope, planned.mark
        told = mark.time_ms, mark.due_ms, self.time, scope
        time = batch_time(known, end, end.log_ends, *told)
        if start == end:
            # Its mark is of the batch before, and nothing of that is handed out once more.
            states = last.states.only(end.positions)
            deliveries = idle_deliveries(states, planned.mark, self.options)
        else:
            deliveries = plan_batch_deliveries(known, start, end, self.options, time.fires)
        # What is staged of a partition that is absent is released when it is back.
        states = deliveries.states | known.states.only(end.absent)
        options, ids = self.options.commits, end.topic_ids
        output = ends_of_output(options, run.table, planned, run.run_id, run.released)
        runs = {p: known.runs_of(p, ids.get(p.topic, "")) for p in known.runs if p in states}
        times = {p: known.time_of(p, ids.get(p.topic, "")) for p in known.times if p in states}
        return BatchPlan(
            *(planned, states, deliveries, options, options.terms(self.options.key_ranges)),
            *output,
            runs=runs,
            times=times,
            clocks=time.clocks,
        )

    def _open_store(self, run: _Run) -> VerdictStore:
        location = as_spark_names(self.options.commits.verdict_directory, self.checkpoint)
        with keeping(location):
            run.store = run.store or VerdictStore(location, run.source_id, run.last.storage)
        return run.store

    def _check_said(self, running: BatchRun) -> None:
        """A batch of which nothing was said would be done as a whole, or come again as a whole."""
        if running.said or running.plan.deliveries.is_empty:
            return
        # Records that are gone from Kafka count as done, and what was staged above them is due.
        if running.batch.isEmpty() and not (running.staged() and running.moves_committed()):
            return
        raise error(
            "NO_VERDICT",
            "the function given to keyrange.each_batch said nothing of the batch",
            batch=running.plan.planned.batch_id,
        )

    def _commit(self, run: _Run, running: BatchRun, known: Snapshot, judged: Outcome) -> Commit:
        planned, plan, seq = running.plan.planned, running.plan, known.seq + 1
        by_hand = self._set_by_hand(running, known, judged.states)
        states = (judged.states | by_hand).with_leader_epochs(planned.end.leader_epochs)
        # What a query that resumes knows of partitions that are away is in no commit of its own.
        states |= plan.states.only(each for each in planned.end.absent if each not in known.states)
        whole = known.base_is_due
        before = plan.deliveries.states
        back = {p for p in by_hand if is_set_back(before[p], known.states[p])}
        runs = runs_after(running, known, seq, back)
        times = times_after(running, known, states, self.time, back)
        counts = counts_of(running, judged)
        released = released_before(by_hand, judged) if plan.commits.transactional else {}
        were = known.states.heads
        touched = {each for each, head in states.heads.items() if were.get(each) != head}
        touched |= {each for each in runs if runs[each] != known.runs.get(each)}
        touched |= {each for each in times if times[each] != known.times.get(each)}
        return self._commit_of(
            planned,
            run.run_id,
            seq=seq,
            kind=CommitKind.BATCH,
            batch_id=planned.batch_id,
            states=known.states | states if whole else states.only({*touched, *counts, *by_hand}),
            counts=counts,
            whole=whole,
            cut_back=cuts_of(known, judged.states, planned.start, planned.end),
            released=released,
            runs={**known.runs, **runs} if whole else runs,
            times={**known.times, **times} if whole else times,
            ownership=self.options.key_ranges.ownership,
        )

    def _set_by_hand(
        self, running: BatchRun, known: Snapshot, judged: StateColumns
    ) -> dict[TopicPartition, PartitionState]:
        """What a batch came to of partitions that somebody has set in the table since it was
        planned, with that."""
        planned, before = running.plan.planned, running.plan.deliveries.states
        if known.batch_id >= planned.batch_id or known.seq == planned.mark.seq:
            return {}
        now, heads = known.states, known.states.heads
        same = [p for p, at in before.heads.items() if p in now and heads[p][:2] == at[:2]]
        return {p: carried(judged[p], before[p], now[p]) for p in same if before[p] != now[p]}

    def _tell(self, run: _Run, running: BatchRun, known: Snapshot, commit: Commit) -> None:
        """Let people know what failed: listeners, the log, and the commands. `known` is the state
        before the commit, which is written: nothing that goes wrong here changes the batch."""
        planned, states = running.plan.planned, known.states | commit.states
        counts = commit.counts.values()
        result = BatchResult(
            done=sum(each.done for each in counts),
            failed=sum(each.rejected for each in counts),
            held_back=sum(each.held_back for each in counts),
            dead=sum(each.dead for each in counts),
            pending=states.pending.shape[1],
        )
        last_batch_results.keep(planned.query_id, planned.batch_id, result)
        try:
            failures = running.failures() if result.failed else []
            if failures:
                _log.warning(
                    "batch %d: %s records failed, %s of them for the last time, and %s wait for "
                    "them: %s",
                    planned.batch_id,
                    f"{result.failed:,}",
                    f"{result.dead:,}",
                    f"{result.held_back:,}",
                    one_line(kinds_text(failure_kinds(failures))),
                )
            if told := failed_timers_text(running.failed_timers):
                _log.warning("batch %d: %s", planned.batch_id, one_line(told))
            if run.errors is None:
                location = self.options.commits.verdict_directory
                run.errors = PendingErrors(location, run.source_id, run.last.storage)
            run.errors.update(states, failures)
        except (KeyrangeError, *FAILURES) as failure:
            why = f"its errors cannot be told: {failure}"
            _log.warning("batch %d is committed; %s", planned.batch_id, one_line(why))

    def _clean(self, run: _Run, running: BatchRun, commit: Commit, store: VerdictStore) -> None:
        """What is left over costs room, and is tried again with the next batch."""
        plan, planned = running.plan, running.plan.planned
        try:
            run.table.maintain()
            self.bury.maintain()
            needed = {each.batch_id for each in running.staged()}
            if plan.commits.transactional:
                needed.add(planned.batch_id - 1)
            last = min(planned.batch_id - 1, planned.finished)
            store.remove_old(lambda at: at <= last and at not in needed, running.manifest)
            if running.keeps_state:
                run.old_files.remove(run.table, commit, _now_ms())
        except KeyrangeError as failure:
            _log.warning("batch %d is committed; then: %s", planned.batch_id, failure)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
