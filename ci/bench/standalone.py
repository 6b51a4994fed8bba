"""A standalone cluster of Spark's on the loopback interface, whose workers come and go as hosts do:
each has a name and a directory for what outlives its executors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pyspark

from keyrange.embedded.process import free_ports

_HOST: Final = "127.0.0.1"
_START_S: Final = 120.0
CONFS: Final = {
    "spark.driver.host": _HOST,
    "spark.driver.bindAddress": _HOST,
    "spark.executor.memory": "900m",
    "spark.task.maxFailures": "20",
}


class Cluster:
    """A master, and workers of one core, one executor each."""

    def __init__(self, home: Path) -> None:
        self._home = home
        [port] = free_ports(1)
        self.master = f"spark://{_HOST}:{port}"
        self._log = home / "cluster.log"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._master = self._start(
            "master.Master", {}, "--host", _HOST, "--port", str(port), "--webui-port", "0"
        )
        self._wait("I have been elected leader", 1)

    def add_worker(self) -> None:
        number = len(self._workers)
        host = self._home / f"host-{number}"
        host.mkdir(mode=0o700)
        environment = {"XDG_STATE_HOME": str(host), "METADATA_NAME": f"host-{number}"}
        work = ("--work-dir", str(host / "work"), "--webui-port", "0", "--host", _HOST)
        arguments = ("--cores", "1", "--memory", "1g", *work, self.master)
        self._workers.append(self._start("worker.Worker", environment, *arguments))
        self._wait("Successfully registered with master", len(self._workers))

    def state_bytes(self) -> int:
        """What the hosts have in their directories of state."""
        paths = self._home.glob("host-*/keyrange/**/*.arrow")
        total = 0
        for path in paths:
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    @property
    def names(self) -> list[str]:
        """Of the workers."""
        return [f"host-{number}" for number in range(len(self._workers))]

    def forget_state(self, number: int) -> None:
        """The copies of a host are gone."""
        for path in self._home.glob(f"{self.names[number]}/keyrange/slots/state/*"):
            shutil.rmtree(path, ignore_errors=True)

    def lose_worker(self) -> None:
        """kill -9 of the last one, and of all that it has started."""
        _kill(self._workers[-1])

    def close(self) -> None:
        for process in (*self._workers, self._master):
            _kill(process)
            process.wait(60)

    def _start(
        self, name: str, environment: dict[str, str], *arguments: str
    ) -> subprocess.Popen[bytes]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(spark_class), f"org.apache.spark.deploy.{name}", *arguments],
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path))),
                    **environment,
                },
                start_new_session=True,
            )

    def _wait(self, text: str, times: int) -> None:
        until = time.monotonic() + _START_S
        while self._log.read_text(errors="replace").count(text) < times:
            if time.monotonic() > until:
                raise RuntimeError(f"the cluster has not said: {text}")
            time.sleep(0.1)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(process.pid)
        for pid in [*(each.pid for each in found.children(recursive=True)), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    made = Cluster(home)
    try:
        yield made
    finally:
        made.close()
