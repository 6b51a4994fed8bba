"""A writer of commits that is killed: what it acknowledged is there, once, and the next goes on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commit_contract import SOURCE
from commit_writer import STEPS, expected
from keyrange.individual_commits.model.commit import known_at
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions

TESTS = Path(__file__).parents[1]
Acknowledged = list[tuple[int, str, int]]


def run_until_killed(path: Path, step: str, after_s: float | None = None) -> Acknowledged:
    """What a writer acknowledged before it died."""
    search = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    writer = subprocess.Popen(
        [sys.executable, "-m", "commit_writer", str(path), step],
        env=os.environ | {"PYTHONPATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    lines = []
    if after_s is not None:
        lines.append(writer.stdout.readline())
        time.sleep(after_s)
        writer.kill()
    # What was read with the first line and not asked for yet `communicate` would leave out.
    assert writer.stderr is not None
    output, errors = writer.stdout.read(), writer.stderr.read()
    writer.wait(120)
    assert writer.returncode == -9, errors[-3000:]
    lines += output.splitlines()
    # The last line may be cut off.
    found = [line.split() for line in lines if len(line.split()) == 3]
    return [(int(seq), run_id, int(batch_id)) for seq, run_id, batch_id in found]


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


@pytest.mark.parametrize("step", [each for each in STEPS if each != "random"])
def test_a_writer_that_dies_at_a_step_loses_and_doubles_nothing(tmp_path: Path, step: str) -> None:
    path = tmp_path / "commits"
    acknowledged: Acknowledged = []
    for killed in range(1, 3):
        acknowledged += run_until_killed(path, step)
        # A table is made once.
        step = "before data file" if step == "in creation" else step
        # A commit that was under way may have landed.
        assert 0 <= check(path, acknowledged) - len(acknowledged) <= killed
    if step == "after commit":
        assert check(path, acknowledged) == len(acknowledged) + 2


@pytest.mark.timeout(600)
def test_a_writer_that_is_killed_at_any_time_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    acknowledged: Acknowledged = []
    for killed in range(1, 7):
        acknowledged += run_until_killed(path, "random", chance.uniform(0, 1.5))
        assert 0 <= check(path, acknowledged) - len(acknowledged) <= killed
    assert len(acknowledged) > 6
