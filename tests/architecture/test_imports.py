"""What Spark imports to look data sources up must not fail: it would hide all Python sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tables.commit_contract import SOURCE
from tables.delta_commits import COMMITS, table_at

ROOT = Path(__file__).parents[2]
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


def imported(body: str) -> str:
    command = [sys.executable, "-c", "import sys\n" + body]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_query_that_starts_imports_what_plans_it_and_no_more() -> None:
    """Each process that plans would spend half a second on the rest, and 60 MB."""
    body = """
from pyspark_keyrange import DefaultSource
options = {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}
source = DefaultSource(options)
source.streamReader(source.schema())._opened().close()
heavy = {"pandas", "deltalake", "numba", "pyarrow.compute", "kafka.admin", "http.client"}
names = ("guard.model.enforcement", "source.guard_admission", "members.model.late_binding")
heavy |= {f"keyrange.{name}" for name in names}
print(sorted(heavy & sys.modules.keys()))
"""
    assert imported(body) == "[]\n"
    job = "import keyrange.jobs.data_source\n"
    heavy = '{"pandas", "deltalake", "numba", "pyarrow.compute", "kafka.admin"}'
    assert imported(f"{job}print(sorted({heavy} & sys.modules.keys()))") == "[]\n"


def test_a_task_imports_neither_delta_nor_pandas() -> None:
    body = """
from keyrange.wire.columns import ColumnWriter
constants = ColumnWriter("t", 7, ("topic", "partition"))._constants.values()
assert [each.of(2).to_pylist() for each in constants] == [["t", "t"], [7, 7]]
print(sorted({"pandas", "deltalake", "pyarrow.dataset"} & sys.modules.keys()))
"""
    assert imported(body) == "[]\n"


def test_commits_are_read_without_pandas(tmp_path: Path) -> None:
    """Whose import takes longer than all else that a query does before its first batch."""
    table = table_at(tmp_path)
    for commit in COMMITS:
        table.append(commit)
    body = f"""
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
table = open_commit_table(CommitOptions(table={str(tmp_path)!r}), {SOURCE!r})
print(table.known().seq, table.last_source({COMMITS[0].group!r}) is None)
print(sorted({{"pandas", "pyarrow.dataset", "numpy.ma"}} & sys.modules.keys()))
"""
    assert imported(body) == f"{len(COMMITS)} False\n[]\n"


def test_the_clients_of_kafka_python_are_there_for_who_asks() -> None:
    body = """
import keyrange.kafka.cluster
print("kafka.admin" in sys.modules)
import kafka
print(kafka.KafkaConsumer.__name__, kafka.__version__ == kafka.version.__version__)
from kafka import *
print(KafkaProducer.__name__, hasattr(kafka, "nothing"))
"""
    assert imported(body) == "False\nKafkaConsumer True\nKafkaProducer False\n"


def test_the_python_for_spark_does_not_import_pyspark_from_the_zip() -> None:
    home = Path(pyspark.__file__).parent
    [py4j] = (home / "python" / "lib").glob("py4j-*.zip")
    given = [
        home / "python" / "lib" / "pyspark.zip",
        py4j,
        home / "jars" / "spark-core_2.13-4.2.0.jar",
    ]
    path = os.pathsep.join(map(str, [*given, "one", "two words"]))
    environment = os.environ | {"KEYRANGE_PYTHON": sys.executable, "PYTHONPATH": path}
    body = "import os, pyspark; print(os.environ['PYTHONPATH'], pyspark.__file__)"
    command = [str(ROOT / "conf" / "spark-python"), "-c", body]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert told.stdout == f"one{os.pathsep}two words {pyspark.__file__}\n"
