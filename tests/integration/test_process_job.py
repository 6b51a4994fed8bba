"""`jobs/process.py` as users run it, and what the command line says of its progress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from brokers import Record, Topics
from ingesting import ingest
from keyrange.cli.main import app

COUNT = 600
BROKEN = ("7", "150", "151")


@pytest.mark.broker
@pytest.mark.spark
def test_a_function_on_every_record(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create_topic("orders", 2)
    texts = [f"!{n}" if str(n) in BROKEN else str(n) for n in range(COUNT)]
    topics.produce(
        topic, (Record(text.encode(), b"%d" % (n % 50), n % 2) for n, text in enumerate(texts))
    )
    commits = tmp_path / "commits"
    options = ("maxDeliveries=2", "redelivery.backoff=10ms", "availableNow.redelivery=drain")
    more = [
        *("--function", "processing:work"),
        *("--schema", "partition int, offset bigint, key string, text string"),
        *("--commit-table", str(commits), "--available-now"),
        *(each for option in options for each in ("--option", option)),
    ]
    with ingest(topics, topic, tmp_path, "local[2]", *more, job="process.py") as run:
        assert run.wait() == 0, run.text()[-3000:]

    table = spark.read.format("delta").load(str(run.table))
    found = sorted(int(row.text) for row in table.collect())
    assert found == [n for n in range(COUNT) if str(n) not in BROKEN]
    shown = CliRunner().invoke(app, ["deadletters", "list", str(commits), "--output", "json"])
    letters = json.loads(shown.stdout)
    assert sorted(letter["attempts"] for letter in letters) == [2] * len(BROKEN)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("function", "said"),
    [("nowhere:work", "No module named 'nowhere'"), ("processing:SCHEMA", "cannot be called")],
)
def test_a_function_that_is_none_is_refused(
    function: str, said: str, topics: Topics, tmp_path: Path
) -> None:
    more = ["--function", function, "--schema", "n int", "--commit-table", str(tmp_path / "c")]
    with ingest(topics, "orders", tmp_path, "local[1]", *more, job="process.py") as run:
        assert run.wait() == 1
    assert said in run.text()
    assert "Traceback" not in run.text()
