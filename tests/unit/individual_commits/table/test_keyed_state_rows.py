"""To which commit the state of keys goes back with the records of a partition; and how much of a
state of many runs is open at a time."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.keyed_state_rows import StoredState, runs_to_return_to
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.model.key_ranges import SPACE, hash_of, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from tables.commit_tables import MemoryCommitTable

AT = TopicPartition("t", 0)


class History:
    """Commits of one partition; each has a file of its own for the state."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "s").mkdir()
        self.commits = Commits("commits", "s", MemoryCommitTable("s"))

    def commit(
        self, position: int, *pending: int, scanned: int = -1, by_hand: bool = False, cut: int = -1
    ) -> None:
        table = self.commits.table
        seq = table.known().seq + 1
        (self.directory / "s" / f"{seq}").touch()
        records = tuple(PendingRecord(offset, 7) for offset in pending)
        piece = KeyRangeState(SPACE, position if scanned < 0 else scanned, records)
        kind = CommitKind.RESET if by_hand else CommitKind.BATCH
        cut_back: Mapping[TopicPartition, int] = {} if cut < 0 else {AT: cut}
        table.append(
            Commit(
                *(seq, kind, "g", "s", "q", "r", -1 if by_hand else seq, 1),
                states={AT: PartitionState("id", position, (piece,))},
                cut_back=cut_back,
                runs={AT: (StateRun(f"s/{seq}", (0, 1), SPACE, seq, seq + 1, 1, 1, 0),)},
            )
        )

    def goes_back(self, to: int) -> str:
        """The file of the state, or what is refused."""
        known = self.commits.table.known()
        try:
            [run] = runs_to_return_to(self.commits, known, AT, to, Directory(str(self.directory)))
        except KeyrangeError as failure:
            return str(failure)
        return run.file


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_the_last_commit_where_all_was_done_and_nothing_behind_it(history: History) -> None:
    history.commit(500)
    history.commit(500)
    history.commit(700, 650)
    history.commit(900)
    history.commit(1_000, scanned=950)
    assert history.goes_back(500) == "s/2"
    assert history.goes_back(900) == "s/4"
    assert "that is so at 500 (commit:1), 500 (commit:2), 900 (commit:4)" in history.goes_back(700)
    assert "500 (commit:2), 900 (commit:4)" in history.goes_back(1_000)


def test_a_state_that_lacks_a_record_which_was_replayed_since_is_none(history: History) -> None:
    """The dead letter counted as done, is in a later state, and does not come again."""
    history.commit(200)
    history.commit(500)
    history.commit(1_000)
    history.commit(1_000, 300, by_hand=True)
    history.commit(1_200)
    assert "that is so at 200 (commit:1), 1200 (commit:5)" in history.goes_back(500)
    assert history.goes_back(200) == "s/1"


def test_records_that_a_reset_left_pending_were_not_replayed(history: History) -> None:
    history.commit(500)
    history.commit(600, 550)
    history.commit(600, 550, by_hand=True)
    history.commit(700)
    assert history.goes_back(500) == "s/1"


def test_a_state_with_records_that_come_again_since_an_earlier_reset_is_none(
    history: History,
) -> None:
    history.commit(100)
    history.commit(500)
    history.commit(1_000)
    history.commit(1_000, scanned=100, by_hand=True)
    history.commit(1_000, scanned=300)
    assert "that is so at 100 (commit:1)" in history.goes_back(500)
    history.commit(1_000, 250)
    assert "that is so at 100 (commit:1)" in history.goes_back(500)
    assert history.goes_back(100) == "s/1"
    history.commit(1_000)
    assert history.goes_back(500) == "s/2"


def test_a_state_of_records_that_a_cut_log_lost_is_none(history: History) -> None:
    history.commit(600)
    history.commit(800)
    history.commit(900)
    history.commit(850, cut=700)
    history.commit(1_000)
    assert "that is so at 600 (commit:1), 850 (commit:4), 1000 (commit:5)" in history.goes_back(800)
    assert history.goes_back(850) == "s/4"
    assert history.goes_back(600) == "s/1"


@pytest.fixture
def many(tmp_path: Path) -> StoredState:
    """State of a partition that was cut into many key ranges, each with a run."""
    form = StateForm(variables_of({"n": ValueState("n long")}))
    files = Directory(str(tmp_path))
    writer, spans = StateFileWriter(files, "s", form), split_evenly(SPACE, 200)
    keys = sorted((hash_of(b"k%d" % n), b"k%d" % n) for n in range(5_000))
    for span in spans:
        own = [{"key_hash": at, "key": key, "n": {"n": 1}} for at, key in keys if span.contains(at)]
        assert writer.add(AT, span, 1, [pa.RecordBatch.from_pylist(own, form.schema)])
    runs = [made.committed(1) for _, made in writer.finish()]
    return StoredState(str(tmp_path), {AT: tuple(runs)}, 0)


@pytest.mark.ordinary
def test_few_files_are_open_at_a_time(many: StoredState) -> None:
    """A process may have a thousand; a state of some partitions has more runs than that."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, before[1]))
    try:
        assert sum(block.num_rows for block in many.rows(AT)) == 5_000
        assert all(not wrong for _, _, wrong in many.check())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(many._opened) <= 64


def test_of_a_key_the_runs_are_opened_that_may_have_it(many: StoredState) -> None:
    assert many.of_key(AT, b"k7") == {"n": 1}
    # And the one that says which variables there are.
    assert len(many._opened) <= 2
