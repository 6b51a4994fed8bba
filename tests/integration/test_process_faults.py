"""kill -9 of a driver and of an executor while a function works: every record once, in the sink or
among the dead letters."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from brokers.real_broker import Record, Topics
from keyrange.embedded import jars
from queries.ingesting import cmdline, kill_when_busy
from samples.processed import check
from spark.worker_python import WORKER_PYTHON

RECORDS = 2000
JOB = Path(__file__).parents[1] / "handed" / "processing.py"


class Job:
    """A run of the job, with executors in processes of their own."""

    def __init__(self, topics: Topics, topic: str, home: Path, master: str, by: str) -> None:
        self.log = home / f"job-{time.monotonic_ns()}.log"
        confs = jars.delta_confs()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "spark-submit"),
                    *("--master", master),
                    *(f"--conf={name}={value}" for name, value in confs.items()),
                    *(str(JOB), topics.cluster.bootstrap_servers, topic, str(home), by),
                ],
                stdout=log,
                stderr=log,
                cwd=home,
                env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON},
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
        self.process.wait(120)


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
@pytest.mark.parametrize("by", ["spark", "job"])
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
        assert kill_when_busy(job, "executor")  # type: ignore[arg-type]
        assert job.process.wait(900) == 0, job.log.read_text(errors="replace")[-3000:]
    finally:
        job.kill_all()
    check(tmp_path, values)
