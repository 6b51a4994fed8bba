"""`keyrange.job`: from a real topic straight into a Delta table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from keyrange.errors import InvalidError
from queries.individual import SOON, failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import options


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def test_records_as_they_are(job: TableJob, spark: SparkSession) -> None:
    job.produce(*(Record(b"v%d" % n, b"k%d" % n, n % 2) for n in range(100)))
    query = job.run()
    table = spark.read.format("delta").load(str(job.table))
    frame = spark.read.format("keyrange").options(**options(job.topics, job.topic)).load()
    assert table.schema == frame.schema
    assert sorted(table.collect()) == sorted(frame.collect())
    progress = json.loads(query.lastProgress.json)
    assert progress["observedMetrics"]["keyrange"]["records"] == 100
    assert progress["observedMetrics"]["keyrange"]["rows"] == 100
    job.produce(b"later")
    job.run()
    assert len(job.rows()) == 101


def test_a_function_of_a_cell(job: TableJob) -> None:
    suffix = "!"

    def work(record: Any) -> Any:
        text = record.value.decode()
        return None if text == "none" else [(text + suffix, record.offset)] * 2

    job.produce(b"a", b"none", b"b")
    job.run(work, "text string, at long")
    assert sorted(row["text"] for row in job.rows()) == ["a!", "a!", "b!", "b!"]


def test_a_record_that_fails_fails_its_batch_by_name(job: TableJob) -> None:
    def work(record: Any) -> Any:
        return (1 // int(record.value),)

    job.produce(Record(b"1", b"", 0), Record(b"0", b"", 0))
    query = job.start(work, "n int")
    text = failure_of(query)
    assert "[RECORD_FAILED]" in text
    assert f"partition={job.topic}-0, offset=1" in text
    assert "ZeroDivisionError" in text
    assert job.rows() == []
    job.run(lambda record: (int(record.value),), "n int")
    assert sorted(row["n"] for row in job.rows()) == [0, 1]


@pytest.mark.parametrize(
    "given",
    [
        # test_table_job_crashes.py has a record that fails in a partition as a whole.
        pytest.param({}, marks=pytest.mark.slow),
        {"splitBy": "keyRange", "keyRangesPerPartition": "3"},
    ],
)
def test_records_that_fail_come_again_and_the_others_are_done(
    job: TableJob, tmp_path: Path, given: dict[str, str]
) -> None:
    gate = tmp_path / "gate"

    def work(record: Any) -> Any:
        if record.value.startswith(b"!") and not gate.exists():
            raise ValueError("not yet")
        return (record.value.decode(), record.deliveries)

    own = individual(tmp_path, **SOON) | given
    job.produce(*(Record(b"%d" % n, b"k%d" % (n % 7), n % 2) for n in range(50)))
    job.produce(Record(b"!50", b"k1", 1), Record(b"51", b"k1", 1), Record(b"52", b"k2", 1))
    job.run(work, "text string, deliveries int", **own)
    assert sorted(int(row["text"]) for row in job.rows()) == [*range(50), 52]
    gate.touch()
    job.run_until(53, work, "text string, deliveries int", **own)
    found = {row["text"]: row["deliveries"] for row in job.rows()}
    assert len(job.rows()) == len(found) == 53
    # A slow machine comes to it again before its first run ends.
    assert found["!50"] >= 1
    assert found["51"] == 0


ORDERS = "id bigint, name string"


def test_values_that_are_json(job: TableJob) -> None:
    job.produce(*(Record(b'{"id": %d, "name": "n%d"}' % (n, n), b"k", 0) for n in range(20)))
    job.run(valueFormat="json", valueSchema=ORDERS)
    rows = job.rows()
    assert list(rows[0]) == ["key", "id", "name", *list(rows[0])[3:]]
    assert [(row["id"], row["name"], row["offset"]) for row in rows] == [
        (n, f"n{n}", n) for n in range(20)
    ]


def test_times_without_a_zone_are_of_the_session(job: TableJob, spark: SparkSession) -> None:
    job.produce(Record(b'{"at": "2024-07-01T12:00:00", "seen": ["2024-01-01"]}', b"k", 0))
    own = {"valueFormat": "json", "valueSchema": "at timestamp, seen array<timestamp>"}
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "PST")
        with pytest.raises(InvalidError, match=r"INVALID_OPTIONS.*zone 'PST'"):
            job.start(**own)
        assert not job.table.exists()
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        job.run(**own)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    (row,) = job.rows()
    assert row["at"] == datetime(2024, 7, 1, 10, tzinfo=UTC)
    assert row["seen"] == [datetime(2023, 12, 31, 23, tzinfo=UTC)]


@pytest.mark.parametrize("policy", ["null", "fail", "deadLetter"])
def test_values_that_are_not_what_the_schema_says(
    job: TableJob, tmp_path: Path, policy: str
) -> None:
    good = b'{"id": 7}'
    job.produce(Record(good, b"k", 0), Record(b'{"id": "x"}', b"k", 0), Record(good, b"k", 0))
    own = individual(tmp_path) if policy == "deadLetter" else {}
    own |= {"valueFormat": "json", "valueSchema": ORDERS, "badValues": policy}
    if policy == "fail":
        text = failure_of(job.start(**own))
        assert "[BAD_VALUE]" in text
        assert f"partition={job.topic}-0, offset=1" in text
        assert job.rows() == []
        return
    job.run(**own)
    assert [row["id"] for row in job.rows()] == ([7, None, 7] if policy == "null" else [7, 7])
    if policy == "deadLetter":
        letters = DeltaTable(tmp_path / "commits_dead_letters").to_pyarrow_table().to_pylist()
        assert [(each["offset"], each["value"]) for each in letters] == [(1, b'{"id": "x"}')]
