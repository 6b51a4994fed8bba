"""A Spark Connect server and its clients, in processes of their own: one process has either a
classic session or a client's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from brokers.real_broker import wait_until
from keyrange.embedded import jars
from keyrange.embedded.process import free_ports
from spark.worker_python import WORKER_PYTHON

TESTS = Path(__file__).parents[1]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Place:
    """Where server or clients run: whose `python`, with what `environment` beside that of the
    tests, and `around` is the command that starts them."""

    python: str = sys.executable
    environment: Mapping[str, str] | None = None
    around: Sequence[str] = ()

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON, **(self.environment or {})}


@contextlib.contextmanager
def connect_server(home: Path, place: Place) -> Iterator[str]:
    """A Spark Connect server of the pip install; its URL. Its log is `home`/server.log."""
    [port] = free_ports(1)
    confs = jars.delta_confs() | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    log_path = home / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                *place.around,
                str(Path(place.python).parent / "spark-submit"),
                *("--class", SERVER, "--master", "local[2]"),
                *(f"--conf={name}={value}" for name, value in confs.items()),
            ],
            stdout=log,
            stderr=log,
            cwd=home,
            env=place.variables,
            start_new_session=True,
        )
    try:
        wait_until(lambda: _answers(port) or _ended(process, log_path), 300)
        yield f"sc://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(120)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _ended(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text(errors="replace")[-3000:]
    return False


def run_client(
    server: str, script: str, *arguments: str, home: Path, place: Place | None = None
) -> str:
    """What a client printed that ended well: a script that lies beside the tests."""
    place = place or Place()
    paths = filter(None, [str(TESTS), place.variables.get("PYTHONPATH")])
    ended = subprocess.run(
        [*place.around, place.python, "-P", str(TESTS / script), *arguments],
        env={**place.variables, "SPARK_REMOTE": server, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=home,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout
