"""A standalone cluster whose workers are on addresses of the loopback interface: Spark starts no
second attempt of a task on the host of the first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from project.bench_runs import CI
from spark.worker_python import WORKER_PYTHON

sys.path.insert(0, str(CI))

from bench.standalone import Processes

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


class StandaloneCluster(Processes):
    """Workers on hosts of their own, which come and go. A host has a directory of its own for what
    outlives its executors, and with `has_names` a name of its own: by itself each would have this
    machine's."""

    def __init__(self, home: Path, has_names: bool = False) -> None:
        super().__init__(home, {"PYSPARK_PYTHON": WORKER_PYTHON})
        self._has_names = has_names

    @property
    def worker_pids(self) -> list[int]:
        return [process.pid for process in self.workers.values()]

    def add_workers(self, *hosts: str) -> None:
        for host in hosts:
            own = {"XDG_STATE_HOME": str(self.state(host))}
            if self._has_names:
                own |= {"METADATA_NAME": f"host-{host.rpartition('.')[2]}"}
            self.start_worker(host, host, self._home / f"work-{host}", own)
        self.wait_for_workers()

    def state(self, host: str) -> Path:
        path = self._home / f"state-{host}"
        path.mkdir(mode=0o700, exist_ok=True)
        return path


@contextmanager
def standalone_cluster(home: Path, has_names: bool = False) -> Iterator[StandaloneCluster]:
    """With workers on all of `HOSTS`."""
    cluster = StandaloneCluster(home, has_names)
    try:
        cluster.add_workers(*HOSTS)
        yield cluster
    finally:
        cluster.close()
