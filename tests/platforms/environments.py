"""Environments with another Python, or with packages in other versions, made by venv and pip.

Each is made once, in .venv-platforms, and anew when what it holds has changed. Versions are those
of the lock but for those that are named, and keyrange is the wheel of this working tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = ROOT / ".venv-platforms" / "environments"
LOCK: Final = ROOT / "ci" / "requirements.txt"


def run(*command: str | Path, **environment: str) -> str:
    """What a command printed that ended well."""
    ended = subprocess.run(
        [*map(str, command)],
        env={**plain_environment(), **environment},
        cwd=PLACE,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


def plain_environment() -> dict[str, str]:
    """That of this process without what leads a Python to this working tree."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def python_of(version: str) -> str:
    """A Python of a version such as "3.12"; skips where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
    for candidate in filter(None, found):
        # Run, not only found: shims are on PATH for versions that are not there.
        command = [candidate, "-c", "import ensurepip, venv"]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            return str(candidate)
    pytest.skip(f"there is no Python {version}")


def made(name: str, python: str, *installs: Sequence[str | Path]) -> Path:
    """The Python of an environment into which pip has installed one list of arguments after the
    other. The name is that of its directory."""
    place, python = PLACE / name, os.path.realpath(python)
    wanted = hashlib.sha256(repr((python, installs, LOCK.read_bytes())).encode()).hexdigest()
    stamp = place / ".made"
    own = place / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        PLACE.mkdir(parents=True, exist_ok=True)
        run(python, "-m", "venv", "--clear", place)
        for arguments in installs:
            run(own, "-m", "pip", "install", "--disable-pip-version-check", *arguments)
        stamp.write_text(wanted)
    return own


def locked(name: str, python: str = sys.executable, changes: Iterable[str] = ()) -> Path:
    """An environment with all that the lock has, and `changes` such as "pyspark==4.2.1" in their
    place; with the wheel."""
    lock = ["--require-hashes", "-r", LOCK]
    others = [["--no-deps", *changes]] if changes else []
    own = made(name, python, lock, *others)
    install_wheel(own, "--no-deps", "--force-reinstall")
    return own


def constraints() -> Path:
    """The versions of the lock for `pip install -c`: what is not asked for is not installed."""
    path = PLACE / "constraints.txt"
    PLACE.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(re.findall(r"^[\w.\[\],-]+==\S+", LOCK.read_text(), re.M)) + "\n")
    return path


def install_wheel(python: Path, *arguments: str | Path, extras: str = "") -> None:
    """Install the wheel of this working tree, with extras such as "[commits]"."""
    run(python, "-m", "pip", "install", *arguments, f"{wheel()}{extras}")


@cache
def wheel() -> Path:
    """The wheel of this working tree, built by hatchling, which the lock has."""
    into = PLACE / "wheel"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", into, ROOT]
    run(*command)
    [built] = into.glob("keyrange-*.whl")
    return built
