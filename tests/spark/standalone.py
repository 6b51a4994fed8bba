"""A standalone cluster whose workers are on addresses of the loopback interface: Spark starts no
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


class StandaloneCluster:
    """A master, and workers of one core each on hosts of their own, which come and go. A host has a
    directory of its own for what outlives its executors, and with `has_names` a name of its own: by
    itself each would have this machine's."""

    def __init__(self, home: Path, has_names: bool = False) -> None:
        self._home, self._log, self._has_names = home, home / "cluster.log", has_names
        [port] = free_ports(1)
        self.master = f"spark://{HOSTS[0]}:{port}"
        # By their hosts.
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._registered_count = 0
        self._master = self._start("master.Master", "--host", HOSTS[0], "--port", str(port))
        self._wait("I have been elected leader", 1)

    @property
    def worker_pids(self) -> list[int]:
        return [process.pid for process in self._workers.values()]

    @property
    def hosts(self) -> list[str]:
        return list(self._workers)

    def add_workers(self, *hosts: str) -> None:
        """Returns when the master knows them: an application that runs gets their executors."""
        for host in hosts:
            work = ("--work-dir", str(self._home / f"work-{host}"))
            words = ("--host", host, "--cores", "1", "--memory", "1g", *work, self.master)
            own = {"XDG_STATE_HOME": str(self.state(host))}
            if self._has_names:
                own |= {"METADATA_NAME": f"host-{host.rpartition('.')[2]}"}
            self._workers[host] = self._start("worker.Worker", *words, **own)
        self._registered_count += len(hosts)
        self._wait("Successfully registered with master", self._registered_count)

    def state(self, host: str) -> Path:
        path = self._home / f"state-{host}"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def lose_worker(self, host: str) -> None:
        """kill -9 of the worker on a host, and of all that it has started."""
        _kill(self._workers.pop(host))

    def close(self) -> None:
        for process in (*reversed(self._workers.values()), self._master):
            _kill(process)

    def _start(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        words = [str(spark_class), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
        with self._log.open("ab") as output:
            return subprocess.Popen(
                [*words, *arguments],
                stdout=output,
                stderr=output,
                cwd=self._home,
                env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON, **environment},
                start_new_session=True,
            )

    def _wait(self, text: str, times: int) -> None:
        wait_until(lambda: self._log.read_text(errors="replace").count(text) >= times)


def _kill(process: subprocess.Popen[bytes]) -> None:
    family = [process.pid]
    with suppress(psutil.NoSuchProcess):
        family += [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(120)


@contextmanager
def standalone_cluster(home: Path, has_names: bool = False) -> Iterator[StandaloneCluster]:
    """With workers on all of `HOSTS`."""
    cluster = StandaloneCluster(home, has_names)
    try:
        cluster.add_workers(*HOSTS)
        yield cluster
    finally:
        cluster.close()
