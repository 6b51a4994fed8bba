"""The tables of `keyrange.job`: how their files are laid out, and what others read of them and do
to them."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from queries.table_jobs import TableJob
from spark.sources import committed
from tables.by_duckdb import by_duckdb

FIRST_MS = int(datetime(2026, 1, 30, 22, 30, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def hourly(numbers: range) -> list[Record]:
    """A record for each number, and for each number an hour."""
    return [Record(b"%d" % n, b"k", n % 2, timestamp_ms=FIRST_MS + n * HOUR_MS) for n in numbers]


def test_days_and_hours_as_others_read_them(job: TableJob, spark: SparkSession) -> None:
    job.produce(*hourly(range(40)))
    into = {"partition_by": ["day(timestamp)", "hour(timestamp)"], "compression": "zstd"}
    job.run(into=into)
    table = DeltaTable(job.table)
    assert table.metadata().partition_columns == ["day", "hour"]
    assert all(".zstd." in name for name in table.file_uris())
    by_spark = spark.read.format("delta").load(str(job.table))
    rows = {
        int(row.value): (row.timestamp.astimezone(UTC), row.day, row.hour)
        for row in by_spark.collect()
    }
    assert sorted(rows) == list(range(40))
    for n, (at, day, hour) in rows.items():
        expected = datetime.fromtimestamp((FIRST_MS + n * HOUR_MS) / 1000, UTC)
        assert (at, day, hour) == (expected, expected.date(), expected.hour)
    assert by_spark.where("day = DATE '2026-01-31' AND hour = 7").count() == 1
    own = table.to_pyarrow_table(filters=[("hour", "=", 7)]).column("value").to_pylist()
    assert sorted(map(int, own)) == [9, 33]
    assert values(job.table, "hour = 7") == [9, 33]
    spark.sql(f"DELETE FROM delta.`{job.table}` WHERE hour = 7 AND day = DATE '2026-01-31'")
    assert values(job.table, "hour = 7") == [33]


def values(table: Path, where: str) -> list[int]:
    """Of some rows, as DuckDB finds them."""
    return sorted(map(int, by_duckdb(table, "CAST(value AS VARCHAR)", where)))


def test_optimize_between_batches_and_a_delete_by_others(
    job: TableJob, spark: SparkSession
) -> None:
    where = f"delta.`{job.table}`"
    given = {"into": {"optimize_every": 2}, "maxOffsetsPerTrigger": "10"}
    # A deletion from what a batch wrote, and one from what OPTIMIZE did.
    for n in range(2):
        job.produce(*hourly(range(n * 10, n * 10 + 10)))
        job.run(**given)
        spark.sql(f"DELETE FROM {where} WHERE CAST(CAST(value AS STRING) AS INT) % 10 = {n}")
    job.produce(*hourly(range(20, 40)))
    job.run(**given)
    assert committed(job.checkpoint) == [0, 1, 2, 3]
    table = DeltaTable(job.table)
    operations = [each["operation"] for each in table.history()]
    assert operations.count("OPTIMIZE") == 2
    values = sorted(map(int, table.to_pyarrow_table().column("value").to_pylist()))
    # Each deletion is of what was there then.
    assert values == [n for n in range(40) if not n // 10 <= n % 10 < 2]


def test_files_of_a_size(job: TableJob) -> None:
    job.produce(*(Record(os.urandom(50_000), b"k", 0) for _ in range(200)))
    job.run(into={"target_bytes": 1 << 20}, maxBatchRows="10")
    sizes = [Path(each).stat().st_size for each in DeltaTable(job.table).file_uris()]
    assert len(sizes) >= 5
    assert max(sizes) < 3 << 20


def test_numbers_and_long_texts_are_in_the_partitions_that_spark_has(
    job: TableJob, spark: SparkSession
) -> None:
    """Spark writes the same rows beside: whoever rewrites a partition finds one, and not two."""
    long = "\u00e9" * 100
    rows = [(n, 0.1 * n, 10.0**n, long if n % 2 else f"{n}") for n in range(-8, 9)]
    schema, names = "n long, f float, d double, city string", ("n", "f", "d", "city")
    values = (dict(zip(names, each, strict=True)) for each in rows)
    job.produce(*(json.dumps(each).encode() for each in values))
    into = {"partition_by": ["f", "d", "city"]}
    job.run(into=into, valueFormat="json", valueSchema=schema, columns="value")
    kept = [each for each in rows if each[3] != long]
    # Spark makes a directory of the whole value, and the system refuses that.
    (
        spark.createDataFrame(kept, schema)
        .write.format("delta")
        .partitionBy("f", "d", "city")
        .mode("append")
        .save(str(job.table))
    )
    texts = Counter(partition_texts(job.table))
    assert texts.total() == len(rows) + len(kept)
    assert sorted(texts.values()) == [1] * (len(rows) - len(kept)) + [2] * len(kept)
    where = spark.read.format("delta").load(str(job.table)).where(f"city = '{long}'")
    assert sorted(row.n for row in where.collect()) == [n for n in range(-8, 9) if n % 2]


def partition_texts(table: Path) -> list[tuple[str, ...]]:
    """The partition values of all files, as the log has them."""
    lines = [
        json.loads(line)
        for each in sorted((table / "_delta_log").glob("*.json"))
        for line in each.read_text().splitlines()
    ]
    added = [each["add"]["partitionValues"] for each in lines if "add" in each]
    return [tuple(each[name] for name in sorted(each)) for each in added]


def test_a_partitioned_table_that_spark_made(job: TableJob, spark: SparkSession) -> None:
    """Spark finds the rows by their partition, and generates the same day for its own."""
    schema = "at long, text string, time timestamp"
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` ({schema}, day date GENERATED ALWAYS AS "
        "(CAST(time AS DATE))) USING delta PARTITIONED BY (text, day)"
    )

    def timed(record: Any) -> Any:
        at = record.offset
        return (at, record.value.decode(), datetime.fromtimestamp(at * 40_000, UTC))

    values = ["a/b=c%", "\u00e9 \u4e16:#?'\"+&", "%2F", "..", "x"]
    job.produce(*(Record(value.encode(), b"k", 0) for value in values))
    job.run(timed, schema)
    frame = spark.sql("SELECT 9L AS at, 'x' AS text, timestamp_seconds(160000) AS time")
    frame.write.format("delta").mode("append").save(str(job.table))
    found = spark.read.format("delta").load(str(job.table))
    assert {row.at: (row.text, str(row.day)) for row in found.collect()} == {
        **{at: (value, f"1970-01-0{1 + at * 40 // 86}") for at, value in enumerate(values)},
        9: ("x", "1970-01-02"),
    }
    for at, value in enumerate(values):
        assert at in [row.at for row in found.where(found.text == value).collect()]
    late = found.where("time >= timestamp_seconds(100000)")
    assert sorted(row.at for row in late.collect()) == [3, 4, 9]
