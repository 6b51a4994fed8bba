"""What all tests share: one broker, one Spark session, and the order: fast tests first."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytest_plugins = ["brokers", "executors"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first; what needs Spark or a broker says so by its fixtures."""
    order = {"unit": 0, "architecture": 1, "property": 2}
    root = Path(str(config.rootpath)) / "tests"

    def rank(item: pytest.Item) -> int:
        return order.get(item.path.relative_to(root).parts[0], 3)

    items.sort(key=rank)
    if not config.getoption("-m") and not os.environ.get("KEYRANGE_SOAK"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="a long form: run ci/soak.sh"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with Delta, as conf/spark-defaults.conf sets it up."""
    from keyrange.embedded import jars
    from keyrange.errors import KeyrangeError

    os.environ["PYSPARK_PYTHON"] = sys.executable
    home = tmp_path_factory.mktemp("spark")
    jar_paths = jars.resolve(jars.delta())
    # Tests beside the JVM connector say by themselves when they cannot have it.
    with suppress(KeyrangeError):
        jar_paths += jars.resolve(jars.spark_kafka())
    session = (
        SparkSession.builder.master("local[2]")
        .appName("keyrange tests")
        .config("spark.jars", ",".join(map(str, jar_paths)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
