"""ci/test.sh: what it makes of tests that fail."""

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

def test_fails_once():
    again = Path(__file__).with_name("again")
    was_there = again.exists()
    again.touch()
    if not was_there:
        raise RuntimeError("{}")
"""
LATE = "java.lang.RuntimeException: Python worker failed to connect back."


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    # Of the plug-ins only those that the script needs: the others take seconds to load.
    environment |= {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin,pytest_rerunfailures",
    }
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
    for name in ("setup.sh", "browser.sh", "classes.sh", "check.sh"):
        (ci / name).write_text("#!/usr/bin/env bash\n")
        (ci / name).chmod(0o755)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # Not a link, by which Python would not find what is installed here.
    python.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    # The tests count as compiled, for which the script would start one more pytest.
    compiled = tmp_path / "tests" / "__pycache__" / "conftest.cpython-pytest-0.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    (tmp_path / "test_own.py").write_text(TESTS.format(LATE))
    return tmp_path


def test_what_spark_gave_no_time_to_runs_once_more_and_is_named(project: Path) -> None:
    ended = run(project)
    assert ended.returncode == 0, ended.stdout
    assert "RERUN test_own.py::test_fails_once" in ended.stdout
    assert "= 2 passed, 1 rerun in" in ended.stdout


def test_whatever_else_fails_is_red(project: Path) -> None:
    (project / "test_own.py").write_text(TESTS.format("the broker was not there"))
    ended = run(project)
    assert ended.returncode == 1
    assert "= 1 failed, 1 passed in" in ended.stdout


def test_a_process_that_dies_is_red_at_once(project: Path) -> None:
    (project / "test_own.py").write_text("import os\n\ndef test_dies():\n    os._exit(3)\n")
    ended = run(project)
    assert ended.returncode != 0
    assert "test_own.py::test_dies" in ended.stdout


def test_what_cannot_be_brought_is_red(project: Path) -> None:
    (project / "ci" / "classes.sh").write_text("#!/usr/bin/env bash\nexit 3\n")
    assert run(project).returncode == 3


def test_no_test_and_a_file_that_is_none_are_red(project: Path) -> None:
    assert run(project, "-k", "nowhere").returncode == 5
    (project / "test_own.py").write_text("import nothing_of_that_name\n")
    assert run(project).returncode in (1, 2)  # xdist says one or the other
