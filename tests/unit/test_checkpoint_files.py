"""A checkpoint that is read while its query runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints import commit_batch, make_checkpoint, plan_batch
from keyrange.checkpoint_files import load_progress, open_directory
from keyrange.directory import Directory
from keyrange.errors import InvalidError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = make_checkpoint(tmp_path / "c")
    for number in range(4):
        plan_batch(made, number, 1_000 * number, {"0": number})
    commit_batch(made, 2)
    return made


class Removing(Directory):
    """Removes batches between listing and reading them, as Spark may."""

    def __init__(self, home: Path, *removed: int) -> None:
        super().__init__(str(home))
        self._gone = [home / "offsets" / str(number) for number in removed]

    def numbered(self, directory: str) -> list[int]:
        found = super().numbered(directory)
        if directory == "offsets":
            for path in self._gone:
                path.unlink()
        return found


def test_all_batches_that_are_there_are_read(home: Path) -> None:
    progress = load_progress(open_directory(str(home)))
    assert [batch.batch_id for batch in progress.planned] == [0, 1, 2, 3]
    assert progress.committed == 2


def test_the_oldest_batches_may_go_while_it_is_read(home: Path) -> None:
    progress = load_progress(Removing(home, 0, 1))
    assert [batch.batch_id for batch in progress.planned] == [2, 3]
    assert progress.committed == 2


def test_the_last_batch_may_not(home: Path) -> None:
    with pytest.raises(InvalidError, match="INVALID_CHECKPOINT_PATH"):
        load_progress(Removing(home, 0, 1, 2, 3))


class Going(Directory):
    """A batch is planned and committed between the two listings."""

    def __init__(self, home: Path) -> None:
        super().__init__(str(home))
        self._home, self._listed = home, 0

    def numbered(self, directory: str) -> list[int]:
        self._listed += 1
        if self._listed == 2:
            plan_batch(self._home, 4, 4_000, {"0": 4})
            commit_batch(self._home, 4)
        return super().numbered(directory)


def test_a_batch_that_is_done_meanwhile_is_an_open_one(home: Path) -> None:
    progress = load_progress(Going(home))
    assert (progress.committed, progress.planned[-1].batch_id) == (2, 4)
    assert [batch.batch_id for batch in progress.unfinished] == [3, 4]
