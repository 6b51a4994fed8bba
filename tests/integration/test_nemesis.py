"""A short run of the nemesis, so that it keeps working; ci/soak.sh nemesis has the long ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_nothing_is_lost_where_an_executor_and_a_member_are_killed(tmp_path: Path) -> None:
    kinds = ["kill-executor", "kill-member", "kill-worker"]
    command = [sys.executable, "-P", "-m", "nemesis", "--mode", "pinned", "--seed", "3"]
    command += ["--seconds", "20", "--output", "json", "--keep", str(tmp_path / "kept")]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [*command, *(word for kind in kinds for word in ("--only", kind))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["findings"] == []
    assert document["records"] == document["rows"] + document["dead_letters"] > 0
    assert sum(document["faults"].values()) > 0
