"""Jobs whose session is a client of a Spark Connect server: what notebooks of today use.

Planning, tasks and foreachBatch all run in processes of the server. The client is a process of its
own, since one process has either a classic session or a client's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers import Record, Topics, wait_until
from keyrange.embedded import jars
from keyrange.embedded.process import free_ports
from processed import check
from worker_python import WORKER_PYTHON

TESTS = Path(__file__).parents[1]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server of the pip install; its URL."""
    home = tmp_path_factory.mktemp("connect")
    [port] = free_ports(1)
    confs = jars.delta_confs() | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    log_path = home / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                str(Path(sys.executable).parent / "spark-submit"),
                *("--class", SERVER, "--master", "local[2]"),
                *(f"--conf={name}={value}" for name, value in confs.items()),
            ],
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON},
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


def run(
    server: str, script: str, *arguments: str, home: Path, more: Mapping[str, str] | None = None
) -> str:
    """What a client printed that ended well; `more` is added to its environment."""
    ended = subprocess.run(
        [sys.executable, "-P", str(TESTS / script), *arguments],
        env={
            **os.environ,
            **(more or {}),
            "SPARK_REMOTE": server,
            "PYSPARK_PYTHON": WORKER_PYTHON,
        },
        cwd=home,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("by", ["spark", "keyrange", "frames", "job"])
def test_records_are_worked_on_one_by_one(
    server: str, topics: Topics, tmp_path: Path, by: str
) -> None:
    """Individual commits: what fails goes to the dead letters, the rest is in the sink once."""
    topic = topics.create_topic("connect", partitions=2)
    values = [b"%s%d" % (b"!" if at % 50 == 3 else b"v", at) for at in range(400)]
    topics.produce(topic, [Record(v, key=b"k%d" % (n % 30)) for n, v in enumerate(values)])

    run(
        server,
        "processing.py",
        *(topics.cluster.bootstrap_servers, topic, str(tmp_path), by, "2"),
        home=tmp_path,
    )

    check(tmp_path, values)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_notebooks(server: str, topics: Topics, tmp_path: Path) -> None:
    """From a topic to a table of which everything is done, and a look at it."""
    plots = tmp_path / "plots"
    plots.mkdir()
    settings = {
        "home": str(tmp_path),
        "topic": topics.create_topic("quickstart", 2),
        "bootstrap_servers": topics.cluster.bootstrap_servers,
        "plots": str(plots),
    }
    place = tmp_path / settings["topic"]
    settings |= {"checkpoint": f"{place}/checkpoint", "commit_table": f"{place}/commits"}

    said = run(
        server,
        "notebooks.py",
        *("quickstart.py", "inspect_query.py"),
        home=tmp_path,
        more={f"NOTEBOOK_{name.upper()}": value for name, value in settings.items()},
    )

    table = DeltaTable(str(place / "orders")).to_pyarrow_table(columns=["order"])
    assert sorted(table.column("order").to_pylist()) == list(range(700))
    assert "every record that was handed out is done" in said
    names = {"lag", "batches", "pending", "dead_letters"}
    assert {path.stem for path in plots.iterdir()} == names
    assert all(path.stat().st_size > 1_000_000 for path in plots.iterdir())


@pytest.mark.timeout(600)
def test_a_listener_runs_beside_the_client(server: str, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("listened")
    topics.produce(topic, [b"x"] * 25)

    printed = run(
        server,
        "listening.py",
        *(topics.cluster.bootstrap_servers, topic, str(tmp_path)),
        home=tmp_path,
    )

    told = json.loads(printed.splitlines()[-1])
    assert told["told"] is True
    assert (told["keyrange.batches"], told["keyrange.records"]) == (3, 25)
    assert (told["keyrange.query.running"], told["keyrange.query.failures"]) == (0, 0)
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [line["batchId"] for line in lines] == [0, 1, 2]
    assert {line["name"] for line in lines} == {"listened"}
