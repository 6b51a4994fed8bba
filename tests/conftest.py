"""What the tests of a process share: one broker, one Spark session. And their order: fast tests
first, then the longest file, so that nobody waits for it at the end."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from keyrange.embedded import process
from project.forms import EXAMPLES, FORM, LONGER, left_out
from spark import forked_queries, jvms
from spark.worker_python import WORKER_PYTHON

# What a process imports and collects stays: looking over it again and again takes 2 s of its CPU.
gc.disable()

os.environ.setdefault("JAVA_TOOL_OPTIONS", jvms.tool_options())
if jvms.BROKER_CLASSES.exists():
    process.JVM_OPTIONS += (f"-XX:SharedArchiveFile={jvms.BROKER_CLASSES}",)

# Typer makes all commands anew for each call of one, which tests do by the hundred.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)

# A shell ignores Ctrl-C for what it starts in the background, and so would whom a test sends one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Likewise nohup with a hang-up; that one still does nothing here.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

pytest_plugins = [
    "brokers.real_broker",
    "faults.damaged_tables",
    "queries.executors",
    "spark.handmade_batches",
]

settings.register_profile(
    "keyrange",
    # The ordinary run tries the same examples every time, so that it fails by what was changed.
    derandomize=FORM != "long",
    max_examples=EXAMPLES[FORM],
    deadline=None,
    suppress_health_check=(
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ),
)
settings.load_profile("keyrange")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first; each form leaves out what is of longer ones, where nothing is asked for."""
    places = {"unit": 0, "architecture": 1, "property": 2, "parity": 3}
    root = Path(str(config.rootpath)) / "tests"
    order = {item: places.get(item.path.relative_to(root).parts[0], 4) for item in items}
    items.sort(key=lambda item: order[item])
    if FORM == "ordinary" and any(place > 2 for place in order.values()):
        forked_queries.start()
    longer = [item for item in items if not LONGER[FORM].isdisjoint(item.keywords)]
    if longer and not config.getoption("-m"):
        items[:] = [item for item in items if LONGER[FORM].isdisjoint(item.keywords)]
        config.hook.pytest_deselected(items=longer)
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(left_out())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with Delta, as conf/spark-defaults.conf sets it up; of a Spark that Delta
    has no jars for, without."""
    import pyspark

    from keyrange.embedded import jars
    from keyrange.errors import KeyrangeError

    os.environ["PYSPARK_PYTHON"] = WORKER_PYTHON
    home = tmp_path_factory.mktemp("spark")
    confs: dict[str, str] = {}
    if pyspark.__version__.rpartition(".")[0] == jars.SPARK_VERSION.rpartition(".")[0]:
        confs = jars.delta_confs()
        # Tests beside Spark's own connectors say by themselves when they cannot have them.
        for each in (jars.spark_kafka(), jars.spark_avro()):
            with suppress(KeyrangeError):
                paths = map(str, jars.resolve(each))
                confs["spark.jars"] = ",".join([confs["spark.jars"], *paths])
    builder = SparkSession.builder.master("local[2]").appName("keyrange tests")
    for name, value in confs.items():
        builder = builder.config(name, value)
    session = (
        builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def no_query_left(spark: SparkSession) -> Iterator[None]:
    """Ends the queries that a test leaves behind."""
    yield
    for query in spark.streams.active:
        query.stop()
