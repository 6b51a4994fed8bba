"""Where the state of keys is after a batch, and what a process that starts later reads of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.batch_run import BatchRun
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot, known_at
from keyrange.individual_commits.model.offset_reset import rewind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    fresh,
)
from keyrange.individual_commits.state_runs_after_batch import runs_after
from keyrange.individual_commits.table.commit_schema import commits_of, rows_of
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.model.range_plan import even_ranges

AT = TopicPartition("t", 0)
RUN = StateRun("s/a.parquet", (0, 1), SPACE, 1, 2, 1, 1, 0)


def commit(seq: int, runs: Any) -> Commit:
    states = {AT: fresh("id", seq)}
    return Commit(seq, CommitKind.BATCH, "g", "s", "q", "r", seq - 1, 1, states=states, runs=runs)


def stateless(known: Snapshot, *, is_empty: bool, resumes: Any = None) -> BatchRun:
    """A batch of a job without state, planned from `known`."""
    planned = SimpleNamespace(
        batch_id=1,
        end=Checkpoint({AT: 1}, {"t": "id"}),
        mark=CommitMark(source_id="s", seq=1, resumes=resumes),
    )
    plan: Any = SimpleNamespace(
        planned=planned,
        deliveries=SimpleNamespace(is_empty=is_empty),
        states=known.states,
        runs=dict(known.runs),
    )
    nothing: Any = None
    return BatchRun(nothing, plan, nothing, 5)


@pytest.mark.parametrize("resumes", [None, ("other", 1)])
def test_an_empty_batch_of_a_job_without_state_loses_none(resumes: Any) -> None:
    before = commit(1, {AT: (RUN,)})
    known = known_at([before], 1)
    running = stateless(known, is_empty=True, resumes=resumes)
    last = Snapshot() if resumes else known
    after = commit(2, runs_after(running, last, 2))
    table = pa.concat_tables([rows_of(before), rows_of(after)])
    read = commits_of(table, "s", newest_only=True)
    assert known_at(read, 2).runs == {AT: (RUN,)}
    with pytest.raises(KeyrangeError, match="STATE_LEFT_OUT"):
        runs_after(stateless(known, is_empty=False), known, 2)


def test_where_nobody_kept_state_a_commit_says_nothing_of_it() -> None:
    known = known_at([commit(1, {})], 1)
    assert runs_after(stateless(known, is_empty=False), known, 2) == {}


def test_what_a_reset_has_not_set_back_keeps_its_state() -> None:
    """A reset to where one key range of two stood: the batch that ran meanwhile has its records."""
    low, high = even_ranges(2)
    old = StateRun("s/old.parquet", (0, 1), SPACE, 1, 2, 1, 1, 0)
    ahead = StateRun("s/ahead.parquet", (0, 1), low, 2, 3, 1, 1, 0)
    pieces = (KeyRangeState(low, 1_000), KeyRangeState(high, 500))
    planned = Commit(
        *(2, CommitKind.BATCH, "g", "s", "q", "r", 1, 1),
        states={AT: PartitionState("id", 1_000, pieces)},
        runs={AT: (old, ahead)},
    )
    first = commit(1, {AT: (old,)})
    running = stateless(known_at([first, planned], 2), is_empty=False)
    running.keeps_state = True
    made = {"state_run": [_row(low, "low"), _row(high, "high"), _row(SPACE, "both")]}
    running.manifest = SimpleNamespace(rows=made)  # type: ignore[assignment]
    reset = replace(
        planned,
        seq=3,
        kind=CommitKind.RESET,
        batch_id=-1,
        states={AT: rewind(planned.states[AT], 500).state},
        runs={AT: (old,)},
    )
    known = known_at([first, planned, reset], 3)
    found = runs_after(running, known, 4)[AT]
    assert {(run.file, run.span) for run in found} == {
        ("s/old.parquet", SPACE),
        ("s/high.parquet", high),
        ("s/both.parquet", high),
    }
    # Where nobody has set it back all of it counts.
    undisturbed = runs_after(running, known_at([first, planned], 2), 3)[AT]
    assert {run.file for run in undisturbed} >= {"s/low.parquet", "s/high.parquet"}


def test_a_key_range_that_was_set_back_without_a_change_of_state_gets_none_of_the_batch() -> None:
    """All of its records that come again have failed: the runs are those of before."""
    low, high = even_ranges(2)
    old = StateRun("s/old.parquet", (0, 1), SPACE, 1, 2, 1, 1, 0)
    state = PartitionState("id", 1_000, (KeyRangeState(low, 1_000), KeyRangeState(high, 500)))
    planned = replace(commit(1, {AT: (old,)}), states={AT: state})
    running = stateless(known_at([planned], 1), is_empty=False)
    running.keeps_state = True
    made = {"state_run": [_row(low, "low"), _row(high, "high")]}
    running.manifest = SimpleNamespace(rows=made)  # type: ignore[assignment]
    back = {AT: rewind(state, 500).state}
    reset = replace(planned, seq=2, kind=CommitKind.RESET, batch_id=-1, states=back)
    found = runs_after(running, known_at([planned, reset], 2), 3, back)[AT]
    assert {run.file for run in found} == {"s/old.parquet", "s/high.parquet"}


def test_timers_that_were_set_again_meanwhile_stay() -> None:
    """A replay has written the rows of their keys, and the batch has others and merged older ones:
    both of it would be in the place of the replay's run."""
    old = StateRun("s/old.parquet", (0, 1), SPACE, 1, 2, 1, 1, 0)
    planned = commit(1, {AT: (old,)})
    running = stateless(known_at([planned], 1), is_empty=False)
    running.keeps_state = True
    made = {"state_run": [_row(SPACE, "changes", 2), _row(SPACE, "merged", 1)]}
    running.manifest = SimpleNamespace(rows=made)  # type: ignore[assignment]
    again = StateRun("s/again.parquet", (0, 1), KeyRange(7, 9), 2, 3, 1, 1, 0)
    reset = replace(planned, seq=2, kind=CommitKind.RESET, batch_id=-1, runs={AT: (old, again)})
    # Behind the fence of the driver that commits the batch.
    found = runs_after(running, known_at([planned, reset], 2), 4)[AT]
    assert [(run.file, run.span) for run in found] == [
        ("s/changes.parquet", SPACE),
        ("s/again.parquet", KeyRange(7, 9)),
        ("s/old.parquet", SPACE),
    ]


def _row(span: KeyRange, name: str, from_seq: int = 3) -> tuple[Any, ...]:
    bounds = (span.from_hash, span.until_hash - 1)
    return ("t", 0, f"s/{name}.parquet", 0, 1, *bounds, from_seq, 1, 1, 0)
