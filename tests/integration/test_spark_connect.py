"""Jobs whose session is a client of a Spark Connect server: what notebooks of today use.

Planning, tasks and foreachBatch all run in processes of the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers.real_broker import Record, Topics
from samples.processed import check
from spark.connecting import Place, connect_server, run_client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect"), Place()) as url:
        yield url


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "by",
    [
        pytest.param("spark", marks=pytest.mark.slow),
        pytest.param("frames", marks=pytest.mark.slow),
        "job",
    ],
)
def test_records_are_worked_on_one_by_one(
    server: str, topics: Topics, tmp_path: Path, by: str
) -> None:
    """Individual commits: what fails goes to the dead letters, the rest is in the sink once."""
    topic = topics.create_topic("connect", partitions=2)
    values = [b"%s%d" % (b"!" if at % 50 == 3 else b"v", at) for at in range(400)]
    topics.produce(topic, [Record(v, key=b"k%d" % (n % 30)) for n, v in enumerate(values)])

    run_client(
        server,
        "handed/processing.py",
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

    said = run_client(
        server,
        "spark/notebooks.py",
        *("quickstart.py", "inspect_query.py"),
        home=tmp_path,
        place=Place(
            environment={f"NOTEBOOK_{name.upper()}": value for name, value in settings.items()}
        ),
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

    printed = run_client(
        server,
        "handed/listening.py",
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
