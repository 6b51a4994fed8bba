"""What the tests of a process share: one broker, one Spark session. And their order: fast tests
first, then the longest file, so that nobody waits for it at the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

# No JVM of a test lives long enough to earn back what its best compiler costs: a quarter of the
# time of two cores.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell ignores Ctrl-C for what it starts in the background, and so would whom a test sends one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Likewise nohup with a hang-up; that one still does nothing here.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

pytest_plugins = ["brokers", "damaged_tables", "executors", "handmade_batches"]

# The ordinary run tries the same examples every time, so that it fails by what was changed;
# KEYRANGE_HYPOTHESIS_PROFILE=soak tries many more, others each time.
_USUAL = settings(
    deadline=None,
    suppress_health_check=(
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ),
)
settings.register_profile("ci", _USUAL, max_examples=100, derandomize=True)
settings.register_profile("soak", _USUAL, max_examples=2_000)
settings.load_profile(os.environ.get("KEYRANGE_HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first; what needs Spark or a broker says so by its fixtures."""
    order = {"unit": 0, "architecture": 1, "property": 2, "parity": 3}
    root = Path(str(config.rootpath)) / "tests"

    def rank(item: pytest.Item) -> int:
        return order.get(item.path.relative_to(root).parts[0], 4)

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
    confs = jars.delta_confs()
    # Tests beside the JVM connector say by themselves when they cannot have it.
    with suppress(KeyrangeError):
        kafka_jars = map(str, jars.resolve(jars.spark_kafka()))
        confs["spark.jars"] = ",".join([confs["spark.jars"], *kafka_jars])
    builder = SparkSession.builder.master("local[2]").appName("keyrange tests")
    for name, value in confs.items():
        builder = builder.config(name, value)
    session = (
        builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
