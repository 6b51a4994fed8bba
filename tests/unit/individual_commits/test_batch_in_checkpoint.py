"""What a running batch reads of Spark's checkpoint, and what it does not list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keyrange.individual_commits.batch_in_checkpoint import read_offsets
from keyrange.storage.directory import Directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = make_checkpoint(tmp_path / "c")
    for number in range(4):
        plan_batch(made, number, 1_000 * number, {"0": number})
    for number in range(3):
        commit_batch(made, number)
    return made


@pytest.mark.parametrize(("batch_id", "finished"), [(2, 2), (3, 2)])
def test_a_batch_that_runs_lists_no_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch, batch_id: int, finished: int
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("listed")

    monkeypatch.setattr(Directory, "numbered", refuse)
    [at] = read_offsets(str(home), batch_id)
    assert (at.batch_id, at.finished) == (batch_id, finished)


def test_the_last_finished_batch_is_searched_where_the_one_before_is_not_finished(
    home: Path,
) -> None:
    (home / "commits" / "2").unlink()
    assert read_offsets(str(home), 3)[0].finished == 1
    for number in (0, 1):
        (home / "commits" / str(number)).unlink()
    assert read_offsets(str(home), 3)[0].finished == -1


def test_the_first_batch_of_a_query_has_none_before_it(home: Path) -> None:
    (home / "commits" / "0").unlink()
    assert read_offsets(str(home), 0)[0].finished == -1
