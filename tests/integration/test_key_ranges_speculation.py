"""Key ranges with speculation: a task that stands still is run a second time, on another host.

Spark starts no second attempt on the host of the first, so this has two workers of a standalone
cluster on two addresses of the loopback interface.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest
from pyspark.sql import SparkSession

from brokers import Topics, wait_until
from ingesting import (
    SPLIT,
    Ingest,
    assert_exactly_once,
    ingest,
    produce_by_key,
    wait_for_sharing,
    with_suppressed,
)
from keyrange.embedded.process import free_ports

HOSTS = ("127.0.0.1", "127.0.0.2")
SPECULATION = {
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.executor.memory": "600m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.2",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
    # It would judge a task by the rows that it has read, and a stopped one has read many.
    "spark.speculation.efficiency.enabled": "false",
}


@pytest.mark.slow
def test_a_second_attempt_reads_the_same(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    count = 40_000
    topic = topics.create_topic("speculated", 2)
    produce_by_key(topics, topic, count)
    with (
        standalone_cluster(tmp_path) as (master, workers),
        ingest(
            topics, topic, tmp_path, master, *SPLIT, "--available-now", confs=SPECULATION
        ) as run,
    ):
        stopped = stop_a_reader(run, workers)
        code = run.wait(250)
        logs = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("stderr"))

    assert stopped
    assert code == 0, run.text()[-3000:]
    # TID, attempt: the second attempt of a task is number 1.
    assert "Marking task" in run.text() or ".1 in stage" in logs
    assert_exactly_once(spark, str(run.table), count)


def stop_a_reader(run: Ingest, workers: list[int]) -> bool:
    """SIGSTOP a Python worker that shares chunks."""
    sharing = wait_for_sharing(run, set(workers))
    if sharing is None:
        return False
    sharing[1].send_signal(signal.SIGSTOP)
    return True


@contextmanager
def standalone_cluster(home: Path) -> Iterator[tuple[str, list[int]]]:
    """A master and two workers of one core; its URL, and the workers' processes."""
    [port] = free_ports(1)
    master = f"spark://{HOSTS[0]}:{port}"
    log = home / "cluster.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        with log.open("ab") as output:
            started.append(
                subprocess.Popen(
                    [
                        str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                        f"org.apache.spark.deploy.{name}",
                        *("--webui-port", "0", *arguments),
                    ],
                    stdout=output,
                    stderr=output,
                    cwd=home,
                    env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                    start_new_session=True,
                )
            )

    try:
        start("master.Master", "--host", HOSTS[0], "--port", str(port))
        wait_until(lambda: "I have been elected leader" in log.read_text(errors="replace"), 60)
        for host in HOSTS:
            work = ("--work-dir", str(home / f"work-{host}"))
            start("worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", *work, master)
        registered = "Successfully registered with master"
        wait_until(lambda: log.read_text(errors="replace").count(registered) == len(HOSTS), 60)
        yield master, [each.pid for each in started[1:]]
    finally:
        for process in reversed(started):
            family = [
                process.pid,
                *(each.pid for each in psutil.Process(process.pid).children(True)),
            ]
            for pid in family:
                with_suppressed(lambda pid=pid: os.kill(pid, signal.SIGKILL))
            process.wait(30)
