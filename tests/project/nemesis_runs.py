"""Runs of the nemesis in a process of its own, asked to end in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

# A short one takes about a minute where nothing else runs, and ends by itself before pytest
# ends it.
LIMIT_S = 480
CLEANING_S = 60


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
        out, said = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        # It tells where its threads are, then ends all that it has started.
        process.send_signal(signal.SIGUSR1)
        process.terminate()
        try:
            out, said = process.communicate(timeout=CLEANING_S)
        finally:
            process.kill()
    return process.returncode, out, said
