"""`jobs/process.py` as users run it, and what the command line says of its progress."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers.real_broker import Record, Topics
from commands.commanding import document
from keyrange.observing.progress_file import read_last
from queries.ingesting import ingest
from spark.notebooks import load_job

COUNT = 600
BROKEN = ("7", "150", "151")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("by", [pytest.param("spark", marks=pytest.mark.slow), "keyrange"])
def test_a_function_on_every_record(topics: Topics, tmp_path: Path, by: str) -> None:
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
        *("--commit-table", str(commits), "--available-now", "--written-by", by),
        *("--log-format", "json", "--progress", str(tmp_path / "progress.jsonl")),
        *(each for option in options for each in ("--option", option)),
    ]
    with ingest(topics, topic, tmp_path, "local[2]", *more, job="process.py") as run:
        assert run.wait() == 0, run.text()[-3000:]

    table = DeltaTable(str(run.table)).to_pyarrow_table(columns=["text"])
    found = sorted(map(int, table["text"].to_pylist()))
    assert found == [n for n in range(COUNT) if str(n) not in BROKEN]
    letters = document("deadletters", "list", commits)
    assert sorted(letter["attempts"] for letter in letters) == [2] * len(BROKEN)
    logged = [json.loads(line) for line in run.text().splitlines() if line.startswith('{"at"')]
    batches = [each for each in logged if each.get("event") == "batch"]
    told = read_last(tmp_path / "progress.jsonl", 1_000)
    assert [each["batch_id"] for each in batches] == [each["batchId"] for each in told]
    records = sum(each["records"] for each in batches)
    if by == "keyrange":
        # What is done counts: each record once, however often it was handed out.
        assert records == COUNT - len(BROKEN)
        assert records == sum(
            each["observedMetrics"]["keyrange"]["records"] or 0
            for each in told
            if "keyrange" in each["observedMetrics"]
        )
    else:
        # Each broken one is tried twice, and what waited behind it comes again.
        assert records >= COUNT + len(BROKEN)
        assert records == sum(each["numInputRows"] for each in told)
    assert logged[-1]["message"].startswith(f"ended: {records:,} records in {len(told)} batches")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_a_function_without_a_commit_table_commits_whole_batches(
    topics: Topics, tmp_path: Path
) -> None:
    """And a table that is partitioned, compressed by zstd."""
    topic = topics.create_topic("orders", 2)
    topics.produce(topic, (Record(b"%d" % n, b"k", n % 2) for n in range(COUNT)))
    more = [
        *("--function", "processing:work"),
        *("--schema", "partition int, offset bigint, key string, text string"),
        *("--available-now", "--written-by", "keyrange"),
        *("--partition-by", "partition", "--compression", "zstd"),
    ]
    with ingest(topics, topic, tmp_path, "local[2]", *more, job="process.py") as run:
        assert run.wait() == 0, run.text()[-3000:]
    table = DeltaTable(str(run.table)).to_pyarrow_table(columns=["text"])
    assert sorted(map(int, table["text"].to_pylist())) == list(range(COUNT))
    files = [path.relative_to(run.table) for path in run.table.rglob("*.parquet")]
    assert {str(path.parent) for path in files} == {"partition=0", "partition=1"}
    assert f"ended: {COUNT} records in 1 batch" in run.text()

    topics.produce(topic, [b"!broken"])
    with ingest(topics, topic, tmp_path, "local[2]", *more, job="process.py") as run:
        assert run.wait() == 1
    assert "RECORD_FAILED" in run.text()


def test_a_function_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a line, which Python prints, and before a session is made."""
    job = load_job("process")
    more = [
        *("--bootstrap-servers", "nowhere:9092", "--topic", "orders", "--table", "/nowhere/t"),
        *("--checkpoint", "/nowhere/c", "--function", "nowhere:work", "--schema", "n int"),
        *("--commit-table", str(tmp_path / "c")),
    ]
    monkeypatch.setattr(sys, "argv", ["process.py", *more])
    with pytest.raises(SystemExit) as raised:
        job.main()
    assert (
        str(raised.value)
        == "--function nowhere:work: ModuleNotFoundError: No module named 'nowhere'"
    )
