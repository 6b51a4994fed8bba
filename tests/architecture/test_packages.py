"""Wheel and sdist: the same bytes every time, with what belongs into them and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("connector", "jobs", "conf", "tests")
SOURCE_DATE_EPOCH = "1750000000"


def project(into: Path) -> Path:
    """What a fresh clone would hold, as far as packages are made of it."""
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, into / name, ignore=left_out)
    for file in [*ROOT.glob("*.md"), ROOT / "LICENSE", ROOT / "pyproject.toml"]:
        shutil.copy(file, into)
    return into


def build(place: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    subprocess.run(
        command,
        cwd=place,
        env=os.environ | {"SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH},
        capture_output=True,
        check=True,
        timeout=120,
    )
    return into


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The packages of two copies of the project, of which one has been used."""
    home = tmp_path_factory.mktemp("packages")
    fresh, used = project(home / "fresh"), project(home / "elsewhere" / "used")
    for file in used.rglob("*"):
        os.utime(file, (1_600_000_000, 1_600_000_000))
    (used / "connector" / "keyrange" / "__pycache__").mkdir()
    (used / "connector" / "keyrange" / "__pycache__" / "parsing.cpython-311.pyc").touch()
    return build(fresh, home / "first"), build(used, home / "second")


@pytest.fixture
def wheel(built: tuple[Path, Path]) -> zipfile.ZipFile:
    [found] = built[0].glob("*.whl")
    return zipfile.ZipFile(found)


@pytest.fixture
def in_sdist(built: tuple[Path, Path]) -> set[str]:
    [found] = built[0].glob("*.tar.gz")
    with tarfile.open(found) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_the_same_sources_make_the_same_bytes(built: tuple[Path, Path]) -> None:
    first, second = ({each.name: each.read_bytes() for each in made.iterdir()} for made in built)
    assert sorted(Path(name).suffix for name in first) == [".gz", ".whl"]
    assert first == second


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    expected = {
        file.relative_to(ROOT / "connector").as_posix()
        for package in ("keyrange", "pyspark_keyrange")
        for file in (ROOT / "connector" / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert names == expected
    assert {"keyrange/py.typed", "keyrange/schemas/documents.json"} <= names


def test_the_sdist_holds_the_guides_and_no_caches(in_sdist: set[str]) -> None:
    found = (ROOT / "connector" / "guides").rglob("*")
    guides = {each.relative_to(ROOT).as_posix() for each in found if each.is_file()}
    assert len(guides) > 8
    assert guides <= in_sdist
    assert {
        "README.md",
        "OPTIONS.md",
        "LICENSE",
        "conf/keyrange.toml",
        "jobs/ingest.py",
    } <= in_sdist
    assert [name for name in in_sdist if "__pycache__" in name or name.endswith(".pyc")] == []


def test_the_metadata_have_the_extras_and_the_command(wheel: zipfile.ZipFile) -> None:
    read: Callable[[str], str] = lambda name: wheel.read(name).decode()  # noqa: E731
    [info] = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(read(f"{info}/METADATA"))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(declared["optional-dependencies"])
    required = metadata.get_all("Requires-Dist", [])
    # pyspark is brought by an extra only: clusters have their own.
    assert [each for each in required if "pyspark" in each and "extra ==" not in each] == []
    assert any(each.startswith("pyspark") and "extra == 'spark'" in each for each in required)
    assert metadata["Version"] == declared["version"]
    assert "keyrange = keyrange.cli.main:main" in read(f"{info}/entry_points.txt")
