"""ci/test.sh: what it makes of tests that fail, and of those that fail beside others only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / "ci"

TESTS = """
from pathlib import Path

def test_passes():
    pass

def test_fails_beside_others():
    alone = Path(__file__).with_name("alone")
    was_there = alone.exists()
    alone.touch()
    assert was_there
"""
BROKEN = "\ndef test_broken_{}():\n    assert False\n"


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    # Of the plug-ins only the one that the script needs: the others take seconds to load.
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    environment["KEYRANGE_TEST_PROCESSES"] = "1"
    return subprocess.run(
        ["bash", str(project / "ci" / "test.sh"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the script, its own environment in place, and tests of its own."""
    ci = tmp_path / "ci"
    ci.mkdir()
    shutil.copy(CI / "test.sh", ci)
    for name in ("setup.sh", "browser.sh", "check.sh"):
        (ci / name).write_text("#!/usr/bin/env bash\n")
        (ci / name).chmod(0o755)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # Not a link, by which Python would not find what is installed here.
    python.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    (tmp_path / "test_own.py").write_text(TESTS)
    return tmp_path


def test_what_fails_beside_others_only_is_named_and_run_alone(project: Path) -> None:
    ended = run(project)
    assert ended.returncode == 0, ended.stdout
    first, alone = ended.stdout.split("==> once more and alone")
    assert "1 failed, 1 passed" in first
    assert "    test_own.py::test_fails_beside_others\n" in alone
    assert "= 1 passed in" in alone


def test_what_fails_alone_too_is_red(project: Path) -> None:
    (project / "test_own.py").write_text(TESTS + BROKEN.format(1))
    ended = run(project)
    assert ended.returncode == 1
    assert "= 1 failed, 1 passed in" in ended.stdout.split("==> once more and alone")[1]


def test_many_failures_are_nobody_elses(project: Path) -> None:
    (project / "test_own.py").write_text(TESTS + "".join(map(BROKEN.format, range(10))))
    ended = run(project)
    assert ended.returncode == 1
    assert "once more" not in ended.stdout
    assert "too many failed" in ended.stderr


def test_no_test_and_a_file_that_is_none_are_red(project: Path) -> None:
    assert run(project, "-k", "nowhere").returncode == 5
    (project / "test_own.py").write_text("import nothing_of_that_name\n")
    assert run(project).returncode in (1, 2)  # xdist says one or the other
