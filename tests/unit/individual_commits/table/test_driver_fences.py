"""Who owns a group, where clocks step by hours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.driver_order import Fence, begun, living
from keyrange.individual_commits.model.driver_takeover import begin
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.model.checkpoint import CommitMark
from tables.commit_contract import NOW_MS, batch
from tables.memory_store import MemoryStore, Shared

HOUR_MS = 3_600_000
Open = Callable[[str], DeltaCommitTable]


def opening(shared: Shared) -> Open:
    return lambda source_id: DeltaCommitTable(MemoryStore(shared), source_id)


def begins(
    table: Open, source_id: str, run_id: str, at_ms: int, resumes: tuple[str, int] | None = None
) -> None:
    query_id = f"q-{source_id}"
    fence = Commit(1, CommitKind.FENCE, "orders", source_id, query_id, run_id, -1, at_ms)
    mark = CommitMark(source_id, table(source_id).known().seq, resumes=resumes)
    begin(table, fence, mark, may_replace=True)


def works(table: Open, source_id: str, run_id: str, at_ms: int) -> None:
    known = table(source_id).known()
    commit = batch(known.seq + 1, known.batch_id + 1, run_id, source_id)
    table(source_id).append(replace(commit, committed_at_ms=at_ms))


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 0])
def test_a_clock_that_is_set_right_changes_no_owner(ahead_ms: int) -> None:
    table = opening(Shared())
    begins(table, "9a", "run-1", NOW_MS + ahead_ms)
    works(table, "9a", "run-1", NOW_MS + ahead_ms)
    begins(table, "1b", "run-2", NOW_MS, ("9a", 2))
    works(table, "1b", "run-2", NOW_MS)
    goes_on(table)


def goes_on(table: Open) -> None:
    """Source 1b is the last one of the group, and 9a the one before."""
    assert table("").last_source("orders") == "1b"
    assert table("").last_source("orders", with_states=True) == "1b"
    begins(table, "1b", "run-3", NOW_MS)
    works(table, "1b", "run-3", NOW_MS)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        begins(table, "9a", "run-4", NOW_MS + 2 * HOUR_MS)
    with pytest.raises(KeyrangeError, match="COMMITS_AHEAD"):
        begins(table, "2c", "run-5", NOW_MS, ("9a", 2))
    last = table("1b").known()
    begins(table, "2c", "run-6", NOW_MS - HOUR_MS, ("1b", last.seq))
    works(table, "2c", "run-6", NOW_MS - HOUR_MS)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        works(table, "1b", "run-3", NOW_MS)
    assert table("").last_source("orders", with_states=True) == "2c"


def test_who_stops_another_owns_nothing_before_it_has_begun() -> None:
    fences = [
        Fence("a", 1, "r1", "q", 1, "a"),
        Fence("a", 3, "r2", "p", 2, "b"),
        Fence("c", 1, "r0", "s", 0, ""),
    ]
    assert [each.source_id for each in begun(fences)] == ["c", "a"]
    assert living(fences) == {"c"}


def test_a_number_that_was_looked_up_before_another_driver_began_puts_nobody_in_front() -> None:
    fences = [Fence("a", 1, "r1", "q", 4, "a"), Fence("a", 2, "r2", "p", 2, "b")]
    fences.append(Fence("b", 1, "r2", "p", 2, "b"))
    assert [each.run_id for each in begun(fences)] == ["r1", "r2"]


def test_rows_that_contradict_each_other_are_still_put_in_order() -> None:
    fences = [Fence("a", 1, "r1"), Fence("a", 2, "r2"), Fence("b", 1, "r2"), Fence("b", 2, "r1")]
    assert len(begun(fences)) == 2
