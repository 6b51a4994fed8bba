"""The commits around a job's function, without Spark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql.types import StructType

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.individual_commits import each_batch as module
from keyrange.individual_commits import reported_outcomes
from keyrange.individual_commits.batch_deliveries import BatchPlan
from keyrange.individual_commits.batch_in_checkpoint import LastRead, Planned
from keyrange.individual_commits.batch_run import BatchRun, current
from keyrange.individual_commits.each_batch import EachBatch, _Run
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.delivery_columns import plan_deliveries
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    fresh,
)
from keyrange.individual_commits.model.state_columns import columns_of, spread
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned
from keyrange.individual_commits.old_state_files import OldStateFiles
from keyrange.individual_commits.reported_outcomes import ReportedResults
from keyrange.individual_commits.table_output import BatchOutput, TableOutput
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import CommitSettings, DeliveryLimits
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.options.commits import CommitOptions
from keyrange.storage.model.sink_driver import Driver
from keyrange.work.appended_files import HANDED_ON
from tables.commit_tables import MemoryCommitTable
from tables.committing import commit_states

PLACE = TopicPartition("t", 0)
GIVEN = {
    "kafka.bootstrap.servers": "h:9",
    "subscribe": "t",
    "commitMode": "individual",
    "commitTable": "/t",
}
NOTHING: Any = SimpleNamespace(isEmpty=lambda: True, sparkSession=None)


def of_one(sink: Any) -> BatchOutput:
    table = TableOutput(sink, StructType([]).jsonValue(), "/sink")
    return BatchOutput({"": table}, NOTHING, {})


@pytest.mark.parametrize(
    ("checkpoint", "more", "said"),
    [
        ("/t/cp", {}, "checkpoint must not be in the directory of option 'commitTable': VACUUM"),
        ("/cp", {"stateDirectory": "/t/state"}, "option 'stateDirectory' must not be in the dir"),
        ("/t", {}, "option 'commitTable' must not be the same path as checkpoint"),
    ],
)
def test_what_the_vacuum_of_a_table_would_remove_is_refused(
    checkpoint: str, more: dict[str, str], said: str
) -> None:
    with pytest.raises(KeyrangeError, match=said):
        keyrange.each_batch(lambda *_: None, GIVEN | more, checkpoint)


@pytest.mark.parametrize("lost", ["key", "value"])
def test_a_frame_without_the_bytes_of_dead_letters_is_refused(lost: str) -> None:
    """One that is given up would be lost with its letter, or replayed by no key."""
    names = ["topic", "partition", "offset", "keyHash", "key", "value"]
    frame: Any = SimpleNamespace(columns=[each for each in names if each != lost])
    with pytest.raises(KeyrangeError, match=rf"\[UNSUITABLE_FRAME\].*no column '{lost}'"):
        keyrange.each_batch(lambda *_: None, GIVEN, "/cp")(frame, 0)
    keyrange.each_batch(lambda *_: None, GIVEN, "/t/_checkpoint")


def test_a_writer_that_starts_again_goes_on_from_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first batch after the reset fails; the query that is started then is another run."""
    table = MemoryCommitTable("s")
    stood = Checkpoint({}, commits=CommitMark("s", 0))
    at = Planned("q", 0, stood, stood, -1)
    monkeypatch.setattr(module, "read_planned", lambda *_: at)
    writer = EachBatch(
        lambda *_: None, parse_options(GIVEN, "stream"), "/c", open_table=lambda *_: table
    )
    writer(NOTHING, 0)
    last = table.store[-1]
    table.append(
        replace(last, seq=last.seq + 1, kind=CommitKind.RESET, batch_id=-1, run_id="by hand")
    )
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        writer(NOTHING, 1)
    writer(NOTHING, 1)
    kinds = [CommitKind.FENCE, CommitKind.BATCH, CommitKind.RESET, CommitKind.FENCE]
    assert [each.kind for each in table.store] == kinds


def test_a_commit_says_in_the_log_of_which_leader_a_partition_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query with another checkpoint asks later leaders by it whether their logs go as far."""
    table, mark = MemoryCommitTable("s"), CommitMark("s", 0)
    end = Checkpoint({PLACE: 5}, leader_epochs={PLACE: 7}, commits=mark)
    at = Planned("q", 0, Checkpoint({PLACE: 5}, fresh=True), end, -1)
    monkeypatch.setattr(module, "read_planned", lambda *_: at)
    writer = EachBatch(
        lambda *_: None, parse_options(GIVEN, "stream"), "/c", open_table=lambda *_: table
    )
    writer(NOTHING, 0)
    assert table.known().states == {PLACE: replace(fresh("", 5), leader_epoch=7)}


@pytest.mark.parametrize("into", [True, False])
def test_a_driver_that_is_replaced_while_it_works_writes_to_no_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into: bool
) -> None:
    """What it wrote would be there once more, of the one that replaced it."""
    table, appended = MemoryCommitTable("s"), []
    stood = Checkpoint({}, commits=CommitMark("s", 0))
    at = Planned("q", 0, stood, stood, -1)
    monkeypatch.setattr(module, "read_planned", lambda *_: at)
    nothing: Any = {member: [] for member in HANDED_ON}
    monkeypatch.setattr(reported_outcomes, "handed_on", lambda _: nothing)
    rows: Any = SimpleNamespace(write=SimpleNamespace(parquet=lambda _: None))
    sink: Any = SimpleNamespace(
        uri="/sink",
        keys=(),
        evolves=False,
        prepare=lambda *_, **__: True,
        check_restored=lambda _: None,
        table_id=str,
        append=lambda *given, **_: appended.append(given),
    )

    def replaced(*_: Any) -> None:
        last = table.store[-1]
        table.append(replace(last, seq=last.seq + 1, run_id="another"))
        run = current("the test")
        if into:
            run.write_verdict(of_one(sink))
        else:
            run.make_verdict(StructType([]), lambda: rows, counted=True)

    given = {**GIVEN, "verdictDirectory": str(tmp_path)}
    writer = EachBatch(replaced, parse_options(given, "stream"), "/c", open_table=lambda *_: table)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        writer(NOTHING, 0)
    assert appended == []


@pytest.mark.parametrize("is_due", [True, False])
def test_an_empty_batch_that_releases_output_needs_a_verdict(tmp_path: Path, is_due: bool) -> None:
    """A record that failed is gone from Kafka when it is to come again: what was staged above it is
    due, and would be passed over where the function returns at once."""
    state = PartitionState("", 21, (KeyRangeState(SPACE, 21, (PendingRecord(10, 5),)),))
    store = VerdictStore(str(tmp_path), "s")
    os.makedirs(tmp_path / "s" / "0" / "one")
    (tmp_path / "s" / "0" / "one" / "part-0.parquet").write_text("x")
    start, end = Checkpoint({PLACE: 0}), Checkpoint({PLACE: 21})
    rows = {"type": "struct", "fields": []}
    store.publish(Manifest(0, "one", {"part-0.parquet": 1}, rows, *planned(start, end)), start, end)
    mark = CommitMark(source_id="s", seq=2, due_ms=10)
    at = Checkpoint({PLACE: 21}, commits=mark)
    until = 21 if is_due else 30
    due_ms = 10 if is_due else -1
    before = columns_of({PLACE: state})
    deliveries = plan_deliveries(
        before, spread([[0]], [0]), np.array([until]), due_ms, DeliveryLimits()
    )
    assert bool(deliveries[PLACE].redelivered) == is_due
    terms = CommitOptions(individual=True, transactional=True)
    plan = BatchPlan(
        Planned("q", 1, at, at, 0), before, deliveries, terms, CommitSettings(), {PLACE: 10}
    )
    writer = EachBatch(lambda *_: None, parse_options(GIVEN, "stream"), "/c")
    run = BatchRun(NOTHING, plan, store, 5)
    if not is_due:
        writer._check_said(run)
        return
    with pytest.raises(KeyrangeError, match="NO_VERDICT"):
        writer._check_said(run)


def test_what_is_staged_of_a_partition_that_is_absent_stays(tmp_path: Path) -> None:
    """Output above a pending record is in its verdict alone: the topic may be back."""
    there, mark = TopicPartition("u", 0), CommitMark(source_id="s", seq=1)
    ids = {"t": "a" * 32, "u": "b" * 32}
    state = PartitionState(ids["t"], 21, (KeyRangeState(SPACE, 21, (PendingRecord(10, 5),)),))
    store = VerdictStore(str(tmp_path), "s")
    os.makedirs(tmp_path / "s" / "0" / "one")
    (tmp_path / "s" / "0" / "one" / "part-0.parquet").write_text("x")
    before = Checkpoint({PLACE: 21, there: 5}, ids, commits=replace(mark, seq=0))
    rows = {"type": "struct", "fields": []}
    start = Checkpoint({PLACE: 0})
    found = Manifest(0, "one", {"part-0.parquet": 1}, rows, *planned(start, before))
    store.publish(found, start, before)
    after = Checkpoint({there: 6}, ids, commits=mark, absent={PLACE: 21})
    table = MemoryCommitTable("s")
    commit_states(table.store, "s", {PLACE: state, there: fresh(ids["u"], 5)})
    given = GIVEN | {"commit.isolation": "transactional"}
    writer = EachBatch(lambda *_: None, parse_options(given, "stream"), "/c")
    old = OldStateFiles(writer.options.commits)
    run = _Run("run", "s", table, Driver("s", 1), lambda _: table, LastRead(), old)
    plan = writer._plan(run, Planned("q", 1, before, after, 0), table.known())
    assert list(plan.deliveries) == [there]
    assert [each.batch_id for each in BatchRun(NOTHING, plan, store, 5).staged()] == [0]


def test_who_resumes_commits_the_state_of_what_is_away() -> None:
    """It is in no commit of its own source, in which the next batches look for it."""
    there, ids = TopicPartition("u", 0), {"t": "a" * 32, "u": "b" * 32}
    away = PartitionState(ids["t"], 21, (KeyRangeState(SPACE, 21, (PendingRecord(10, 5),)),))
    table = MemoryCommitTable("old")
    commit_states(table.store, "old", {PLACE: away, there: fresh(ids["u"], 5)})
    mark = CommitMark(source_id="new", seq=0, resumes=("old", 1))
    start = Checkpoint({there: 5}, ids, fresh=True, absent={PLACE: 21})
    end = Checkpoint({there: 6}, ids, commits=mark, absent={PLACE: 21}, initial={there: 5})
    writer = EachBatch(lambda *_: None, parse_options(GIVEN, "stream"), "/c")
    own = MemoryCommitTable("new", table.store)
    tables = {"new": own, "old": table}
    old = OldStateFiles(writer.options.commits)
    run = _Run("run", "new", own, Driver("new", 1), tables.__getitem__, LastRead(), old)
    plan = writer._plan(run, Planned("q", 0, start, end, -1), run.table.known())
    judged = plan.judge(ReportedResults(), 5)
    commit = writer._commit(run, BatchRun(NOTHING, plan, NOTHING, 5), run.table.known(), judged)
    assert commit.states == {PLACE: away, there: fresh(ids["u"], 6)}


@pytest.mark.parametrize("into", [True, False])
def test_a_job_that_leaves_state_out_makes_no_verdict(tmp_path: Path, into: bool) -> None:
    """The run that has the state again would take it, and these records' changes were lost."""
    at = SimpleNamespace(batch_id=3, start=Checkpoint({PLACE: 0}), end=Checkpoint({PLACE: 9}))
    busy = SimpleNamespace(is_empty=False)
    plan: Any = SimpleNamespace(runs={PLACE: ("a run",)}, deliveries=busy, planned=at)
    run = BatchRun(NOTHING, plan, VerdictStore(str(tmp_path), "s"), 5)
    made: list[Any] = []
    sink: Any = SimpleNamespace(
        uri="/sink", keys=(), prepare=lambda *_, **__: made.append("a table")
    )

    def rows(*given: Any) -> Any:
        made.append(given)

    def make() -> Any:
        if into:
            return run.write_verdict(of_one(sink))
        return run.make_verdict(StructType([]), rows, counted=True)

    with pytest.raises(KeyrangeError, match="STATE_LEFT_OUT"):
        make()
    assert made == []
    assert list(tmp_path.iterdir()) == []
