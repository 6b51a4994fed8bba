"""What Databricks gives to a notebook, as far as it can be had elsewhere: a wheel that pip has
installed beside the runtime's own pyspark, Spark Connect, packages and a home that nobody can write
to, and no shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers.real_broker import Record, Topics
from keyrange.embedded import jars
from platforms.environments import constraints, install_wheel, made
from samples.processed import check
from spark.connecting import Place, connect_server, run_client

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "jobs"


@pytest.fixture(scope="module")
def python() -> Path:
    """The runtime has a pyspark; the notebook installs keyrange beside it."""
    pinned = ["-c", constraints()]
    runtime = [*pinned, "pyspark[connect,sql]", "pandas", "delta-spark"]
    own = made("databricks", sys.executable, runtime)
    install_wheel(own, "--force-reinstall", *pinned, extras="[commits]")
    return own


@pytest.fixture
def place(python: Path, tmp_path: Path) -> Place:
    return place_of(python, tmp_path)


def place_of(python: Path, home: Path) -> Place:
    """A host of which only the directory for temporary files can be written to."""
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    user, temporary = home / "user", home / "temporary"
    user.mkdir()
    temporary.mkdir()
    environment = {
        **{name: "" for name in os.environ if name.startswith(("NUMBA", "XDG", "PYTHON"))},
        "HOME": str(user),
        "TMPDIR": str(temporary),
        "KEYRANGE_TEST_PYTHON": str(python),
    }
    read_only = [str(python.parents[1]), str(user)]
    return Place(str(python), environment, (str(HERE / "read-only-host"), *read_only, "--"))


@pytest.fixture(scope="module")
def server(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a server on such a host, and the directory with its log."""
    home = tmp_path_factory.mktemp("server")
    with connect_server(home, place_of(python, home)) as url:
        yield url, home


IMITATED = """
import os, site, sys
import keyrange
for path in (site.getsitepackages()[0], os.path.expanduser("~")):
    try:
        open(os.path.join(path, "written"), "w")
    except OSError as refused:
        print(refused.strerror)
print(os.path.exists("/dev/shm"), keyrange.__file__.startswith(sys.prefix))
"""


def test_the_host_is_one_of_that_kind(place: Place) -> None:
    ended = subprocess.run(
        [*place.around, place.python, "-P", "-c", IMITATED],
        env=place.variables,
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.splitlines() == ["Read-only file system"] * 2 + ["False True"]


def test_records_are_worked_on(
    server: tuple[str, Path], place: Place, topics: Topics, tmp_path: Path
) -> None:
    """Key ranges that share chunks, individual commits and tables that tasks write."""
    url, home = server
    topic = topics.create_topic("connect", partitions=2)
    values = [b"%s%d" % (b"!" if at % 50 == 3 else b"v", at) for at in range(400)]
    topics.produce(topic, [Record(v, key=b"k%d" % (n % 30)) for n, v in enumerate(values)])

    arguments = (topics.cluster.bootstrap_servers, topic, str(tmp_path), "job", "2")
    run_client(url, "handed/processing.py", *arguments, home=tmp_path, place=place)

    check(tmp_path, values)
    refused = ("Read-only file system", "Permission denied", "cannot cache")
    said = (home / "server.log").read_text(errors="replace")
    assert [line for line in said.splitlines() if any(word in line for word in refused)] == []
    # Kernels are compiled once for all processes of the server, where they can be kept.
    kept = home / "temporary" / f"keyrange-kernels-{os.getuid()}"
    assert len(list(kept.rglob("*_kernels.*.nbi"))) > 3


def test_a_notebook(server: tuple[str, Path], place: Place, topics: Topics, tmp_path: Path) -> None:
    """quickstart.py, with its widgets filled in."""
    widgets = {
        "home": str(tmp_path),
        "topic": topics.create_topic("quickstart", 2),
        "bootstrap_servers": topics.cluster.bootstrap_servers,
    }
    arguments = ("quickstart.py", json.dumps(widgets))
    said = run_client(server[0], "platforms/databricks.py", *arguments, home=tmp_path, place=place)
    assert said.splitlines()[-1] == "1 restarts"
    rows = DeltaTable(str(tmp_path / widgets["topic"] / "orders")).to_pyarrow_table()
    assert sorted(rows.column("order").to_pylist()) == list(range(700))


def submitted(place: Place, home: Path, *arguments: str) -> str:
    """What spark-submit writes to its standard error for a job that ends well."""
    ended = subprocess.run(
        [
            *place.around,
            str(Path(place.python).parent / "spark-submit"),
            *("--master", "local[2]"),
            *(f"--conf={name}={value}" for name, value in jars.delta_confs().items()),
            *arguments,
        ],
        env=place.variables,
        cwd=home,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return ended.stderr


def test_a_job(place: Place, topics: Topics, tmp_path: Path) -> None:
    """jobs/ingest.py of the sdist, by spark-submit: it needs the wheel and nothing else of it."""
    topic = topics.create_topic("ingest", 2)
    topics.produce(topic, [Record(b"v%d" % n, b"k", n % 2) for n in range(50)])
    job = tmp_path / "ingest.py"
    job.write_bytes((JOBS / "ingest.py").read_bytes())
    told = submitted(
        place,
        tmp_path,
        *("--conf=spark.ui.enabled=false", str(job)),
        *("--bootstrap-servers", topics.cluster.bootstrap_servers, "--topic", topic),
        *("--table", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint")),
        "--available-now",
    )
    assert "Read-only file system" not in told
    values = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["value"].to_pylist()
    assert sorted(values) == sorted(b"v%d" % n for n in range(50))


STATE_JOB = """
import sys
from pyspark.sql import SparkSession
import keyrange

def counted(record, state):
    n = (state.seen.get() or 0) + 1
    state.seen.update(n)
    return record.key, n

spark = SparkSession.builder.getOrCreate()
keyrange.register(spark)
servers, topic, home = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
options |= {"splitBy": "keyRange", "maxOffsetsPerTrigger": "40"}
options |= {"commitMode": "individual", "commitTable": home + "/commits"}
kept = {"seen": keyrange.ValueState("n long")}
job = keyrange.job(options, counted, "key binary, n long", state=kept)
writer = job.into(home + "/table", home + "/checkpoint", spark=spark)
writer.trigger(availableNow=True).start().awaitTermination()
"""


def test_a_job_with_state(place: Place, topics: Topics, tmp_path: Path) -> None:
    """It keeps no copy of its states there, says so, and reads them from where they are stored."""
    topic = topics.create_topic("state", 2)
    topics.produce(topic, [Record(b"v", b"k%d" % (n % 5), n % 5 % 2) for n in range(100)])
    job = tmp_path / "state.py"
    job.write_text(STATE_JOB)
    told = submitted(
        place, tmp_path, str(job), topics.cluster.bootstrap_servers, topic, str(tmp_path)
    )
    assert "state has no copy on this host: [Errno 30] Read-only file system" in told
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    expected = [(b"k%d" % key, n) for key in range(5) for n in range(1, 21)]
    assert sorted((row["key"], row["n"]) for row in rows) == sorted(expected)
