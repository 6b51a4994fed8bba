"""Two drivers of one group with checkpoints of their own: one goes on, and the other stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.driver_takeover import begin
from keyrange.model.checkpoint import CommitMark
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from keyrange.storage.model.sink_driver import Driver
from tables.commit_tables import MemoryCommitTable
from tables.committing import state

PLACE = TopicPartition("t", 0)
GROUP = "default"


class Group:
    """A table in memory, and the drivers that write to it."""

    def __init__(self) -> None:
        self.store: list[Commit] = []

    def table(self, source_id: str) -> MemoryCommitTable:
        return MemoryCommitTable(source_id, self.store)

    def begin(
        self,
        source_id: str,
        run_id: str = "",
        resumes: tuple[str, int] | None = None,
        may_replace: bool = False,
        planned_at: int = 0,
        anew: bool = False,
    ) -> Driver:
        terms = CommitSettings(isolation="transactional" if source_id == "b" else "immediate")
        fence = Commit(
            1, CommitKind.FENCE, GROUP, source_id, "q", run_id or source_id, -1, 0, terms
        )
        mark = CommitMark(source_id, planned_at, -1, {}, resumes=resumes)
        return begin(self.table, fence, mark, may_replace, anew)

    def work(self, source_id: str, run_id: str = "") -> None:
        known = self.table(source_id).known()
        batch = Commit(
            known.seq + 1,
            CommitKind.BATCH,
            GROUP,
            source_id,
            "q",
            run_id or source_id,
            known.batch_id + 1,
            0,
            states={PLACE: state(known.batch_id + 2)},
        )
        self.table(source_id).append(batch)


@pytest.fixture
def group() -> Group:
    return Group()


def refused(condition: str) -> pytest.RaisesExc[KeyrangeError]:
    return pytest.raises(KeyrangeError, match=rf"\[{condition}\]")


def test_of_two_that_were_planned_in_an_empty_table_the_first_goes_on(group: Group) -> None:
    group.begin("a")
    with refused("COMMITS_OF_ANOTHER_QUERY"):
        group.begin("b")
    group.work("a")
    assert {commit.source_id for commit in group.store} == {"a"}


def before_its_fence(
    monkeypatch: pytest.MonkeyPatch, source_id: str, happens: Callable[[], None]
) -> None:
    """Let something happen when a source has looked, and is about to say that it has begun."""
    append = MemoryCommitTable.append

    def append_behind(table: MemoryCommitTable, commit: Commit, *begun: int) -> None:
        if commit.source_id == source_id:
            monkeypatch.undo()
            happens()
        append(table, commit, *begun)

    monkeypatch.setattr(MemoryCommitTable, "append", append_behind)


def test_of_two_that_begin_at_the_same_time_one_goes_on(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_its_fence(monkeypatch, "a", lambda: group.begin("b"))
    with refused("COMMITS_FENCED"):
        group.begin("a")
    group.work("b")
    assert {commit.source_id for commit in group.store} == {"b"}
    with refused("COMMITS_OF_ANOTHER_QUERY"):
        group.begin("a", "again")


def test_of_two_that_take_over_at_the_same_time_one_goes_on(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.begin("a")
    group.work("a")
    before_its_fence(monkeypatch, "b", lambda: group.begin("c", resumes=("a", 2), may_replace=True))
    with refused("COMMITS_FENCED"):
        group.begin("b", resumes=("a", 2), may_replace=True)
    group.work("c")
    assert group.table("b").known().seq == 0


def test_an_old_driver_that_restarts_while_the_new_one_commits_its_first_batch_stops(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.begin("a")
    group.work("a")
    group.begin("b", resumes=("a", 2), may_replace=True)
    last_source = MemoryCommitTable.last_source

    def commits_behind(
        table: MemoryCommitTable, asked: str, with_states: bool = False
    ) -> str | None:
        found = last_source(table, asked, with_states)
        monkeypatch.undo()
        group.work("b")
        return found

    monkeypatch.setattr(MemoryCommitTable, "last_source", commits_behind)
    with refused("COMMITS_FENCED"):
        group.begin("a", "again")
    group.work("b")


@pytest.mark.parametrize("resumes", [("a", 2), None], ids=["resume", "ignore"])
def test_who_takes_a_group_over_stops_who_had_it(
    group: Group, resumes: tuple[str, int] | None
) -> None:
    group.begin("a")
    group.work("a")
    group.begin("b", resumes=resumes, may_replace=True, anew=resumes is None)
    with refused("COMMITS_FENCED"):
        group.work("a")
    group.work("b")
    with refused("COMMITS_FENCED"):
        group.begin("a", "again")
    group.begin("b", "again")
    group.work("b", "again")
    terms = group.table("a").known().terms
    assert terms is not None
    assert terms.isolation == "immediate", "it keeps its own"


def test_what_is_resumed_from_may_not_have_gone_on(group: Group) -> None:
    group.begin("a")
    group.work("a")
    group.work("a")
    with refused("COMMITS_AHEAD"):
        group.begin("b", resumes=("a", 2), may_replace=True)
    group.work("a")
    group.begin("a", "again")
    group.begin("b", resumes=("a", 4), may_replace=True)


def test_a_run_that_resumed_and_ended_before_its_batch_begins_again(group: Group) -> None:
    group.begin("a")
    group.work("a")
    group.begin("b", resumes=("a", 2), may_replace=True)
    group.begin("b", "again", resumes=("a", 2), may_replace=True)
    group.work("b", "again")
    # Its first batch once more, when it is committed: the other source is not asked.
    group.begin("b", "a third time", resumes=("a", 2), may_replace=True)


def test_a_query_goes_on_that_was_replaced_by_one_that_did_nothing(group: Group) -> None:
    group.begin("a")
    group.work("a")
    group.begin("b", resumes=("a", 2), may_replace=True)
    group.begin("a", "again")
    group.work("a", "again")
    with refused("COMMITS_FENCED"):
        group.work("b")
    with refused("COMMITS_FENCED"):
        group.begin("b", "again")


def test_where_the_table_lacks_what_was_planned_from_nothing_is_written(group: Group) -> None:
    """It is gone, perhaps: another one in its place would be in the way of who brings it back."""
    with refused("COMMITS_MISSING"):
        group.begin("a", planned_at=2)
    assert not group.store
    group.begin("a")
    group.work("a")
    group.begin("a", "again", planned_at=2)


def test_who_begins_is_told_whom_a_table_is_to_take_nothing_from(group: Group) -> None:
    assert group.begin("a") == Driver("a", 1)
    group.work("a")
    stopped: dict[str, Any] = {"stopped": frozenset({"a"}), "committed": {"keyrange:q:a": 0}}
    stopped["applications"] = frozenset({"keyrange:q:a"})
    resumes = ("a", 2)
    assert group.begin("b", resumes=resumes, may_replace=True) == Driver("b", 2, **stopped)
    # It has written no batch, and may not have told the table.
    again = group.begin("b", "again", resumes=resumes, may_replace=True)
    assert again == Driver("b", 3, **stopped)
    group.work("b", "again")
    assert group.begin("b", "a third time") == Driver("b", 4)


def test_an_old_driver_is_told_of_those_that_have_begun_since_its_last_batch(group: Group) -> None:
    group.begin("a")
    group.work("a")
    group.begin("b", resumes=("a", 2), may_replace=True)
    stopped: dict[str, Any] = {"stopped": frozenset({"b"}), "committed": {"keyrange:q:b": -1}}
    stopped["applications"] = frozenset({"keyrange:q:b"})
    assert group.begin("a", "again") == Driver("a", 3, **stopped)
    # It has written no batch since, and may not have told the table.
    assert group.begin("a", "a third time") == Driver("a", 4, **stopped)
    group.work("a", "a third time")
    assert group.begin("a", "at last") == Driver("a", 5)
    # It would go on where the other one does no more.
    with refused("COMMITS_AHEAD"):
        group.begin("b", "again", resumes=("a", 2), may_replace=True)


def test_where_somebody_said_where_to_go_on_no_batch_is_looked_for(group: Group) -> None:
    """As where the checkpoint is lost that would finish the one that is not committed."""
    group.begin("a")
    group.work("a")
    last = group.store[-1]
    group.table("a").append(replace(last, seq=3, kind=CommitKind.RESET, batch_id=-1, run_id="me"))
    driver = group.begin("b", resumes=("a", 3), may_replace=True)
    assert driver == Driver("b", 2, frozenset({"a"}), {}, frozenset({"keyrange:q:a"}))
    assert group.begin("b", "again", resumes=("a", 3), may_replace=True).committed == {}
