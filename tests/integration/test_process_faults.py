"""kill -9 of a driver and of an executor while a function works: every record once, in the sink or
among the dead letters."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from brokers import Record, Topics
from ingesting import cmdline, kill_when_busy
from keyrange.embedded import jars
from keyrange.options.commits import CommitOptions

RECORDS = 2000
JOB = Path(__file__).parents[1] / "processing.py"


class Job:
    """A run of the job, with executors in processes of their own."""

    def __init__(self, topics: Topics, topic: str, home: Path, master: str, by: str) -> None:
        self.log = home / f"job-{time.monotonic_ns()}.log"
        delta_jars = ",".join(map(str, jars.resolve(jars.delta())))
        confs = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "spark-submit"),
                    *("--master", master, "--jars", delta_jars),
                    *(f"--conf={name}={value}" for name, value in confs.items()),
                    *(str(JOB), topics.cluster.bootstrap_servers, topic, str(home), by),
                ],
                stdout=log,
                stderr=log,
                cwd=home,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )

    def kill_all(self) -> None:
        """kill -9 of everything: JVM, driver's Python, workers, executors."""
        if self.process.poll() is not None:
            return
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if cmdline(child):
                child.kill()
        self.process.kill()
        self.process.wait(30)


def wait_for(job: Job, path: Path, more: int, timeout_s: float = 400) -> None:
    """Return when a directory holds so many files more than before, or the job has ended."""
    deadline, before = time.monotonic() + timeout_s, _count(path)
    while _count(path) < before + more and job.process.poll() is None:
        assert time.monotonic() < deadline, job.log.read_text(errors="replace")[-3000:]
        time.sleep(0.01)


def _count(path: Path) -> int:
    return len(list(path.rglob("*"))) if path.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("by", ["spark", "keyrange"])
def test_every_record_once_whatever_is_killed(topics: Topics, tmp_path: Path, by: str) -> None:
    chance = random.Random(7)
    topic = topics.create_topic("killed", partitions=2)
    marks = ["!" if at % 97 == 3 else "?" if at % 13 == 0 else "v" for at in range(RECORDS)]
    values = [f"{mark}{at}".encode() for at, mark in enumerate(marks)]
    topics.produce(topic, [Record(value, key=b"k%d" % chance.randrange(300)) for value in values])
    # In the middle of a verdict, behind a write to the sink, behind a commit.
    for place, more in (("commits_verdicts", 6), ("sink", 3), ("commits", 4)):
        job = Job(topics, topic, tmp_path, "local[2]", by)
        try:
            wait_for(job, tmp_path / place, more)
        finally:
            job.kill_all()
    job = Job(topics, topic, tmp_path, "local-cluster[2,1,1024]", by)
    try:
        kill_when_busy(job, "executor")  # type: ignore[arg-type]
        assert job.process.wait(900) == 0, job.log.read_text(errors="replace")[-3000:]
    finally:
        job.kill_all()
    check(tmp_path, values)


def check(home: Path, values: list[bytes]) -> None:
    sink = DeltaTable(str(home / "sink")).to_pyarrow_table().to_pylist()
    letters = DeltaTable(str(home / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    done = sorted(row["text"].encode() for row in sink)
    dead = sorted(row["value"] for row in letters if row["kind"] == "dead")
    assert len(done) == len(set(done))
    assert len(dead) == len(set(dead))
    assert sorted(done + dead) == sorted(values)
    assert {value[:1] for value in dead} <= {b"!", b"?"}
    assert not [value for value in done if value.startswith(b"!")]
    states: dict[Any, Any] = _states(home)
    assert all(state.committed == state.position and not state.holes for state in states.values())


def _states(home: Path) -> dict[Any, Any]:
    from keyrange.delta.commit_table import open_commit_table

    options = CommitOptions(table=str(home / "commits"))
    [source] = os.listdir(home / "commits_verdicts")
    return dict(open_commit_table(options, source).known().states)
