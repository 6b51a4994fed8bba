"""What Spark imports to look data sources up must not fail: it would hide all Python sources."""

from __future__ import annotations

import subprocess
import sys

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


def test_the_blocker_blocks() -> None:
    body = f"""
for name in {BLOCKED!r}:
    try:
        __import__(name)
    except ImportError as failure:
        print(failure)
"""
    result = run(body)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"blocked: {name}" for name in BLOCKED]


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


def test_a_stream_without_tables_needs_neither_delta_nor_pandas() -> None:
    """Each process that plans or reads would spend a third of a second, and 60 MB, on them."""
    body = """
import sys
from pyspark_keyrange import DefaultSource
from keyrange.wire.columns import ColumnWriter
options = {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}
source = DefaultSource(options)
source.streamReader(source.schema())._opened().close()
constants = ColumnWriter("t", 7, ("topic", "partition"))._constants.values()
assert [each.of(2).to_pylist() for each in constants] == [["t", "t"], [7, 7]]
print(sorted({"pandas", "deltalake", "pyarrow.dataset"} & sys.modules.keys()))
"""
    command = [sys.executable, "-c", body]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[]\n"
