"""Runs of jobs/ingest.py in processes of their own, and how tests kill parts of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from keyrange.embedded import jars
from keyrange.ranges.sharing.shared_directory import usual_settings
from spark.worker_python import WORKER_PYTHON

JOBS = Path(__file__).parents[2] / "jobs"
TESTS = str(Path(__file__).parents[1])
# What tests hand to Spark by its name is in a folder of its own.
ON_PATH = (TESTS, f"{TESTS}/handed")


# Small chunks, and a task for every range, so that several readers share many chunks.
SPLIT = (
    *("--option", "splitBy=keyRange", "--option", "keyRangesPerPartition=5"),
    *("--option", "bytesPerTask=0", "--option", "kafka.max.partition.fetch.bytes=400000"),
)


def produce_by_key(topics: Topics, topic: str, count: int) -> None:
    """Numbered values of 500 bytes by 701 keys, in two partitions."""
    topics.produce(
        topic,
        (Record(b"%012d" % n + b"x" * 500, b"%d" % (n % 701), n % 2) for n in range(count)),
        linger_ms=50,
        batch_size=64 * 1024,
    )


def assert_exactly_once(spark: SparkSession, table: str, count: int) -> None:
    """Values are numbered: each number is there, and none twice."""
    row = (
        spark.read.format("delta")
        .load(table)
        .selectExpr("cast(substr(cast(value AS string), 1, 12) AS long) AS n")
        .selectExpr("count(*) AS rows", "count(DISTINCT n) AS distinct", "max(n) AS last")
        .first()
    )
    assert row is not None
    assert (row["rows"], row["distinct"], row["last"]) == (count, count, count - 1)


class Ingest:
    """A run of jobs/ingest.py, or of another job, by spark-submit in a process group of its own.

    What the job imports by name may lie beside the tests. `submit` are options of spark-submit's
    own."""

    def __init__(
        self,
        topics: Topics,
        topic: str,
        home: Path,
        master: str,
        *more: str,
        confs: Mapping[str, str] | None = None,
        job: str = "ingest.py",
        environment: Mapping[str, str] | None = None,
        submit: Sequence[str] = (),
    ) -> None:
        self.table, self.checkpoint = home / "table", home / "checkpoint"
        self.log = home / f"ingest-{time.monotonic_ns()}.log"
        delta_jars = ",".join(map(str, jars.resolve(jars.delta())))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "spark-submit"),
                    *("--master", master, "--jars", delta_jars, *submit),
                    *(f"--conf={name}={value}" for name, value in (confs or {}).items()),
                    str(JOBS / job),
                    *("--bootstrap-servers", topics.cluster.bootstrap_servers),
                    *("--topic", topic, "--table", str(self.table)),
                    *("--checkpoint", str(self.checkpoint), *more),
                ],
                stdout=log,
                stderr=log,
                cwd=home,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": WORKER_PYTHON,
                    "PYTHONPATH": os.pathsep.join([*ON_PATH, os.environ.get("PYTHONPATH", "")]),
                    **(environment or {}),
                },
                start_new_session=True,
            )

    def kill_all(self) -> None:
        """kill -9 of everything: JVM, driver's Python, workers, executors."""
        everyone = [self.process.pid]
        everyone += [child.pid for child in psutil.Process(self.process.pid).children(True)]
        for pid in everyone:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(120)

    def wait(self, timeout_s: float = 400) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"no end: {self.text()[-3000:]}") from None

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def ingest(
    topics: Topics,
    topic: str,
    home: Path,
    master: str,
    *more: str,
    confs: Mapping[str, str] | None = None,
    job: str = "ingest.py",
) -> Iterator[Ingest]:
    run = Ingest(topics, topic, home, master, *more, confs=confs, job=job)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.kill_all()


def kill_when_busy(run: Ingest, victim: str) -> bool:
    """kill -9 an executor's JVM, or a Python worker that reads, as soon as there is one."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and run.process.poll() is None:
        executors = [
            process
            for process in psutil.Process(run.process.pid).children(recursive=True)
            if "CoarseGrainedExecutorBackend" in " ".join(cmdline(process))
        ]
        for executor in executors:
            readers = [
                process
                for process in children(executor)
                if "pyspark.daemon" in " ".join(cmdline(process)) and children(process)
            ]
            if readers and connected(children(readers[0])[0]):
                workers = children(readers[0])
                if not workers:
                    continue
                target = executor if victim == "executor" else workers[0]
                target.send_signal(signal.SIGKILL)
                return True
        time.sleep(0.005)
    return False


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_for_sharing(
    run: Ingest, ancestors: set[int]
) -> tuple[psutil.Process, psutil.Process] | None:
    """The executor and a Python worker of it, below one of the processes `ancestors`, as soon as it
    has begun a chain of chunks; None where the run ends before."""
    memory = usual_settings(0, 0).memory_directory
    assert memory is not None
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and run.process.poll() is None:
        for chain in memory.glob(f"keyrange-{os.getuid()}/*/*/chain"):
            try:
                daemon = psutil.Process(int(chain.parents[1].name.partition("-")[0]))
                executor = daemon.parent()
                ours = ancestors & {each.pid for each in daemon.parents()}
            except psutil.NoSuchProcess:
                continue
            workers = children(daemon)
            if ours and executor is not None and workers:
                return executor, workers[0]
        time.sleep(0.005)
    return None


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def connected(process: psutil.Process) -> bool:
    """Whether a worker has begun to read: it has a connection to the broker besides Spark's."""
    try:
        return len(process.net_connections("tcp")) > 1
    except psutil.Error:
        return False
