"""The JVMs of the tests load their classes from the archives that ci/classes.sh made: a JVM that
cannot use its archive says nothing, and takes half as much CPU again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from keyrange.embedded.broker import EmbeddedCluster
from project.forms import FORM
from spark import jvms


@pytest.mark.skipif(not jvms.SPARK_CLASSES.exists(), reason="ci/classes.sh was not run")
def test_spark_loads_archived_classes(spark: SparkSession) -> None:
    assert str(jvms.SPARK_CLASSES) in mapped_files(spark.sparkContext._gateway.proc.pid)


@pytest.mark.skipif(not jvms.BROKER_CLASSES.exists(), reason="ci/classes.sh was not run")
def test_a_broker_loads_archived_classes(broker: EmbeddedCluster) -> None:
    assert str(jvms.BROKER_CLASSES) in mapped_files(broker.nodes[0].pid)


def test_spark_has_the_defaults_of_the_tests(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "false"
    assert spark.conf.get("spark.databricks.delta.snapshotPartitions") == "2"
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "usual")
    assert ("FileSystemBased" in str(manager)) == (FORM in ("fast", "ordinary"))


def mapped_files(pid: int) -> set[str]:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {line.split()[-1] for line in maps.splitlines() if "/" in line}
