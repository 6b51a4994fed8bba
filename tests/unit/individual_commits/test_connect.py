"""What Spark Connect asks of the wrapper: it travels pickled, and calls only what Connect has.

What a client has is read in its source; test_spark_connect.py runs jobs on a server.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import keyrange
from keyrange import individual_commits
from keyrange.errors import InvalidError
from keyrange.individual_commits.batch_in_checkpoint import Planned, check_query
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.model.checkpoint import Checkpoint

HERE = Path(individual_commits.__file__).parent
CONNECT = Path(pyspark.__file__).parent / "sql" / "connect"
OPTIONS = {
    "kafka.bootstrap.servers": "localhost:9",
    "subscribe": "t",
    "commitMode": "individual",
    "commitTable": "/tables/commits",
}


def methods(path: Path, name: str) -> set[str]:
    """The public names of a class, from its source."""
    [found] = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return {node.name for node in found.body if isinstance(node, ast.FunctionDef)}


def attributes() -> set[str]:
    """Whatever the room's modules take of anything."""
    return {
        node.attr
        for path in HERE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }


def test_only_what_connect_has_is_called_of_data_frames() -> None:
    classic = {name for name in dir(ClassicDataFrame) if not name.startswith("__")}
    used = attributes() & classic
    assert used >= {"mapInArrow", "inputFiles", "write", "sparkSession", "isEmpty"}
    assert used - methods(CONNECT / "dataframe.py", "DataFrame") == set()
    # What a classic session alone has: `check_query` does without where there is none.
    assert attributes() & {"_jdf", "_jvm", "sparkContext", "rdd", "_sc"} == {"sparkContext"}
    connected: Any = SimpleNamespace()
    check_query(connected, Planned("q", 0, Checkpoint({}), Checkpoint({}), -1), "/c")
    assert "applyInArrow" in methods(CONNECT / "group.py", "GroupedData")
    assert "createDataFrame" in methods(CONNECT / "session.py", "SparkSession")


def body(batch: DataFrame, batch_id: int) -> None:
    keyrange.acknowledge(keyrange.materialize(batch))


@pytest.mark.ordinary
def test_the_wrapper_travels_without_a_session_and_is_another_run_where_it_arrives() -> None:
    wrapped = keyrange.each_batch(body, OPTIONS, "/checkpoints/q")
    data = CloudPickleSerializer().dumps(wrapped)
    program = (
        "import sys\n"
        "from pyspark.serializers import CPickleSerializer\n"
        "wrapped = CPickleSerializer().loads(sys.stdin.buffer.read())\n"
        "from pyspark.sql import SparkSession\n"
        "assert SparkSession.getActiveSession() is None\n"
        "print(wrapped.checkpoint, wrapped.options.commits.table, wrapped._run)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True
    )
    assert done.stdout.decode().split() == ["/checkpoints/q", "/tables/commits", "None"]


def test_a_run_that_has_begun_does_not_travel() -> None:
    wrapped = keyrange.each_batch(body, OPTIONS, "/checkpoints/q")
    assert isinstance(wrapped, EachBatch)
    begun: Any = object()
    wrapped._run = begun
    serializer = CloudPickleSerializer()
    assert serializer.loads(serializer.dumps(wrapped))._run is None


def test_options_are_checked_where_the_job_is_written() -> None:
    with pytest.raises(InvalidError, match="commitMode"):
        keyrange.each_batch(body, {**OPTIONS, "commitMode": "batch"}, "/checkpoints/q")
