"""YARN: pinned queries in client and in cluster mode, with the environment as an archive."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from brokers.real_broker import Topics
from faults.key_feeder import Feeder
from keyrange.embedded import jars
from keyrange.members.model.assignment import Assignment
from keyrange.members.table.assignments import open_assignments
from platforms import environments
from queries.ingesting import Ingest
from queries.pinned_cluster import PATIENCE_S, STEADY, pinned_cluster
from yarn import NODES, YarnCluster, yarn_cluster

ROOT = Path(__file__).parent.parent.parent
PARTITIONS = 3
# Where YARN unpacks the archive, and where a driver in client mode has it.
PACKED_PYTHON = "./environment/bin/python"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes hosts with unshare")


def properties() -> dict[str, str]:
    """The confs that users are told to submit with."""
    files = [ROOT / "conf" / name for name in ("spark-defaults.conf", "members/yarn.conf")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    confs = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    # Not every session here has Delta.
    return {name: value for name, value in confs.items() if not name.startswith("spark.sql.")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("yarn")


@pytest.fixture(scope="module")
def yarn(home: Path) -> Iterator[YarnCluster]:
    with yarn_cluster(home / "cluster", home / "slots") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(home: Path) -> Path:
    """An environment with the wheel, packed as connector/guides/deploy.md says."""
    packages = [f"{environments.wheel()}[commits]", "pandas"]
    constraints = ["-c", environments.constraints()]
    python = environments.made("packed", sys.executable, [*constraints, *packages])
    environments.install_wheel(python, "--no-deps", "--force-reinstall")
    archive = home / "environment.tar.gz"
    environments.run(
        sys.executable, "-m", "venv_pack", "-q", "-p", python.parents[1], "-o", archive
    )
    return archive


def submitted_as_the_guide_says() -> list[str]:
    """spark-submit's options of connector/guides/deploy.md, beside the master."""
    text = (ROOT / "connector" / "guides" / "deploy.md").read_text()
    _, program, command = text.partition("spark-submit --master yarn")
    lines = command.partition("```")[0].replace("\\\n", "")
    options = shlex.split(lines.replace("...", ""))
    assert program
    assert "--archives" in options
    return options


def confs_of(yarn: YarnCluster) -> dict[str, str]:
    """Executors find what the archive has, and nothing of this environment."""
    return yarn.confs | properties() | {"spark.executorEnv.PYTHONPATH": ""}


@pytest.mark.timeout(1800)
def test_client_mode_keeps_key_ranges_with_their_nodes(
    topics: Topics, home: Path, yarn: YarnCluster, environment: Path
) -> None:
    """The driver is where the environment is unpacked; executors have it from the archive."""
    topic = topics.create_topic("client", PARTITIONS)
    place = home / "client"
    shutil.unpack_archive(environment, place / "environment", filter="fully_trusted")
    confs = confs_of(yarn) | {"spark.archives": f"{environment}#environment"}
    # Spark itself, as spark-submit gives it to a driver.
    spark = jars.pyspark_jars().parent
    packages = os.pathsep.join(map(str, sorted(spark.glob("python/lib/*.zip"))))
    given = yarn.environment | {"SPARK_HOME": str(spark), "PYTHONPATH": packages}
    given["PYSPARK_PYTHON"] = PACKED_PYTHON
    python = str(place / PACKED_PYTHON)
    roots = list(yarn.nodes.values())
    with pinned_cluster(
        topics, place, "yarn", confs, roots, environment=given, python=python
    ) as cluster:
        with Feeder(topics, topic, PARTITIONS) as feeder:
            # The same path on each node.
            slots = {"slot.directory": str(home / "slots")}
            run = cluster.start("client", topic, memberNames="static", **slots)
            before = run.settle(2)
            assert set(before.slots) == members_of(topic)
            count = len(run.epochs())
            for executor in cluster.executors():
                cluster.kill_executor(executor)
                run.more_batches()
                cluster.has_executors(2)
                assert run.settle(2) == before
            assert len(run.epochs()) == count
        run.check(feeder.sent)
    for node in NODES:
        [held] = (home / f"slots-{node}").glob("keyrange-*/host")
        assert held.read_text().strip() == node


def members_of(topic: str) -> set[str]:
    return {f"{topic}-{node}-0" for node in NODES}


@pytest.mark.timeout(1800)
def test_cluster_mode_goes_on_after_the_loss_of_executor_and_driver(
    topics: Topics, home: Path, yarn: YarnCluster, environment: Path
) -> None:
    """A job of jobs/: no key range moves, and the table has each record once."""
    topic = topics.create_topic("cluster", PARTITIONS)
    place = home / "cluster-mode"
    place.mkdir()
    (place / environment.name).symlink_to(environment)
    confs = confs_of(yarn) | {"spark.driver.memory": "512m"}
    given = yarn.environment | {"PYTHONPATH": ""}
    options = STEADY | {
        "memberNames": "static",
        "memberGroup": topic,
        "memberTable": str(place / "members"),
        "slot.directory": str(home / "slots"),
    }
    del options["startingOffsets"]
    more = ["--trigger", "0 seconds", *(f"--option={name}={options[name]}" for name in options)]
    submit = submitted_as_the_guide_says()
    run = Ingest(topics, topic, place, "yarn", *more, confs=confs, environment=given, submit=submit)

    def wait(condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert run.process.poll() is None, run.text()[-3000:]
            assert time.monotonic() < until, run.text()[-3000:]
            time.sleep(0.2)

    def rows() -> int:
        try:
            return int(DeltaTable(str(run.table)).count())
        except TableNotFoundError:
            return 0

    def grows() -> None:
        before = rows()
        wait(lambda: rows() > before)

    def assignment() -> Assignment | None:
        stored = open_assignments(str(place / "members"), topic, {}).last()
        return stored.assignment if stored is not None else None

    def is_shared() -> bool:
        found = assignment()
        return found is not None and len(found.slots) == len(NODES)

    try:
        with Feeder(topics, topic, PARTITIONS) as feeder:
            wait(is_shared)
            before = assignment()
            for lost in ("ExecutorBackend", "ApplicationMaster"):
                gone = yarn.processes(lost)[0]
                gone.kill()
                wait(lambda lost=lost, gone=gone: gone not in yarn.processes(lost))
                wait(lambda: len(yarn.processes("ExecutorBackend")) == len(NODES))
                grows()
            grows()
        wait(lambda: rows() >= feeder.sent)
        assert assignment() == before
    finally:
        if run.process.poll() is None:
            run.kill_all()
    assert before is not None
    assert set(before.slots) == members_of(topic)
    values = DeltaTable(str(run.table)).to_pyarrow_table(columns=["value"])["value"].to_pylist()
    assert sorted(int(value) for value in values) == list(range(feeder.sent))
