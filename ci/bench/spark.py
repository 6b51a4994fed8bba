"""One Spark session for all sides of a comparison, and what its jobs and Python workers did."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import psutil
from pyspark.sql import DataFrame, SparkSession

from keyrange.embedded import jars

_CONF = Path(__file__).parents[2] / "conf"
_SHIPPED = _CONF / "spark-defaults.conf"
# Its processes do not compile pyspark anew.
RECOMMENDED_PYTHON = str(_CONF / "spark-python")
# Those of the settings that keyrange ships that have to do with reading.
_PREFIXES = ("spark.python.", "spark.sql.execution.")
_DELTA_PREFIXES = ("spark.sql.extensions", "spark.sql.catalog.")
CONFS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Else each look at a table's log takes 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
}


@contextmanager
def session(
    directory: Path,
    master: str = "local[2]",
    delta: bool = False,
    confs: Mapping[str, str] = MappingProxyType({}),
    python: str = sys.executable,
    avro: bool = False,
) -> Iterator[SparkSession]:
    """A session that knows both connectors, and Delta and `from_avro` where they are asked for.
    `python` runs what Spark starts."""
    os.environ |= {"PYSPARK_PYTHON": python, "KEYRANGE_PYTHON": sys.executable}
    builder = SparkSession.builder.master(master).appName("keyrange-bench")
    # The same for every side: what keyrange recommends, and as few distractions as can be.
    prefixes = (*_PREFIXES, *(_DELTA_PREFIXES if delta else ()))
    for name, value in {**_shipped(prefixes), **CONFS, **confs}.items():
        builder = builder.config(name, value)
    sets = [jars.spark_kafka(), *[jars.delta()] * delta, *[jars.spark_avro()] * avro]
    paths = [path for each in sets for path in jars.resolve(each)]
    spark = (
        builder.config("spark.jars", ",".join(map(str, paths)))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def _shipped(prefixes: tuple[str, ...]) -> dict[str, str]:
    pairs = (line.split(maxsplit=1) for line in _SHIPPED.read_text().splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if pair and pair[0].startswith(prefixes)}


def seconds_to_read(frame: DataFrame) -> float:
    """How long it takes to read all rows and columns of a frame, planning included."""
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def python_workers() -> list[psutil.Process]:
    """This process's Spark's Python workers: what the daemon of its JVM has forked."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            if _is_daemon(process) and parent is not None and _is_daemon(parent):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def _is_daemon(process: psutil.Process) -> bool:
    # A fork keeps the command line of the daemon.
    return "pyspark.daemon" in process.cmdline()
