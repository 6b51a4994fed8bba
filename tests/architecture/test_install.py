"""How keyrange is installed, and with which versions it is tested: the same on every page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from brokers.old_brokers import OLDEST
from keyrange.embedded import jars
from keyrange.text.packages import install_line
from platforms import versions
from project.snippets import PAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].keys()
# From the root of a clone, from jobs/ in it, or a wheel of this version.
_WHEEL = rf"/\S+/keyrange-{re.escape(PROJECT['version'])}-py3-none-any\.whl"
_TARGET = re.compile(rf"(?:\.|\.\.|{_WHEEL})\[(?P<extras>[a-z,]+)\]")
_LINE = re.compile(r"pipx? install (?P<quote>['\"])(?P<target>[^'\"]+)(?P=quote)")
_BY_NAME = re.compile(r"pipx?\s+install\s+['\"]?keyrange\b|keyrange\[[a-z]")


def pages_and_programs() -> list[Path]:
    jobs = sorted((ROOT / "jobs").glob("*.py"))
    return [*PAGES, *jobs, *sorted((ROOT / "connector" / "keyrange").rglob("*.py"))]


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "jobs").glob("*.py"))], ids=str)
def test_install_lines_are_of_a_clone_or_a_wheel(path: Path) -> None:
    """No index has keyrange: a line that names it there fails, or installs something else."""
    for found in _LINE.finditer(path.read_text()):
        target = _TARGET.fullmatch(found["target"])
        assert target, f"{path.name}: {found[0]}"
        assert set(target["extras"].split(",")) <= EXTRAS, f"{path.name}: {found[0]}"


def test_nothing_is_installed_by_its_name() -> None:
    files = pages_and_programs()
    assert len(files) > 200
    named = {
        path.relative_to(ROOT).as_posix(): found[0]
        for path in files
        if (found := _BY_NAME.search(path.read_text()))
    }
    assert named == {}


def test_extras_that_errors_name_are_there() -> None:
    named = {
        extra
        for path in (ROOT / "connector" / "keyrange").rglob("*.py")
        for extra in re.findall(r"install_line\(['\"](\w+)['\"]\)", path.read_text())
    }
    assert {"commits", "prometheus", "report"} <= named <= EXTRAS
    assert _LINE.match(install_line("report"))


def rows_of_versions() -> dict[str, dict[str, str]]:
    """The table of README, by row and column."""
    text = (ROOT / "README.md").read_text()
    head = re.search(r"^\| \| Python \|.*$", text, re.M)
    assert head
    columns, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text[head.start() :].split("\n\n", 1)[0].splitlines()
    )
    return {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}


def locked(package: str) -> str:
    lock = (ROOT / "ci" / "requirements.txt").read_text()
    found = re.search(rf"^{package}==(\S+)", lock, re.M)
    assert found
    return found[1]


def test_the_row_of_tested_versions_is_made_of_what_has_passed() -> None:
    page = (ROOT / "README.md").read_text()
    assert versions.with_row(page, versions.read()) == page


def test_each_set_up_that_is_listed_has_passed() -> None:
    """A version that is added to the list, or changed, has to run: bash ci/soak.sh platforms."""
    assert list(versions.outdated(versions.read())) == []
    assert all(each["passed"] > 0 for each in versions.read())


def test_usual_versions_are_those_of_the_project_and_the_lock() -> None:
    assert {
        "Python": PROJECT["requires-python"].removeprefix(">="),
        "Java": str(jars.JAVA_VERSION_MIN),
        "Spark": locked("pyspark"),
        "delta-spark": locked("delta-spark"),
        "deltalake": locked("deltalake"),
        "Kafka brokers": jars.KAFKA_VERSION,
    } == versions.USUAL
    assert (locked("pyspark"), locked("delta-spark")) == (jars.SPARK_VERSION, jars.DELTA_VERSION)


def test_tested_versions_are_what_the_project_says_that_it_supports() -> None:
    tested = {name: cell.split(", ") for name, cell in rows_of_versions()["tested"].items()}
    supported = [
        each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each
    ]
    assert tested["Python"] == supported
    assert tested["Kafka brokers"][0] == OLDEST
    [least, _] = re.findall(r"\d[\d.]*\d", rows_of_versions()["needed"]["deltalake"])
    assert tested["deltalake"][0] == least


def test_each_extra_for_users_is_installed_before_a_release() -> None:
    script = (ROOT / "ci" / "packaging.sh").read_text()
    listed = script.partition("<<'EXTRAS'\n")[2].partition("\nEXTRAS\n")[0].splitlines()
    assert {line.split()[0] for line in listed} == EXTRAS - {"dev", "platforms", "kerberos"}
    assert "[kerberos]" in script


def test_needed_versions_are_those_of_the_project() -> None:
    needed = rows_of_versions()["needed"]
    assert PROJECT["requires-python"] == ">=" + needed["Python"].removesuffix(" or newer")
    assert needed["Java"] == f"{jars.JAVA_VERSION_MIN} or newer"
    least, below = re.findall(r"\d[\d.]*\d", needed["Spark"])
    assert f"pyspark[sql]>={least}.0,<{below}" in PROJECT["optional-dependencies"]["spark"]
    least, below = re.findall(r"\d[\d.]*\d", needed["deltalake"])
    assert PROJECT["optional-dependencies"]["commits"] == [f"deltalake>={least},<{below}"]
    assert PROJECT["optional-dependencies"]["delta"] == [f"delta-spark=={jars.DELTA_VERSION}"]
    assert jars.DELTA_VERSION.startswith(needed["delta-spark"] + ".")
    assert OLDEST.startswith(needed["Kafka brokers"].removesuffix(" or newer") + ".")
