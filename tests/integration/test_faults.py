"""What must be survived: kill -9 of broker, executor, worker, driver; every record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession

from brokers import Record, Topics, wait_until
from keyrange.client_options import ClientSettings
from keyrange.core.splits import Split
from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetch import ReadSettings, SplitReader
from keyrange.wire.decode import DecodeSettings
from sources import committed, run_available_now, stream

INGEST = Path(__file__).parents[2] / "jobs" / "ingest.py"


@pytest.fixture(scope="module")
def mortal() -> Iterator[Topics]:
    """A broker of this file's own, that may be killed."""
    with EmbeddedBroker() as broker:
        topics = Topics(broker)
        yield topics
        topics.close()


def fill(topics: Topics, partitions: int, count: int, size: int) -> str:
    topic = topics.create_topic("faults", partitions)
    topics.produce(
        topic,
        (Record(b"%012d" % n + b"x" * size, None, n % partitions) for n in range(count)),
        linger_ms=50,
        batch_size=256 * 1024,
    )
    return topic


def killed_and_restarted(topics: Topics, down_s: float) -> threading.Thread:
    """Kill the broker now; it comes back later on the same port with the same data."""
    topics.close()
    topics.cluster.kill()

    def come_back() -> None:
        time.sleep(down_s)
        topics.cluster.restart()

    thread = threading.Thread(target=come_back)
    thread.start()
    return thread


def test_broker_killed_in_mid_fetch(mortal: Topics) -> None:
    """A split goes on behind what was already handed over."""
    topic = fill(mortal, 1, 20_000, 500)
    host, _, port = mortal.cluster.bootstrap_servers.partition(":")
    client = ClientSettings(
        bootstrap_servers=((host, int(port)),), max_partition_fetch_bytes=200_000
    )
    cluster = Cluster(client)
    view = cluster.describe([topic])
    reader = SplitReader(cluster, view, ReadSettings(DecodeSettings(), True, 60_000))
    batches = reader.read([Split(topic, 0, 0, 20_000, 0)])
    offsets = next(batches).column("offset").to_pylist()
    back = killed_and_restarted(mortal, 2)
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    back.join()
    cluster.close()

    assert offsets == list(range(20_000))


def test_broker_killed_in_mid_batch(spark: SparkSession, mortal: Topics, tmp_path: Path) -> None:
    """The query waits, reads on and writes every record once."""
    topic = fill(mortal, 2, 30_000, 200)
    table = str(tmp_path / "table")
    backs: list[threading.Thread] = []

    def sink(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            backs.append(killed_and_restarted(mortal, 2))
        frame.write.format("delta").mode("append").option("txnAppId", topic).option(
            "txnVersion", batch_id
        ).save(table)

    frame = stream(spark, mortal, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10000")
    run_available_now(frame, tmp_path / "checkpoint", sink)
    for back in backs:
        back.join()

    assert len(backs) == 1
    assert_exactly_once(spark, table, 30_000)


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
    """A run of jobs/ingest.py by spark-submit in a process group of its own."""

    def __init__(self, topics: Topics, topic: str, home: Path, master: str, *more: str) -> None:
        self.table, self.checkpoint = home / "table", home / "checkpoint"
        self.log = home / f"ingest-{time.monotonic_ns()}.log"
        delta_jars = ",".join(map(str, jars.resolve(jars.delta())))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "spark-submit"),
                    *("--master", master, "--jars", delta_jars),
                    *("--conf", "spark.ui.enabled=false"),
                    *("--conf", "spark.sql.shuffle.partitions=2"),
                    *("--conf", "spark.databricks.delta.snapshotPartitions=2"),
                    str(INGEST),
                    *("--bootstrap-servers", topics.cluster.bootstrap_servers),
                    *("--topic", topic, "--table", str(self.table)),
                    *("--checkpoint", str(self.checkpoint), *more),
                ],
                stdout=log,
                stderr=log,
                cwd=home,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )

    def kill_all(self) -> None:
        """kill -9 of everything: JVM, driver's Python, workers, executors."""
        everyone = [self.process.pid]
        everyone += [child.pid for child in psutil.Process(self.process.pid).children(True)]
        for pid in everyone:
            with_suppressed(lambda pid=pid: os.kill(pid, signal.SIGKILL))
        self.process.wait(30)

    def wait(self, timeout_s: float = 120) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"no end: {self.text()[-3000:]}") from None

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def with_suppressed(action: Callable[[], None]) -> None:
    try:
        action()
    except ProcessLookupError:
        pass


@contextmanager
def ingest(topics: Topics, topic: str, home: Path, master: str, *more: str) -> Iterator[Ingest]:
    run = Ingest(topics, topic, home, master, *more)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.kill_all()


def test_driver_killed_between_data_and_commit(
    spark: SparkSession, mortal: Topics, tmp_path: Path
) -> None:
    """Batch 1 is in the table and not in Spark's commit log: it is not written twice."""
    topic = fill(mortal, 2, 20_000, 100)
    limit = ("--option", "maxOffsetsPerTrigger=5000", "--trigger", "0 seconds")
    with ingest(mortal, topic, tmp_path, "local[2]", *limit) as run:
        written = run.table / "_delta_log" / f"{1:020}.json"
        deadline = time.monotonic() + 120
        while not written.exists():
            assert run.process.poll() is None, run.text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.001)
        run.kill_all()
    if 1 in committed(run.checkpoint):
        # The kill came too late by milliseconds: take away what it should have prevented.
        (run.checkpoint / "commits" / "1").unlink()
    with ingest(mortal, topic, tmp_path, "local[2]", "--available-now") as again:
        code = again.wait()

    assert code == 0, again.text()[-3000:]
    assert_exactly_once(spark, str(run.table), 20_000)


@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_executor_killed_in_mid_batch(
    spark: SparkSession, mortal: Topics, tmp_path: Path, victim: str
) -> None:
    """Real executor processes; the batch's tasks run again elsewhere, with the same rows."""
    count = 60_000
    topic = fill(mortal, 4, count, 1_000)
    tasks = ("--option", "bytesPerTask=0", "--available-now")
    with ingest(mortal, topic, tmp_path, "local-cluster[2,1,1024]", *tasks) as run:
        killed = kill_when_busy(run, victim)
        code = run.wait(240)

    assert killed
    assert code == 0, run.text()[-3000:]
    assert_exactly_once(spark, str(run.table), count)


def kill_when_busy(run: Ingest, victim: str) -> bool:
    """kill -9 an executor's JVM, or a Python worker that reads, as soon as there is one."""
    deadline = time.monotonic() + 120
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
                target = executor if victim == "executor" else children(readers[0])[0]
                target.send_signal(signal.SIGKILL)
                return True
        time.sleep(0.005)
    return False


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


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


def test_ingest_stops_cleanly_on_sigterm(
    spark: SparkSession, mortal: Topics, tmp_path: Path
) -> None:
    """No traceback, and a restart goes on where it ended: here in the session at hand, because
    another driver would spend its time on starting."""
    topic = fill(mortal, 1, 1_000, 10)
    with ingest(mortal, topic, tmp_path, "local[2]", "--trigger", "0 seconds") as run:
        wait_until(lambda: "batch 0: 1,000 records" in run.text(), 120)
        run.process.send_signal(signal.SIGTERM)
        code = run.wait(60)
    mortal.produce(topic, [b"%012d" % n for n in range(1_000, 1_100)])
    again = (
        stream(spark, mortal, topic)
        .writeStream.format("delta")
        .option("checkpointLocation", str(run.checkpoint))
        .trigger(availableNow=True)
        .start(str(run.table))
    )
    assert again.awaitTermination(90)

    assert code in (0, 143)
    assert "Traceback" not in run.text()
    assert "batch 0: 1,000 records" in run.text()
    assert_exactly_once(spark, str(run.table), 1_100)
