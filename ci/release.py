"""What a release needs, as far as files say it: version, changelog, and the packages as they are.

    release.py changelog      the version, if the changelog's first heading is of its release
    release.py packages DIR   names and sums of wheel and sdist in DIR, if they are fit to publish

Anything that is wrong goes to stderr, all at once, and the exit code is 1. Nothing is published.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IN_SDIST = {
    *("README.md", "MIGRATION.md", "OPTIONS.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("ARCHITECTURE.md", "LICENSE", "pyproject.toml", "PKG-INFO"),
    *("connector/keyrange/__init__.py", "connector/guides/reading.md", "jobs/ingest.py"),
    *("conf/spark-defaults.conf", "tests/project/snippets.py"),
}
IN_WHEEL = {
    *("keyrange/__init__.py", "keyrange/py.typed", "keyrange/schemas/documents.json"),
    "pyspark_keyrange/__init__.py",
}
# What belongs to a machine or an editor, and to no package.
_STRAY = re.compile(r"__pycache__|\.pyc$|\.venv|\.git/|\.ipynb$|\.orig$|\.env$")


def project(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return found


def changelog_problems(version: str, changelog: str) -> Iterator[str]:
    """The first heading names the version and the day: `## 1.2.3 (2031-02-03)`."""
    heading = re.search(r"^## (.+)$", changelog, re.M)
    said = heading[1] if heading else ""
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", said):
        yield f"CHANGELOG.md begins with '## {said}', and not with '## {version} (YYYY-MM-DD)'"
    if len(re.findall(rf"^## {re.escape(version)}\b", changelog, re.M)) > 1:
        yield f"CHANGELOG.md has version {version} twice"


def package_problems(root: Path, directory: Path) -> Iterator[str]:
    """What is wrong with the wheel and the sdist in a directory, which has nothing else."""
    declared = project(root)
    version = declared["version"]
    wheel = directory / f"keyrange-{version}-py3-none-any.whl"
    sdist = directory / f"keyrange-{version}.tar.gz"
    found = sorted(each.name for each in directory.iterdir())
    if found != sorted((wheel.name, sdist.name)):
        yield f"{directory} has {', '.join(found) or 'nothing'}, and not one wheel and one sdist"
        return
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
        metadata = archive.read(f"keyrange-{version}.dist-info/METADATA").decode()
    with tarfile.open(sdist) as packed:
        in_sdist = {name.partition("/")[2] for name in packed.getnames()}
        about = packed.extractfile(f"keyrange-{version}/PKG-INFO")
        sdist_metadata = about.read().decode() if about else ""
    for name, there, needed in (("wheel", in_wheel, IN_WHEEL), ("sdist", in_sdist, IN_SDIST)):
        if missing := sorted(needed - there):
            yield f"the {name} lacks {', '.join(missing)}"
        if stray := sorted(each for each in there if _STRAY.search(each)):
            yield f"the {name} has {', '.join(stray)}"
    if metadata != sdist_metadata:
        yield "wheel and sdist have different metadata"
    yield from metadata_problems(declared, Parser().parsestr(metadata), root)


def metadata_problems(declared: dict[str, Any], metadata: Message, root: Path) -> Iterator[str]:
    """What an index would show, against pyproject.toml and README."""
    expected = {
        "Name": declared["name"],
        "Version": declared["version"],
        "Summary": declared["description"],
        "Requires-Python": declared["requires-python"],
        "License-Expression": declared["license"],
        "Description-Content-Type": "text/markdown",
    }
    for name, value in expected.items():
        if metadata[name] != value:
            yield f"{name} is {metadata[name]}, and not {value}"
    extras = set(metadata.get_all("Provides-Extra", []))
    if extras != set(declared["optional-dependencies"]):
        yield f"the extras are {', '.join(sorted(extras))}"
    if metadata.get_payload().strip() != (root / "README.md").read_text().strip():
        yield "the description is not README.md"


def main(arguments: list[str], root: Path = ROOT) -> int:
    version = project(root)["version"]
    if arguments == ["changelog"]:
        problems = list(changelog_problems(version, (root / "CHANGELOG.md").read_text()))
        said = [version]
    elif len(arguments) == 2 and arguments[0] == "packages":
        directory = Path(arguments[1])
        problems = list(package_problems(root, directory))
        said = [
            f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}"
            for each in sorted(directory.iterdir())
        ]
    else:
        sys.exit(__doc__)
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    if not problems:
        print(*said, sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
