"""What a session's settings say of files and tables of others changes no row of a job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from keyrange.errors import KeyrangeError
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.write_by_spark import SparkWriter
from project.forms import usually
from queries.table_jobs import TableJob, individual
from tables.keyed_tables import KeyedTable


def test_an_empty_text_in_a_partition_column_is_one_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta's log has null for it, which no row of a batch would be equal to."""
    table = KeyedTable(tmp_path, keys=("id", "text"), by="text")
    table.merger = SparkWriter(spark, str(table.table))
    assert table.merge(0, table.staged((1, ""), (2, "b"))) == Merged(0, 2, 0)
    assert table.merge(1, table.staged((1, ""), (3, ""))) == Merged(1, 1, 0)
    assert table.rows() == {1: None, 2: "b", 3: None}


def test_rows_that_wait_are_read_as_they_were_written(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """A session may say of files of others that their times are of its zone, that their days are
    of the Julian calendar, and that those which cannot be read are passed over."""
    given = {
        "valueFormat": "json",
        "valueSchema": "id bigint, at timestamp_ntz, day date",
        "columns": "value",
    }
    settings = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.files.ignoreCorruptFiles": "true",
    }
    job, held = (TableJob(spark, topics, tmp_path / each) for each in ("job", "held"))
    table = KeyedTable(tmp_path / "table")
    table.merger = SparkWriter(spark, str(table.table))
    text = b'{"id": 1, "at": "2026-07-01T12:00:00", "day": "0001-01-01"}'
    for each in (job, held):
        each.produce(Record(text, b"k", 0))
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        job.run(into={"keys": ["id"]}, **given)
        held.run(**given, **individual(held.home, **{"commit.isolation": "transactional"}))
        staged = table.staged((1, "a"), (2, "b"), files=2)
        damaged = table.staging / staged.files[1].name
        damaged.write_bytes(bytes(damaged.stat().st_size))
        with pytest.raises(KeyrangeError, match="SINK_UNWRITABLE"):
            table.merge(0, staged)
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    assert (
        job.rows()
        == held.rows()
        == [{"id": 1, "at": datetime(2026, 7, 1, 12), "day": date(1, 1, 1)}]
    )
    assert table.rows() == {}


def test_a_merge_that_passed_for_another_querys_comes_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one session of Spark Connect the settings that name a batch are those of all queries."""
    table, whole = KeyedTable(tmp_path), SparkWriter._settings
    table.merger = SparkWriter(spark, str(table.table))
    table.merge(0, table.staged((1, "a")))
    others = [{"spark.databricks.delta.write.txnVersion": "0"}]

    def shared(writer: SparkWriter, settings: Mapping[str, str]) -> Any:
        is_of_merge = "spark.databricks.delta.write.txnVersion" in settings
        return whole(writer, {**settings, **(others.pop() if others and is_of_merge else {})})

    monkeypatch.setattr(SparkWriter, "_settings", shared)
    assert table.merge(1, table.staged((1, "b"), (2, "c"))) == Merged(1, 1, 0)
    assert (others, table.rows()) == ([], {1: "b", 2: "c"})


@pytest.mark.parametrize("zone", usually("Asia/Tokyo", "UTC"))
def test_a_generated_day_is_that_of_the_sessions_zone(
    spark: SparkSession, topics: Topics, tmp_path: Path, zone: str
) -> None:
    """In the partition of that day Delta looks for a time, and nowhere else."""
    job = TableJob(spark, topics, tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` (offset bigint, timestamp timestamp, "
        "day date GENERATED ALWAYS AS (CAST(timestamp AS DATE))) USING delta PARTITIONED BY (day)"
    )
    at_ms = int(datetime(2026, 1, 31, 23, 30, tzinfo=UTC).timestamp()) * 1000
    job.produce(Record(b"a", b"k", 0, timestamp_ms=at_ms))
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        job.run(columns="offset,timestamp")
        rows = spark.sql(
            f"SELECT offset, day = CAST(timestamp AS DATE) AS is_its_day FROM delta.`{job.table}` "
            f"WHERE timestamp = timestamp_millis({at_ms})"
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert list(map(tuple, rows)) == [(0, True)]
    [last] = DeltaTable(job.table).history(1)
    assert ("Spark" in last["engineInfo"]) is (zone != "UTC")
