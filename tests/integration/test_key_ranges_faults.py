"""Key ranges while executors and workers are killed: the rows are the same, and nothing stays."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from random import Random

import psutil
import pytest
from pyspark.sql import SparkSession

from brokers.real_broker import Topics, wait_until
from commands.commanding import document
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory, usual_settings
from queries.ingesting import (
    SPLIT,
    Ingest,
    assert_exactly_once,
    ingest,
    produce_by_key,
    wait_for_sharing,
)

# Its rows are those that `assert_exactly_once` counts.
FUNCTION = ("--function", "processing:as_it_is", "--schema", "value string")
_LONG = [
    pytest.param(victim, seed, marks=pytest.mark.slow)
    for victim, seeds in (("executor", (0, 1, 2)), ("worker", (1, 2)))
    for seed in seeds
]


# A killed executor, of a query without key ranges, is in test_faults.py. A worker is killed where
# two tasks share its executor, which tries a task again; such an executor is the driver's JVM too.
@pytest.mark.parametrize(("victim", "seed"), [("worker", 0), *_LONG])
def test_killed_while_chunks_are_shared(
    spark: SparkSession, topics: Topics, tmp_path: Path, victim: str, seed: int
) -> None:
    """The batch's tasks run again, beside those that the killed one shared chunks with."""
    random = Random(seed)
    count = 20_000 if victim == "worker" else 40_000
    topic = topics.create_topic("killed", 2)
    produce_by_key(topics, topic, count)
    more = (*SPLIT, "--available-now")
    master = "local[2,4]" if victim == "worker" else "local-cluster[2,1,1024]"
    with ingest(topics, topic, tmp_path, master, *more) as run:
        killed = kill_when_sharing(run, victim, random.random() * seed)
        code = run.wait()

    assert killed
    assert code == 0, run.text()[-3000:]
    assert_exactly_once(spark, str(run.table), count)
    wait_until(lambda: dead_executors() == [])


# SIGKILL is what the kernel sends where memory runs out.
@pytest.mark.parametrize(
    ("way", "by"),
    [
        pytest.param(signal.SIGSEGV, "individual", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, "individual", marks=pytest.mark.slow),
        pytest.param(signal.SIGSEGV, "batch", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_crashes_costs_a_task_and_no_query(
    spark: SparkSession, topics: Topics, tmp_path: Path, way: signal.Signals, by: str
) -> None:
    """Its chain of chunks outlives it; the task is tried again, and every record is there once."""
    count = 40_000
    topic = topics.create_topic("crashed", 2)
    produce_by_key(topics, topic, count)
    more, commits = (*SPLIT, "--available-now"), tmp_path / "commits"
    if by == "individual":
        more = (*more, "--commit-table", str(commits), "--written-by", "keyrange", *FUNCTION)
    job = "process.py" if by == "individual" else "ingest.py"
    with ingest(topics, topic, tmp_path, "local-cluster[2,1,1024]", *more, job=job) as run:
        killed = kill_when_sharing(run, "worker", 0.0, way)
        code = run.wait()

    assert killed
    assert code == 0, run.text()[-3000:]
    assert "Lost task" in run.text()
    assert_exactly_once(spark, str(run.table), count)
    if by == "individual":
        states = document("commits", "show", commits)["partitions"]
        assert [(row["committed"], row["pending"]) for row in states] == [(count // 2, 0)] * 2
    wait_until(lambda: dead_executors() == [])


def kill_when_sharing(
    run: Ingest, victim: str, delay_s: float, way: signal.Signals = signal.SIGKILL
) -> bool:
    """Kill an executor, or a worker of it, so long after it has begun a chain of chunks."""
    sharing = wait_for_sharing(run, {run.process.pid})
    if sharing is None:
        return False
    executor, worker = sharing
    time.sleep(delay_s)
    (executor if victim == "executor" else worker).send_signal(way)
    return True


def dead_executors() -> list[str]:
    """What executors that are gone have left, after another one has swept."""
    made = ExecutorDirectory(usual_settings(1, 1))
    # Schemas of registries are kept beside them.
    names = [path.name for path in made.path.parent.glob("[0-9]*")]
    shutil.rmtree(made.path, ignore_errors=True)
    shutil.rmtree(made.spill_path, ignore_errors=True)
    return [name for name in names if not psutil.pid_exists(int(name.partition("-")[0]))]
