"""A standalone cluster of two workers on two addresses of the loopback interface: Spark starts no
second attempt of a task on the host of the first."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from brokers.real_broker import wait_until
from keyrange.embedded.process import free_ports
from spark.worker_python import WORKER_PYTHON

HOSTS = ("127.0.0.1", "127.0.0.2")
ON_LOOPBACK = {
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.executor.memory": "600m",
}
SPECULATION = ON_LOOPBACK | {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.2",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
    # It would judge a task by the rows that it has read, and a stopped one has read many.
    "spark.speculation.efficiency.enabled": "false",
}


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
                    env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON},
                    start_new_session=True,
                )
            )

    try:
        start("master.Master", "--host", HOSTS[0], "--port", str(port))
        wait_until(lambda: "I have been elected leader" in log.read_text(errors="replace"))
        for host in HOSTS:
            work = ("--work-dir", str(home / f"work-{host}"))
            start("worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", *work, master)
        registered = "Successfully registered with master"
        wait_until(lambda: log.read_text(errors="replace").count(registered) == len(HOSTS))
        yield master, [each.pid for each in started[1:]]
    finally:
        for process in reversed(started):
            family = [
                process.pid,
                *(each.pid for each in psutil.Process(process.pid).children(True)),
            ]
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(120)
