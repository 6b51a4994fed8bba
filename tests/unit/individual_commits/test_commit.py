"""Which state the commits of a source come to, and when a commit is written already."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot, known_at
from keyrange.individual_commits.model.driver_fences import check_next
from keyrange.individual_commits.model.partition_progress import PartitionState, fresh
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from tables.commit_tables import MemoryCommitTable

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def commit(seq: int, batch_id: int = -1, run_id: str = "r", **fields: Any) -> Commit:
    kind = CommitKind.BATCH if batch_id >= 0 else CommitKind.FENCE
    kind = fields.pop("kind", kind)
    return Commit(seq, kind, "g", "s", "q", run_id, batch_id, 1_000, **fields)


def states(**positions: int) -> dict[TopicPartition, PartitionState]:
    return {{"one": ONE, "other": OTHER}[name]: fresh("id", at) for name, at in positions.items()}


HISTORY = [
    commit(1),
    commit(2, 0, states=states(one=10, other=5)),
    commit(3, 1, states=states(one=20)),
    commit(4, run_id="r2"),
    commit(5, 2, run_id="r2", states=states(one=30), whole=True),
    commit(6, 3, run_id="r2", states=states(other=0)),
    commit(7, kind=CommitKind.RESET, run_id="by hand", states=states(one=25), who="a", why="b"),
]


@pytest.mark.parametrize(
    ("seq", "positions", "batch_id", "run_id"),
    [
        (0, {}, -1, ""),
        (1, {}, -1, "r"),
        (2, {"one": 10, "other": 5}, 0, "r"),
        (3, {"one": 20, "other": 5}, 1, "r"),
        (4, {"one": 20, "other": 5}, 1, "r2"),
        (5, {"one": 30}, 2, "r2"),
        (6, {"one": 30, "other": 0}, 3, "r2"),
        (7, {"one": 25, "other": 0}, 3, "by hand"),
    ],
)
def test_the_state_at_a_commit_is_the_last_one_of_each_partition(
    seq: int, positions: dict[str, int], batch_id: int, run_id: str
) -> None:
    terms = CommitSettings() if seq else None
    expected = Snapshot(seq, columns_of(states(**positions)), batch_id, run_id, terms)
    assert known_at(HISTORY, seq) == expected
    assert known_at(HISTORY[::-1], seq) == expected


@pytest.mark.parametrize("seq", [5, 6, 7])
def test_commits_before_a_whole_one_are_not_needed(seq: int) -> None:
    assert known_at(HISTORY[4:], seq) == known_at(HISTORY, seq)
    assert known_at([HISTORY[1], *HISTORY[4:]], seq) == known_at(HISTORY, seq)


@pytest.mark.parametrize("batches", [1, 4, 9, 49, 50, 500])
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_a_base_is_due_however_batches_and_fences_alternate(batches: int, extra: int) -> None:
    """A query that is started for so many batches each time, and was reset `extra` times."""
    known, bases = Snapshot(), [0]
    for _ in range(extra):
        known = known.after(commit(known.seq + 1, kind=CommitKind.RESET))
    for _ in range(max(300 // batches, 1)):
        known = known.after(commit(known.seq + 1))
        for _ in range(batches):
            whole = known.base_is_due
            known = known.after(commit(known.seq + 1, known.batch_id + 1, whole=whole))
            bases += [known.seq] if whole else []
    gaps = [after - before for before, after in pairwise(bases)]
    assert 50 <= min(gaps) <= max(gaps) <= 52


def test_a_whole_commit_of_no_batch_does_not_hide_which_batch_was_the_last() -> None:
    whole = commit(8, run_id="r3", states=states(other=9), whole=True)
    assert known_at([*HISTORY, whole], 8) == Snapshot(
        8, columns_of(states(other=9)), 3, "r3", CommitSettings()
    )
    with pytest.raises(ValueError, match="commit 8 follows commit 0"):
        known_at([whole], 8)


@pytest.mark.parametrize(
    ("commits", "seq"),
    [
        (HISTORY[1:], 3),
        (HISTORY[:1] + HISTORY[2:], 3),
        (HISTORY[:3] + HISTORY[2:], 3),
        (HISTORY[4:5] + HISTORY[6:], 7),
        (HISTORY, 8),
        ([], 1),
    ],
    ids=["first", "second", "twice", "behind a whole one", "last", "all"],
)
def test_commits_that_are_missing_or_there_twice_are_refused(
    commits: list[Commit], seq: int
) -> None:
    with pytest.raises(ValueError, match=r"commit \d+ follows commit \d+|the last commit is"):
        known_at(commits, seq)


def test_the_last_terms_hold() -> None:
    terms = CommitSettings(isolation="transactional")
    assert known_at([commit(1), commit(2, terms=terms)], 2).terms == terms


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": CommitKind.BATCH, "batch_id": -1},
        {"kind": CommitKind.FENCE, "batch_id": 3},
        {"kind": CommitKind.RESET, "batch_id": 0},
    ],
)
def test_a_commit_of_a_batch_names_it_and_no_other_does(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="commit 1"):
        commit(1, **fields)


def test_the_next_commit_is_not_written_yet() -> None:
    known = known_at(HISTORY[:4], 4)
    for before, each in (
        (known, commit(5, 2, "r2")),
        (known, commit(5, -1, "r3")),
        (Snapshot(), commit(1)),
        (Snapshot(), commit(1, 0)),
    ):
        assert not before.has(each)
        check_next(before, each)


def test_a_batch_that_is_in_the_table_changes_nothing_whatever_its_place() -> None:
    known = known_at(HISTORY[:5], 5)
    assert known.has(commit(5, 2, "r2"))
    assert known.has(commit(6, 2, "r2"))
    assert known.has(commit(6, 1, "r2"))
    assert not known.has(commit(6, 3, "r2"))
    check_next(known, commit(6, 3, "r2"))


def test_a_fence_whose_answer_was_lost_is_known_again() -> None:
    known = known_at(HISTORY[:4], 4)
    assert known.has(commit(4, run_id="r2"))


@pytest.mark.parametrize(
    "late",
    [
        commit(5, 2, "r"),
        commit(4, 2, "r"),
        commit(4, 1, "r"),
        commit(4, -1, "r3"),
        commit(3, -1, "r2"),
        commit(4, 2, "r2"),
    ],
    ids=["next batch", "in its place", "of a batch that is there", "fence", "old fence", "taken"],
)
def test_a_driver_that_was_replaced_is_told_so(late: Commit) -> None:
    known = known_at(HISTORY[:4], 4)
    with pytest.raises(KeyrangeError, match=r"COMMITS_FENCED.*source_id=s, seq=4"):
        check_next(known, late)
    assert not known.has(late)


def test_a_commit_does_not_follow_ones_that_are_gone() -> None:
    for each in (commit(6, 4, "r2"), commit(6, -1, "r3")):
        with pytest.raises(KeyrangeError, match=r"COMMITS_BEHIND.*at commit 4, and commit 6"):
            check_next(known_at(HISTORY[:4], 4), each)


def test_the_table_in_memory_keeps_the_sources_apart() -> None:
    store: list[Commit] = []
    one, other = MemoryCommitTable("s", store), MemoryCommitTable("s2", store)
    for each in HISTORY[:3]:
        one.append(each)
    other.append(replace(commit(1), source_id="s2", group="g2"))
    assert one.known() == known_at(HISTORY[:3], 3)
    assert one.known(2) == known_at(HISTORY, 2)
    assert other.known().seq == 1
    assert list(one.history(2, 3)) == [HISTORY[1]]
    assert list(one.history()) == HISTORY[:3]
    assert (one.last_source("g"), one.last_source("g2"), one.last_source("g3")) == ("s", "s2", None)
    one.append(HISTORY[2])
    one.maintain()
    assert one.known() == known_at(HISTORY[:3], 3)
    with pytest.raises(KeyrangeError, match=r"COMMITS_BEHIND.*wanted=4"):
        one.known(4)
    with pytest.raises(ValueError, match="is one of source s2"):
        one.append(store[-1])
