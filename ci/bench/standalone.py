"""A standalone cluster of Spark's on the loopback interface, whose workers come and go as hosts do:
each has a name and a directory for what outlives its executors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pyspark

from keyrange.embedded.process import free_ports

HOST: Final = "127.0.0.1"
_START_S: Final = 120.0
CONFS: Final = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "900m",
    "spark.task.maxFailures": "20",
}


class Processes:
    """A master, and workers of one core each, whose executors are started with `environment`."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home, self._log, self._environment = home, home / "cluster.log", environment
        [port] = free_ports(1)
        self.master = f"spark://{HOST}:{port}"
        # By their hosts.
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._master = self._start("master.Master", {}, "--host", HOST, "--port", str(port))
        self._wait("I have been elected leader", 1)

    def start_worker(
        self, host: str, address: str, directory: Path, environment: Mapping[str, str]
    ) -> None:
        arguments = ("--host", address, "--work-dir", str(directory), "--cores", "1")
        self.workers[host] = self._start(
            *("worker.Worker", environment, *arguments, "--memory", "1g", self.master)
        )
        self._started += 1

    def wait_for_workers(self) -> None:
        """Until the master knows them: an application that runs gets their executors."""
        self._wait("Successfully registered with master", self._started)

    @property
    def hosts(self) -> list[str]:
        return list(self.workers)

    def lose_worker(self, host: str) -> None:
        """kill -9 of the worker on a host, and of all that it has started."""
        _kill(self.workers.pop(host))

    def close(self) -> None:
        for process in (*reversed(self.workers.values()), self._master):
            _kill(process)

    def _start(
        self, name: str, environment: Mapping[str, str], *arguments: str
    ) -> subprocess.Popen[bytes]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        words = [str(spark_class), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*words, *arguments],
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={**os.environ, **self._environment, **environment},
                start_new_session=True,
            )

    def _wait(self, text: str, times: int) -> None:
        until = time.monotonic() + _START_S
        while self._log.read_text(errors="replace").count(text) < times:
            if time.monotonic() > until:
                raise RuntimeError(f"the cluster has not said: {text}")
            time.sleep(0.1)


class Cluster(Processes):
    """Workers on one address, each with a name as of a host of its own."""

    def __init__(self, home: Path) -> None:
        path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        super().__init__(home, {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path})

    def add_worker(self) -> None:
        name = f"host-{len(self.workers)}"
        host = self._home / name
        host.mkdir(mode=0o700)
        environment = {"XDG_STATE_HOME": str(host), "METADATA_NAME": name}
        self.start_worker(name, HOST, host / "work", environment)
        self.wait_for_workers()

    def state_bytes(self) -> int:
        """What the hosts have in their directories of state."""
        paths = self._home.glob("host-*/keyrange/**/*.arrow")
        total = 0
        for path in paths:
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def forget_state(self, number: int) -> None:
        """The copies of a host are gone."""
        for path in self._home.glob(f"{self.hosts[number]}/keyrange/slots/state/*"):
            shutil.rmtree(path, ignore_errors=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    family = [process.pid]
    with suppress(psutil.NoSuchProcess):
        family += [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(120)


@contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    made = Cluster(home)
    try:
        yield made
    finally:
        made.close()
