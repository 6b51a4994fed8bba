"""The notebooks of jobs/, end to end: as on Databricks, and on a machine that has nothing yet.

`test_spark_connect.py` runs them over Spark Connect.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Topics
from keyrange.storage import checkpoint_files
from keyrange.storage.directory import Directory
from spark.notebooks import JOBS, Databricks, load_job, run_alone, run_notebook


@pytest.fixture(scope="module")
def quickstart(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The notebook's namespace, at its end."""
    home = tmp_path_factory.mktemp("quickstart")
    widgets = {"home": str(home), "bootstrap_servers": topics.cluster.bootstrap_servers}
    databricks = Databricks(spark, widgets)
    namespace = run_notebook("quickstart.py", databricks)
    assert databricks.restarts == 1
    return namespace


def orders(namespace: dict[str, Any]) -> list[int]:
    table = DeltaTable(namespace["table"]).to_pyarrow_table(columns=["order"])
    return sorted(table.column("order").to_pylist())


@pytest.mark.broker
@pytest.mark.spark
def test_quickstart_ends_with_every_order_once(quickstart: dict[str, Any]) -> None:
    assert orders(quickstart) == list(range(700))
    letters = DeltaTable(f"{quickstart['commit_table']}_dead_letters").to_pyarrow_table()
    kinds = sorted((row["kind"], row["attempts"]) for row in letters.to_pylist())
    assert kinds == [("dead", 2), ("dead", 2), ("replayed", None), ("replayed", None)]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_inspect_shows_what_is_not_done(
    quickstart: dict[str, Any],
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order that fails once more and waits, with one behind it, and one given up before."""
    options, order = quickstart["options"], quickstart["order"]
    options |= {"redelivery.backoff": "1h", "redelivery.backoff.max": "1h"}
    options |= {"availableNow.redelivery": "leave"}
    # Orders of one customer: the first cannot be read, the second has to wait for it.
    quickstart["send"]([order(100), order(140)])
    quickstart["run"](quickstart["by_record"](quickstart["read_order"]))
    names = ("checkpoint", "commit_table", "bootstrap_servers")
    told = {"options": "objectStore.aws_region=x kafka.client.id='a look'"}
    databricks = Databricks(spark, {name: quickstart[name] for name in names} | told)
    opened = []
    monkeypatch.setattr(
        checkpoint_files, "open_directory", lambda *given: opened.append(given) or Directory(*given)
    )
    capsys.readouterr()

    namespace = run_notebook("inspect_query.py", databricks)
    [(checkpoint, settings)] = opened
    assert (checkpoint, settings["aws_region"]) == (quickstart["checkpoint"], "x")

    pending = {row["cause"]: row["deliveries"] for row in namespace["pending"].collect()}
    assert pending == {"rejected": 1, "held_back": 0}
    assert namespace["lag"].groupby("partition")["commit_lag"].last().sum() == 2
    # What was given up was rejected before, and is not counted as both.
    assert tuple(namespace["work"][["rejected", "dead"]].sum()) == (3, 2)
    assert len(databricks.pages) == 4
    assert all("plotly" in page for page in databricks.pages)
    said = capsys.readouterr().out
    assert re.search(r"\|customer 20 *\|2 ", said)
    given_up = namespace["given_up"].collect()
    assert sum(row["given_up"] for row in given_up) == 2
    assert sum(row["replayed"] for row in given_up) == 2
    assert all("12,50" in row["error"] for row in given_up)


@pytest.mark.slow
@pytest.mark.broker
def test_quickstart_needs_nothing_that_is_there(tmp_path: Path) -> None:
    """As `python jobs/quickstart.py`: with a broker and a session of its own."""
    ended = run_alone(JOBS / "quickstart.py", directory=tmp_path, NOTEBOOK_HOME=str(tmp_path))
    assert "700 orders, each in the table once" in ended.stdout
    [table] = tmp_path.glob("*/orders")
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 700


@pytest.mark.slow
@pytest.mark.broker
def test_both_run_in_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to_ipynb.py writes, in kernels of Jupyter: from nothing, then a look at what it made."""
    monkeypatch.setenv("NOTEBOOK_HOME", str(tmp_path))
    # The cells of %pip run too, and bring nothing that is not here.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    made = in_jupyter("quickstart", tmp_path)
    assert "700 orders, each in the table once" in printed(made)
    [table] = tmp_path.glob("*/orders")
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 700

    monkeypatch.setenv("NOTEBOOK_CHECKPOINT", str(table.parent / "checkpoint"))
    monkeypatch.setenv("NOTEBOOK_COMMIT_TABLE", str(table.parent / "commits"))
    looked = in_jupyter("inspect_query", tmp_path)
    assert "last batch committed: 3" in printed(looked)
    plots = [each["data"]["application/vnd.plotly.v1+json"] for each in shown(looked)]
    # Lag, batches, what is not done (nothing), dead letters.
    assert [bool(each["data"]) for each in plots] == [True, True, False, True]


def in_jupyter(name: str, directory: Path) -> Any:
    """A notebook of jobs/ after it has run in a kernel of its own, of this Python."""
    reason = "Jupyter is not installed"
    nbformat = pytest.importorskip("nbformat", reason=reason)
    nbclient = pytest.importorskip("nbclient", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    path = directory / f"{name}.ipynb"
    load_job("to_ipynb").main([str(JOBS / f"{name}.py"), "--to", str(path)])
    document = nbformat.read(path, as_version=4)
    nbformat.validate(document)
    nbclient.NotebookClient(
        document, timeout=280, resources={"metadata": {"path": str(directory)}}
    ).execute()
    return document


def printed(document: Any) -> str:
    outputs = [each for cell in document.cells for each in cell.get("outputs", [])]
    return "".join(each.text for each in outputs if each.output_type == "stream")


def shown(document: Any) -> list[Any]:
    outputs = [each for cell in document.cells for each in cell.get("outputs", [])]
    return [each for each in outputs if each.output_type == "display_data"]
