"""What ci/release.sh holds a release to: its changelog's heading, and what the packages hold."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "ci"))

import release  # noqa: E402

PROJECT = release.project(ROOT)
VERSION = PROJECT["version"]
WHEEL, SDIST = f"keyrange-{VERSION}-py3-none-any.whl", f"keyrange-{VERSION}.tar.gz"


@pytest.mark.parametrize(
    ("changelog", "problems"),
    [
        ("# Changelog\n\n## 1.2.3 (2031-02-03)\n\n## 1.2.2 (2031-01-01)\n", []),
        ("## 1.2.3 (unreleased)\n", ["begins with '## 1.2.3 (unreleased)'"]),
        ("## 1.2.4 (2031-02-03)\n", ["begins with '## 1.2.4 (2031-02-03)'"]),
        ("## 1x2x3 (2031-02-03)\n", ["begins with '## 1x2x3 (2031-02-03)'"]),
        ("nothing\n", ["begins with '## '"]),
        ("## 1.2.3 (2031-02-03)\n## 1.2.3 (2031-01-01)\n", ["twice"]),
    ],
)
def test_the_changelog_begins_with_the_version_and_the_day(
    changelog: str, problems: list[str]
) -> None:
    found = list(release.changelog_problems("1.2.3", changelog))
    assert len(found) == len(problems)
    assert all(expected in said for expected, said in zip(problems, found, strict=True))


def metadata(**changes: str) -> str:
    fields = {
        "Metadata-Version": "2.4",
        "Name": "keyrange",
        "Version": VERSION,
        "Summary": PROJECT["description"],
        "Requires-Python": PROJECT["requires-python"],
        "License-Expression": PROJECT["license"],
        "Description-Content-Type": "text/markdown",
    } | changes
    lines = [f"{name}: {value}" for name, value in fields.items()]
    lines += [f"Provides-Extra: {extra}" for extra in PROJECT["optional-dependencies"]]
    return "\n".join(lines) + "\n\n" + (ROOT / "README.md").read_text()


def packages(
    into: Path, in_wheel: set[str], in_sdist: set[str], about: str, about_sdist: str = ""
) -> Path:
    """A wheel and an sdist with these files, all of them empty."""
    into.mkdir()
    with zipfile.ZipFile(into / WHEEL, "w") as archive:
        for name in sorted(in_wheel):
            archive.writestr(name, "")
        archive.writestr(f"keyrange-{VERSION}.dist-info/METADATA", about)
    with tarfile.open(into / SDIST, "w:gz") as packed:
        for name in sorted(in_sdist):
            content = (about_sdist or about).encode() if name == "PKG-INFO" else b""
            entry = tarfile.TarInfo(f"keyrange-{VERSION}/{name}")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return into


def problems(directory: Path) -> str:
    return "\n".join(release.package_problems(ROOT, directory))


def test_packages_with_all_that_belongs_into_them_are_fit(tmp_path: Path) -> None:
    made = packages(tmp_path / "dist", release.IN_WHEEL, release.IN_SDIST, metadata())
    assert problems(made) == ""


def test_what_is_wrong_with_packages_is_named_all_at_once(tmp_path: Path) -> None:
    made = packages(
        tmp_path / "dist",
        release.IN_WHEEL - {"keyrange/py.typed"} | {"keyrange/__pycache__/x.pyc"},
        release.IN_SDIST - {"LICENSE"},
        metadata(Version="9.9.9", Summary="else"),
        metadata(),
    )
    assert problems(made).splitlines() == [
        "the wheel lacks keyrange/py.typed",
        "the wheel has keyrange/__pycache__/x.pyc",
        "the sdist lacks LICENSE",
        "wheel and sdist have different metadata",
        f"Version is 9.9.9, and not {VERSION}",
        f"Summary is else, and not {PROJECT['description']}",
    ]


def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    made = packages(tmp_path / "dist", release.IN_WHEEL, release.IN_SDIST, metadata())
    (made / "keyrange-0.0.1.tar.gz").touch()
    assert "keyrange-0.0.1.tar.gz" in problems(made)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the scripts and a changelog, and nothing else."""
    clone = tmp_path / "clone"
    (clone / "ci").mkdir(parents=True)
    for name in ("release.sh", "release.py"):
        shutil.copy(ROOT / "ci" / name, clone / "ci")
    # Whatever this one would make is there already.
    (clone / "ci" / "setup.sh").write_text("#!/usr/bin/env bash\n")
    (clone / "ci" / "setup.sh").chmod(0o755)
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (clone / ".gitignore").write_text(".venv\ndist\n__pycache__\n")
    shutil.copy(ROOT / "pyproject.toml", clone)
    (clone / "CHANGELOG.md").write_text(f"## {VERSION} (unreleased)\n")
    git(clone, "init", "--quiet")
    commit(clone)
    return clone


def git(clone: Path, *arguments: str) -> None:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    subprocess.run(
        ["git", *who, "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=clone,
        check=True,
        timeout=60,
    )


def commit(clone: Path) -> None:
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "a commit")


def refusal(clone: Path) -> str:
    ended = subprocess.run(
        ["bash", str(clone / "ci" / "release.sh")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    return ended.stderr


def test_a_release_is_refused_before_anything_is_built(clone: Path) -> None:
    assert "not with" in refusal(clone)
    (clone / "CHANGELOG.md").write_text(f"## {VERSION} (2031-02-03)\n")
    assert "changes that are not committed" in refusal(clone)
    commit(clone)
    git(clone, "tag", f"v{VERSION}")
    assert f"a tag v{VERSION} already" in refusal(clone)
    (clone / "dist").mkdir()
    (clone / "dist" / "file").touch()
    assert "dist is not empty" in refusal(clone)
