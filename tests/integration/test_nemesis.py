"""A short run of the nemesis, so that it keeps working; ci/soak.sh nemesis has the long ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# It takes about a minute where nothing else runs, and ends by itself before pytest ends it.
_LIMIT_S = 480
_CLEANING_S = 60


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(_LIMIT_S + _CLEANING_S + 30)
@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        pytest.param("consumer", ["kill-consumer"], id="consumer"),
        pytest.param(
            "pinned",
            ["kill-executor", "kill-member", "kill-worker"],
            id="pinned",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_nothing_is_lost_where_processes_are_killed(
    tmp_path: Path, mode: str, kills: list[str]
) -> None:
    code, out, said = nemesis(
        *("--mode", mode, "--seed", "3", "--seconds", "12", "--every", "4"),
        *(part for kill in kills for part in ("--only", kill)),
        *("--output", "json", "--keep", str(tmp_path / "kept")),
    )
    assert code == 0, out + said
    document = json.loads(out)
    assert document["findings"] == []
    assert document["records"] == document["rows"] + document["dead_letters"] > 0
    assert sum(document["faults"].values()) > 0


def nemesis(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and what was said meanwhile of a run, which is asked to end in time."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "nemesis", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        out, said = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        # It tells where its threads are, then ends all that it has started.
        process.send_signal(signal.SIGUSR1)
        process.terminate()
        try:
            out, said = process.communicate(timeout=_CLEANING_S)
        finally:
            process.kill()
    return process.returncode, out, said
