"""`into(..., evolve="add")`: what the table lacks comes with the batch that has it, wherever the
driver ends, and whoever reads or writes beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Topics
from keyrange.errors import KeyrangeError
from keyrange.storage.sink_table import SinkTable
from queries.crashing_jobs import SCHEMA, CrashingJob
from queries.table_jobs import TableJob

PRICED = f"{SCHEMA}, price double"


@pytest.fixture
def job(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Iterator[CrashingJob]:
    yield CrashingJob(spark, topics, tmp_path, request.param)
    for query in spark.streams.active:
        query.stop()


def by_spark(job: Any, columns: str, order: str = "at") -> list[tuple[Any, ...]]:
    rows = job.spark.sql(f"SELECT {columns} FROM delta.`{job.table}` ORDER BY {order}")
    return [tuple(row) for row in rows.collect()]


def job_rows(table: DeltaTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.parametrize(
    ("job", "owner", "step", "before"),
    [
        ("individual", SinkTable, "append", True),
        pytest.param("batch", SinkTable, "append", True, marks=pytest.mark.slow),
        pytest.param("batch", SinkTable, "append", False, marks=pytest.mark.slow),
    ],
    indirect=["job"],
)
def test_a_batch_of_the_older_columns_is_finished_by_the_newer_job(
    job: CrashingJob, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool
) -> None:
    job.produce("a", "b")
    job.run(evolve="add")
    job.produce("c")
    assert f"at {step}" in job.crash(monkeypatch, owner, step, before, evolve="add")
    count = len(job.worked_on)
    newer = {"schema": PRICED, "more": (0.5,), "evolve": "add"}
    job.produce("d")
    job.run("2", **newer)
    assert job.rows() == {0: "a", 1: "b", 2: "c", 3: "d2"}
    assert by_spark(job, "at, price") == [(0, None), (1, None), (2, None), (3, 0.5)]
    assert len(job.worked_on) == count + 1
    # And one of the newer columns by the older job: nothing of it is lost.
    job.produce("e")
    assert f"at {step}" in job.crash(monkeypatch, owner, step, before, said="3", **newer)
    job.produce("f")
    job.run("4", evolve="add")
    assert by_spark(job, "text, price")[4:] == [("e3", 0.5), ("f4", None)]


@pytest.mark.parametrize("job", ["batch"], indirect=True)
def test_without_it_the_error_names_the_statement_and_nothing_is_written(job: CrashingJob) -> None:
    job.produce("a")
    job.run()
    version = DeltaTable(job.table).version()
    with pytest.raises(KeyrangeError, match=r"\[SINK_UNSUITABLE\].*no column price") as failure:
        job.start(schema=PRICED, more=(0.5,))
    assert DeltaTable(job.table).version() == version
    found = re.search(r"ALTER TABLE .* ADD COLUMNS \(.*?\)", str(failure.value))
    assert found is not None
    job.spark.sql(found[0])
    job.produce("b")
    job.run(schema=PRICED, more=(0.5,))
    assert by_spark(job, "at, price") == [(0, None), (1, 0.5)]
    with pytest.raises(KeyrangeError, match=r"price is DOUBLE and would be STRING"):
        job.start(schema=f"{SCHEMA}, price string", more=("x",), evolve="add")


@pytest.mark.parametrize("job", ["batch"], indirect=True)
def test_who_reads_and_writes_beside_it(job: CrashingJob, tmp_path: Path) -> None:
    """A reader of the version before has the rows of that version; a second query with the older
    columns goes on; Spark writes the new ones."""
    job.produce("a")
    job.run(evolve="add")
    other = CrashingJob(job.spark, job.topics, tmp_path / "other", "batch")
    other.home.mkdir()
    other.table, other.topic, other.options = job.table, job.topic, job.options
    other.run("o", evolve="add")
    pinned = DeltaTable(job.table)
    rows, read = len(job_rows(pinned)), job.spark.read.format("delta")
    job.produce("b")
    job.run(schema=PRICED, more=(0.5,), evolve="add")
    before = read.option("versionAsOf", pinned.version()).load(str(job.table))
    assert (before.count(), before.columns) == (rows, ["at", "text"])
    assert len(job_rows(pinned)) == rows
    other.run("o", evolve="add")
    job.spark.sql(f"INSERT INTO delta.`{job.table}` VALUES (9, 's', 2.5)")
    assert by_spark(job, "text, price", "text") == [
        ("a", None),
        ("ao", None),
        ("b", 0.5),
        ("bo", None),
        ("s", 2.5),
    ]


def test_nested_fields_and_wider_types_as_spark_reads_them(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path, 1)
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` (n int, f float, s struct<x: int>, "
        "l array<struct<x: int>>) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    into = {"evolve": "add"}
    job.produce(b"1")
    job.run(
        lambda _: (1, 0.5, (1,), [(1,)]),
        "n int, f float, s struct<x: int>, l array<struct<x: int>>",
        into=into,
    )
    job.produce(b"2")
    wider = "n long, f double, s struct<x: long, y: string>, l array<struct<x: int, y: string>>"
    job.run(lambda _: (1 << 40, 0.1, (1 << 41, "y"), [(2, "z")]), wider, into=into)
    columns = "n, f, s.x, s.y, l[0].x, l[0].y"
    assert by_spark(job, columns, "n") == [
        (1, 0.5, 1, None, 1, None),
        (1 << 40, 0.1, 1 << 41, "y", 2, "z"),
    ]
    spark.sql(f"UPDATE delta.`{job.table}` SET f = 2.5 WHERE n = 1")
    spark.sql(f"OPTIMIZE delta.`{job.table}`")
    assert by_spark(job, columns, "n")[0] == (1, 2.5, 1, None, 1, None)
