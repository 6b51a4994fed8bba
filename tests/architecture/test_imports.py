"""What Spark imports to look data sources up must not fail: it would hide all Python sources."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = ("kafka", "numba", "llvmlite", "numpy", "pyarrow", "cramjam", "deltalake", "pandas")

PROGRAM = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocked())
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM + body]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", BLOCKED)
def test_the_blocker_blocks(name: str) -> None:
    result = run(f"import {name}")
    assert result.returncode == 1
    assert f"ImportError: blocked: {name}" in result.stderr


def test_spark_finds_the_source_where_nothing_else_is_installed() -> None:
    result = run("import pyspark_keyrange; print(pyspark_keyrange.DefaultSource.name())")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "keyrange\n"


def test_options_are_checked_and_a_schema_is_given_without_them() -> None:
    """In schema(), which Spark calls first: no connection, no heavy import."""
    body = """
from pyspark_keyrange import DefaultSource
options = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "includeHeaders": "true"}
print(DefaultSource(options).schema().fieldNames()[-1])
"""
    result = run(body)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "headers\n"
