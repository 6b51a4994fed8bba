"""Runs of the benchmark in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CI = Path(__file__).parents[2] / "ci"


def bench(*arguments: str, timeout_s: int = 580) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(CI), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        timeout=timeout_s,
        check=False,
    )


def tiny_figures(directory: Path, *groups: str, timeout_s: int = 580) -> dict[str, dict[str, Any]]:
    """The figures by name that the tiny form of some groups writes."""
    out = directory / "figures.json"
    only = [word for group in groups for word in ("--only", group)]
    finished = bench("--tiny", *only, "--out", str(out), timeout_s=timeout_s)
    assert finished.returncode == 0, finished.stderr[-4000:]
    return {each["name"]: each for each in json.loads(out.read_text())["figures"]}
