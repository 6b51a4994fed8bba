"""No kernel reads or writes a byte beyond its arrays, whatever the bytes say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from project.forms import by_form

pytestmark = pytest.mark.ordinary

PROGRAM = Path(__file__).with_name("guarded.py")
TESTS = PROGRAM.parents[2]
# None of it is in the fast form.
CASES = by_form(2_000, 800, 200_000)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    }
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize("what", ["overread", "overwrite"])
def test_the_guard_kills_a_process_that_goes_one_byte_too_far(what: str) -> None:
    result = run(what)
    assert result.returncode in (-signal.SIGSEGV, -signal.SIGBUS), result.stderr


@pytest.mark.parametrize("seed", [0, 1_000_000])
def test_logs_gone_wrong_are_decoded_between_guard_pages(seed: int) -> None:
    result = run(str(seed), str(CASES))
    last = result.stderr[-2_000:]
    assert result.returncode == 0, f"died with {result.returncode} after seed {last}"
    assert result.stdout == f"survived {CASES}\n"


def test_rows_are_written_between_guard_pages() -> None:
    result = run("write", "0", str(CASES))
    last = result.stderr[-2_000:]
    assert result.returncode == 0, f"died with {result.returncode} after seed {last}"
    assert result.stdout == f"survived {CASES}\n"
