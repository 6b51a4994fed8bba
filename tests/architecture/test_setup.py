"""ci/setup.sh on machines where something is missing, and what it says while it works."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands.terminals import read_all, read_until

SETUP = Path(__file__).parents[2] / "ci" / "setup.sh"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project directory with nothing but the script."""
    (tmp_path / "project" / "ci").mkdir(parents=True)
    shutil.copy(SETUP, tmp_path / "project" / "ci")
    (tmp_path / "project" / "ci" / "requirements.txt").write_text("one==1\ntwo==2\nthree==3\n")
    return tmp_path / "project"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def test_a_python_without_ensurepip_is_not_taken(project: Path, tmp_path: Path) -> None:
    """As on Debian without python3-venv, where `import venv` succeeds and venvs cannot be made."""
    for name in ("python3.13", "python3.12", "python3.11", "python3"):
        without = f'[[ "$*" != *ensurepip* ]] || exit 1; exec {sys.executable} "$@"'
        script(tmp_path / "bin" / name, without)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "CI_PYTHON"}
    result = subprocess.run(
        ["bash", str(project / "ci" / "setup.sh")],
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert "with the modules venv and ensurepip was found" in result.stderr
    assert "python3-venv" in result.stderr
    assert not (project / ".venv").exists()


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", ", 0 of 3 packages found"),
        ("Collecting one\n  Downloading\nCollecting two\n", ", 2 of 3 packages found"),
        ("Collecting one\nInstalling collected packages: one\n", ", 1 of 3 packages installed"),
    ],
)
def test_how_far_pip_is_can_be_told_from_its_log(project: Path, log: str, expected: str) -> None:
    (project / ".venv/lib/python3/site-packages/one-1.dist-info").mkdir(parents=True)
    (project / "log").write_text(log)
    # Its functions alone: what it does stands at the end, in lines that are no function's.
    functions = SETUP.read_text().rpartition("\n_setup_check_java\n")[0]
    (project / "ci" / "functions.sh").write_text(functions)
    command = f"source '{project}/ci/functions.sh'; _setup_pip_so_far '{project}/log'"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, expected), result.stderr


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "." * 24), (1, "." * 24), (60, "#" * 12 + "." * 12), (120, "#" * 24), (130, "#" * 24)],
)
def test_a_bar_shows_how_much_of_a_whole_is_done(project: Path, count: int, expected: str) -> None:
    functions = SETUP.read_text().rpartition("\n_setup_check_java\n")[0]
    (project / "ci" / "functions.sh").write_text(functions)
    command = f"source '{project}/ci/functions.sh'; _setup_bar {count} 120"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f" [{expected}]"), result.stderr


def test_a_step_on_a_terminal_leaves_a_line_before_and_one_behind(project: Path) -> None:
    """What changed in between is gone; without a terminal nothing of it is written."""
    functions = SETUP.read_text().rpartition("\n_setup_check_java\n")[0]
    (project / "ci" / "functions.sh").write_text(functions)
    # The step lasts until two updates were seen: how soon they come is up to the machine.
    waits = "until [[ -e ci/seen ]]; do sleep 0.05; done"
    command = f"source ci/functions.sh; waits() {{ {waits}; }}; _setup_step waits waits"
    leader, follower = pty.openpty()
    process = subprocess.Popen(["bash", "-c", command], stderr=follower, cwd=project)
    os.close(follower)
    written = read_until(leader, lambda so_far: so_far.count(b"\x1b[K") == 2)
    (project / "ci" / "seen").touch()
    written += read_all(leader)
    assert process.wait(120) == 0
    lines = written.decode().split("\r\n")
    assert lines[0] == "==> waits ..."
    before, *shown, done = lines[1].split("\r\x1b[K")
    # A busy machine passes over a second now and then; what is shown grows all the same.
    seconds = [int(each.removeprefix("==> waits: ").removesuffix(" s")) for each in shown]
    assert before == ""
    assert len(seconds) >= 2
    assert seconds == sorted(set(seconds))
    assert seconds[0] >= 1
    assert re.fullmatch(r"==> waits: done in \d+ s", done)
    assert lines[2:] == [""]
    command = "source ci/functions.sh; _setup_step waits sleep 1.5"
    piped = subprocess.run(
        ["bash", "-c", command], cwd=project, capture_output=True, text=True, check=True
    )
    # One line in ten seconds at the most, where even this takes that long.
    said = r"==> waits \.\.\.\n(==> waits: \d+0 s\n)*==> waits: done in \d+ s\n"
    assert re.fullmatch(said, piped.stderr)
