"""Which files of states are kept, against an oracle that reads every commit: batches, drivers that
begin and commit what was written long ago, and commits that somebody sets back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.old_state_files import OldStateFiles, kept_files
from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
from keyrange.keyed_state.model.state_runs import MadeRun, StateRun, after_batch, files_of
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.storage.delta_store import DeltaStore
from project.forms import by_form
from tables.commit_tables import MemoryCommitTable

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
Runs = dict[TopicPartition, tuple[StateRun, ...]]


class History:
    """Commits at a time that a test lets pass, and when the files were written that they name."""

    def __init__(self, seed: int, table: DeltaCommitTable | MemoryCommitTable) -> None:
        self.random = Random(seed)
        self.table = table
        self.now_ms = 1_000
        self.seq = 0
        self.runs: Runs = dict.fromkeys(PARTITIONS, ())
        self.written_ms: dict[str, int] = {}
        # What each commit names, and the state after it.
        self.named: list[tuple[int, set[str]]] = []
        self.states: list[Runs] = []

    def commit(self, kind: CommitKind, runs: Runs) -> None:
        self.seq += 1
        self.runs = self.runs | runs
        self.states.append(self.runs)
        self.named.append((self.now_ms, files_of(runs)))
        batch = self.seq if kind is CommitKind.BATCH else -1
        whole = kind is CommitKind.BATCH and self.random.random() < 0.2
        told = self.runs if whole else runs
        self.table.append(
            Commit(
                *(self.seq, kind, "g", "source", "q", "r", batch, self.now_ms),
                whole=whole,
                states={at: fresh("", 1) for at in told},
                runs=told,
            )
        )

    def batch(self, written_ms: int | None = None) -> None:
        """Tasks write files, and the commit names them, a while later."""
        written_ms = self.now_ms if written_ms is None else written_ms
        self.now_ms += self.random.choice([1, 10, 60])
        found: Runs = {}
        for partition in self.random.sample(PARTITIONS, self.random.randint(1, 2)):
            name = f"source/{self.seq}-{partition.partition}.parquet"
            self.written_ms[name] = written_ms
            spans = self.random.choice([[SPACE], split_evenly(SPACE, 3)])
            # Some supersede what is there, from a commit on.
            since = self.random.choice([self.seq, self.seq, max(self.seq - 3, 0), 0])
            made = [MadeRun(name, (n, n + 1), span, since, 1, 1, 0) for n, span in enumerate(spans)]
            found[partition] = tuple(after_batch(self.runs[partition], made, self.seq + 1))
        self.commit(CommitKind.BATCH, found)

    def step(self) -> None:
        what = self.random.random()
        if what < 0.08:
            # A driver begins, a while after a batch of the one before was worked on.
            written_ms = self.now_ms
            self.now_ms += self.random.choice([0, 300, 3_000])
            self.commit(CommitKind.FENCE, {})
            if self.random.random() < 0.3:
                self.set_back()
            self.batch(written_ms)
        elif what < 0.13 and self.states:
            self.set_back()
        else:
            self.batch()

    def set_back(self) -> None:
        partition = self.random.choice(PARTITIONS)
        earlier = self.states[-self.random.randint(1, min(len(self.states), 20))]
        self.commit(CommitKind.RESET, {partition: earlier[partition]})

    def needed(self, since_ms: int) -> set[str]:
        """What commits since a time name, or the state has that was there then."""
        found = files_of(self.runs)
        before = [
            each for (at, _), each in zip(self.named, self.states, strict=True) if at < since_ms
        ]
        if before:
            found |= files_of(before[-1])
        for at, named in self.named:
            if at >= since_ms:
                found |= named
        return {name for name in found if self.written_ms[name] < since_ms}


def table_of(home: Path, kind: str) -> DeltaCommitTable | MemoryCommitTable:
    if kind == "memory":
        return MemoryCommitTable("source")
    return DeltaCommitTable(DeltaStore(str(home), LAYOUT, {}), "source")


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        *((seed, "memory") for seed in range(by_form(2, 15, 400))),
        # It takes twenty times as long, and answers the same (tables/commit_contract.py).
        *(
            pytest.param(seed, "delta", marks=pytest.mark.ordinary)
            for seed in range(by_form(1, 1, 60))
        ),
    ],
)
def test_what_a_commit_of_the_retention_names_is_kept(tmp_path: Path, seed: int, kind: str) -> None:
    history = History(seed, table_of(tmp_path, kind))
    for number in range(by_form(120, 120, 400) if kind == "memory" else 40):
        history.step()
        if number % 4 == 0:
            since_ms = history.now_ms - history.random.choice([0, 50, 400, 4_000])
            kept = kept_files(history.table, since_ms)
            assert history.needed(since_ms) <= kept
    # And little else: of all files few are as old as the retention and kept.
    old = {name for name, at in history.written_ms.items() if at < history.now_ms - 50}
    kept = kept_files(history.table, history.now_ms - 50)
    assert len(kept & old) < len(old) / 2


def test_few_commits_are_read_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(0, MemoryCommitTable("source"))
    for _ in range(300):
        history.batch()
    read: list[int] = []
    table = history.table
    own = table.history

    def noted(from_seq: int = 1, until_seq: int | None = None) -> object:
        found = list(own(from_seq, until_seq))
        read.extend(each.seq for each in found)
        return iter(found)

    monkeypatch.setattr(table, "history", noted)
    kept_files(table, 1_001)
    assert len(read) < 30


def of_an_hour(home: Path) -> OldStateFiles:
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "commitMode": "individual",
        "commitTable": str(home / "commits"),
        "stateDirectory": str(home),
        "state.retention": "1h",
    }
    return OldStateFiles(parse_options(given, "stream").commits)


def test_a_clock_that_is_far_ahead_takes_no_file_of_the_retention(tmp_path: Path) -> None:
    history = History(0, MemoryCommitTable("source"))
    history.now_ms = int(time.time() * 1000)
    while not (history.seq > 30 and history.table.known().base_seq == history.seq):
        history.batch()
    *_, last = history.table.history()
    (tmp_path / "source").mkdir()
    for name in history.written_ms:
        (tmp_path / name).touch()
    of_an_hour(tmp_path).remove(history.table, last, history.now_ms + 30 * 86_400_000)
    assert all((tmp_path / name).exists() for name in history.written_ms)
    name = next(iter(history.written_ms.keys() - kept_files(history.table, 0)))
    os.utime(tmp_path / name, (0, 0))
    of_an_hour(tmp_path).remove(history.table, last, history.now_ms)
    assert [each for each in history.written_ms if not (tmp_path / each).exists()] == [name]


def test_files_are_removed_in_a_while_and_not_with_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(0, MemoryCommitTable("source"))
    for _ in range(30):
        history.batch()
    old = of_an_hour(tmp_path)
    looked: list[int] = []
    monkeypatch.setattr(
        "keyrange.individual_commits.old_state_files.kept_files",
        lambda _, since_ms: looked.append(since_ms) or set(),
    )
    whole = next(each for each in history.table.history() if each.whole)
    hour_ms = 3_600_000
    for at_ms in (hour_ms, hour_ms + 1, hour_ms + 35_999, hour_ms + 36_000):
        old.remove(history.table, whole, at_ms)
    assert looked == [0, 36_000]
