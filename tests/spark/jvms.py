"""What each JVM runs with that a test or a nemesis starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from project.forms import FORM

# ci/classes.sh makes both.
SPARK_CLASSES: Final = Path(sys.prefix) / "spark-classes.jsa"
BROKER_CLASSES: Final = Path(sys.prefix) / "broker-classes.jsa"

# No JVM of a test lives long enough to earn back what its best compiler costs: a quarter of the
# time of two cores. With that one alone a JVM keeps 48 MB of compiled code, which the Spark that a
# test process shares fills: it threw code away and compiled it again (a fifth of its CPU).
_COMPILING = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
# Hadoop starts a program for each file of a checkpoint, and a JVM starts a helper for each program,
# which costs more than the program.
_STARTING = ("-Djdk.lang.Process.launchMechanism=VFORK",)
# A JVM of which it is no archive would say so on its standard output.
_SHARED = (f"-XX:SharedArchiveFile={SPARK_CLASSES}", "-Xlog:disable")
# Spark reads them where no job says otherwise. Not in a file of defaults: its directory would be on
# the class path, and a JVM with a directory there uses no archive.
_SPARK = {
    "spark.ui.enabled": "false",
    # Compiling code for each of many short queries costs a sixth of a test's CPU.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The defaults of Spark and Delta are for clusters, and tables here have some kilobytes.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
# Spark has two ways to write a checkpoint. On a local disk its usual one runs `readlink` three
# times for each file, a sixth of what a short query costs. The long form and that of other
# platforms stay with it.
if FORM in ("fast", "ordinary"):
    _SPARK["spark.sql.streaming.checkpointFileManagerClass"] = (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )


def tool_options() -> str:
    """JAVA_TOOL_OPTIONS: what the command line of a JVM says comes after it and wins."""
    shared = _SHARED if SPARK_CLASSES.exists() else ()
    defaults = (f"-D{name}={value}" for name, value in _SPARK.items())
    return " ".join([*_COMPILING, *_STARTING, *shared, *defaults])
