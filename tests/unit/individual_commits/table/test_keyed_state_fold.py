"""The state made once more from the log, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind, known_at
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_admin import Commits, open_commits
from keyrange.individual_commits.table.keyed_state_fold import FoldPlan, StateFold, plan_fold
from keyrange.individual_commits.table.keyed_state_rows import StoredState
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.model.offsets import OffsetRange, TopicPartition
from samples.working import PLACE, Sent, batch_of
from tables.commit_tables import MemoryCommitTable
from tables.state_commits import AT, NOW_MS, StateCommits

FORM = StateForm(variables_of({"total": ValueState("n long")}))
SECRET = b"s3cret"


def fold_of(function: Any, mode: str = "record") -> StateFold:
    plan = FoldPlan(1, {PLACE: fresh("", 0)}, {PLACE: fresh("", 4)}, 0)
    base: Any = SimpleNamespace(blocks=lambda *_: ())
    return StateFold(plan, base, FORM, function, mode)


def records(*values: bytes) -> Any:
    sent = [Sent(at, at % 2, b"k%d" % (at % 2), value) for at, value in enumerate(values)]
    return [batch_of(sent)]


def add(record: Any, state: Any) -> None:
    state.total.update(state.total.get(default=0) + record.value.amount)


def test_a_function_that_fails_with_every_record_tells_nothing_of_the_state() -> None:
    """Two fail, and two wait for them: the options say which values the function gets."""
    fold = fold_of(add)
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*failed with all 2 records") as told:
        fold.run(records(SECRET, SECRET, SECRET, SECRET), None)
    text = str(told.value)
    assert "AttributeError 2 (such as offset 0 of t-0; " in text
    assert "--option valueFormat=..., valueSchema=..." in text
    assert "s3cret" not in text


def test_a_function_that_fails_with_some_is_told_of() -> None:
    def some(record: Any, state: Any) -> None:
        state.total.update(10 // int(record.value))

    fold = fold_of(some)
    fold.run(records(b"0", b"1", b"2", b"3"), None)
    assert fold.records == 4
    assert [offset for _, offset, _ in fold.failures] == [0]


def query_at(home: Path) -> StateCommits:
    query = StateCommits(home)
    query.form = StateForm(variables_of({"n": ValueState("n long")}))
    return query


def planned(query: StateCommits) -> FoldPlan:
    commits = open_commits(query.path, "", "s", {})
    known = commits.table.known()
    return plan_fold(commits, known, StoredState(f"{query.path}_state", known.runs, NOW_MS), None)


def test_state_that_was_imported_is_kept_as_the_querys_own_is(tmp_path: Path) -> None:
    """Its files are those of another source."""
    query = query_at(tmp_path)
    imported = StateCommits(tmp_path, "imported").written([{"key": b"z", "n": {"n": 9}}], 1)
    query.commit(CommitKind.FENCE)
    runs = (imported, query.written([{"key": b"a", "n": {"n": 1}}], 2))
    query.commit(CommitKind.BATCH, 0, states={AT: fresh("id", 5)}, runs={AT: runs})
    after = (*runs, query.written([{"key": b"a", "n": {"n": 2}}], 3))
    query.commit(CommitKind.BATCH, 1, states={AT: fresh("id", 9)}, runs={AT: after})
    plan = planned(query)
    assert (plan.from_seq, plan.spans, plan.base[AT]) == (2, {AT: OffsetRange(5, 9)}, runs)


def test_a_partition_that_the_first_commit_does_not_know_begins_with_its_own(
    tmp_path: Path,
) -> None:
    """The query may have begun anywhere in it."""
    query, other = query_at(tmp_path), TopicPartition("flights", 1)
    query.commit(CommitKind.FENCE)
    query.batch(0, [{"key": b"a", "n": {"n": 1}}])
    run = query.written([{"key": b"b", "n": {"n": 1}}], 3)
    query.commit(CommitKind.BATCH, 1, states={other: fresh("id", 1_000)}, runs={other: (run,)})
    query.commit(CommitKind.BATCH, 2, states={other: fresh("id", 1_003)}, runs={other: (run,)})
    plan = planned(query)
    assert (plan.spans, plan.base[other]) == ({other: OffsetRange(1_000, 1_003)}, (run,))


def test_the_first_commit_that_is_kept_is_found_by_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a commit a second, of years."""
    table, files = MemoryCommitTable("s"), query_at(tmp_path)
    run = files.written([{"key": b"a", "n": {"n": 1}}], 1)
    states, gone = {AT: fresh("id", 5)}, replace(run, file="s/gone.parquet")
    for seq in range(1, 301):
        runs = {AT: (run if seq > 200 else gone,)}
        of = ("g", "s", "q", "r", seq, NOW_MS)
        table.append(Commit(seq, CommitKind.BATCH, *of, states=states, runs=runs))
    read: list[int] = []
    whole = table.history

    def history(*given: int) -> Iterator[Commit]:
        for each in whole(*given):
            read.append(each.seq)
            yield each

    monkeypatch.setattr(table, "history", history)
    stored = StoredState(f"{files.path}_state", {AT: (run,)}, NOW_MS)
    plan = plan_fold(Commits("c", "s", table), known_at(table.store, 300), stored, None)
    assert (plan.from_seq, read) == (201, [*range(202, 301)])


def test_of_a_job_with_time_nobody_can_tell(tmp_path: Path) -> None:
    """Late records and timers have changed the state too."""
    query = StateCommits(tmp_path)
    query.batch(0, [{"key": b"a", "n": {"n": 1}}])
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*when timers fired"):
        planned(query)
