"""A writer of commits that is killed: what it acknowledged is there, once, and the next goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyrange.individual_commits.model.commit import known_at
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
from project.forms import by_form
from tables.commit_contract import SOURCE
from tables.commit_writer import STEPS, expected

TESTS = Path(__file__).parents[1]
Acknowledged = list[tuple[int, str, int]]
# How many commits may be there that a writer, which died at a step, has not acknowledged: 0 else.
LANDED = {"after data file": {0, 1}, "after commit": {1}}


class Writers:
    """One process that forks the writers of a table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._errors = path.with_name("errors")
        search = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tables.commit_writer", str(path)],
                env=os.environ | {"PYTHONPATH": search},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run_until_killed(self, step: str, after_s: float | None = None) -> Acknowledged:
        """What one writer acknowledged before it died."""
        assert self.process.stdin is not None
        print(step, file=self.process.stdin, flush=True)
        writer = int(self._told()[1])
        acknowledged: Acknowledged = []
        while (told := self._told())[0] != "ended":
            seq, run_id, batch_id = told
            acknowledged.append((int(seq), run_id, int(batch_id)))
            if after_s is not None:
                time.sleep(after_s)
                os.kill(writer, signal.SIGKILL)
                after_s = None
        assert int(told[1]) == -signal.SIGKILL, self._errors.read_text()[-3000:]
        return acknowledged

    def _told(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._errors.read_text()[-3000:]
        return line.split()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    started = Writers(tmp_path / "commits")
    yield started
    started.process.communicate(timeout=120)


def check(path: Path, acknowledged: Acknowledged) -> int:
    """Every acknowledged commit is in the table once, as it was written; at most the one that was
    under way is there beside them. Returns how many there are."""
    table = open_commit_table(CommitOptions(table=str(path)), SOURCE)
    history = list(table.history())
    assert history == [expected(each) for each in history]
    found = [(each.seq, each.run_id, each.batch_id) for each in history]
    assert set(acknowledged) <= set(found)
    batches = [each.batch_id for each in history if each.batch_id >= 0]
    assert batches == list(range(len(batches)))
    assert table.known() == known_at(history, len(history))
    return len(found)


def test_a_writer_that_dies_at_a_step_loses_and_doubles_nothing(writers: Writers) -> None:
    """Each writer goes on with what the one before it, which died at another step, has left."""
    acknowledged: Acknowledged = []
    landed = 0
    for step in STEPS:
        acknowledged += writers.run_until_killed(step)
        unknown = check(writers.path, acknowledged) - len(acknowledged)
        assert unknown - landed in LANDED.get(step, {0}), step
        landed = unknown
    assert len(acknowledged) > 7 * (len(STEPS) - 1)


@pytest.mark.timeout(600)
def test_a_writer_that_is_killed_at_any_time_loses_and_doubles_nothing(writers: Writers) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    acknowledged: Acknowledged = []
    for killed in range(1, by_form(3, 4, 13)):
        acknowledged += writers.run_until_killed("random", chance.uniform(0, 1.5))
        assert 0 <= check(writers.path, acknowledged) - len(acknowledged) <= killed
    assert len(acknowledged) > by_form(3, 4, 13)
