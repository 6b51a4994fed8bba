"""A merge in the driver beside Spark's `MERGE`, into the same table as Spark has written it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from keyrange.individual_commits.table_output import writers_of
from keyrange.storage.merge_by_file import FileMerger
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.staged import StagedWriter
from keyrange.storage.write_by_spark import SparkWriter
from project.forms import usually
from tables.keyed_tables import KEPT, KeyedTable

TEXTS = ["a b", "é%/x", "a%20b", "=&{}\\", "'\"", "~", "..", "plain", "x" * 130]
COLUMNS = (
    "id bigint, text string, at timestamp, ntz timestamp_ntz, more struct<until: timestamp, n: "
    "map<string, decimal(20, 3)>>, days array<date>, small tinyint, blob binary"
)
VALUES = (
    "timestamp'{year}-12-31 23:59:59.999999', timestamp_ntz'{year}-01-02 03:04:05.000006', "
    "struct(timestamp'{year}-06-01 00:00:00.1', map('k', {id}.125BD)), "
    "array(date'{year}-02-03', null), cast({id} as tinyint), X'00FF'"
)


def filled(spark: SparkSession, table: Path, chance: random.Random) -> None:
    """Some of it beyond the years that nanoseconds reach, some of it null, in several files."""
    spark.sql(
        f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta PARTITIONED BY (text) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    for first in (0, 20):
        rows = []
        for id in range(first, first + 20):
            text = chance.choice([*TEXTS, None])
            own = "null" if text is None else f"X'{text.encode().hex()}'"
            year = chance.choice(["0001", "1582", "1900", "2026", "2500", "9999"])
            rest = VALUES.format(year=year, id=id) if id % 5 else ", ".join(["null"] * 6)
            rows.append(f"({id}, cast({own} as string), {rest})")
        spark.sql(f"INSERT INTO delta.`{table}` VALUES {', '.join(rows)}")


def held(spark: SparkSession, table: Path) -> list[dict[str, Any]]:
    names = ("at", "ntz", "more", "days")
    texts = ", ".join(f"cast({name} as string) AS {name}" for name in names)
    rows = spark.sql(f"SELECT id, text, {texts}, small, blob FROM delta.`{table}`")
    return sorted((row.asDict() for row in rows.collect()), key=lambda row: (row["id"], str(row)))


def feed(spark: SparkSession, table: Path) -> list[str]:
    """What the table's change feed tells of the merges."""
    told = spark.read.option("readChangeFeed", "true").option("startingVersion", 3)
    rows = told.format("delta").load(str(table)).drop("_commit_timestamp")
    texts = rows.selectExpr("to_json(struct(*)) AS said")
    return sorted(each.said for each in texts.collect())


@pytest.mark.parametrize("keys", usually(("id",), ("id", "text")))
def test_it_makes_of_a_table_what_spark_makes_of_it(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    chance = random.Random(len(keys))
    by_spark = KeyedTable(tmp_path / "spark", keys, by="text")
    by_file = KeyedTable(tmp_path / "file", keys, by="text")
    filled(spark, by_spark.table, chance)
    shutil.copytree(by_spark.table, by_file.table)
    writers: list[tuple[KeyedTable, StagedWriter]] = [
        (by_spark, SparkWriter(spark, str(by_spark.table))),
        (by_file, FileMerger()),
    ]
    for batch_id in range(2):
        rows = [
            (chance.randrange(50), chance.choice([*TEXTS, *([None] * ("text" not in keys))]))
            for _ in range(15)
        ]
        if "text" not in keys:
            rows.append((chance.randrange(40), KEPT))
        told = set()
        for home, writer in writers:
            home.merger = writer
            told.add(home.merge(batch_id, home.staged(*rows, files=2, at=100 * batch_id)))
        assert len(told) == 1
    found = held(spark, by_file.table)
    assert found == held(spark, by_spark.table)
    assert len(found) > 30
    # What each of them has done on the way.
    assert feed(spark, by_file.table) == feed(spark, by_spark.table)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{by_file.table}`").collect()
    assert [each.operation for each in history[:2]] == ["MERGE"] * 2
    spark.sql(f"OPTIMIZE delta.`{by_file.table}`").collect()
    assert held(spark, by_file.table) == found


@pytest.fixture
def in_berlin(spark: SparkSession) -> Iterator[None]:
    """As Delta wrote times of partitions before 3.2."""
    settings = {
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.databricks.delta.write.utcTimestampPartitionValues": "false",
    }
    zone = spark.conf.get("spark.sql.session.timeZone")
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)
    assert spark.conf.get("spark.sql.session.timeZone") == zone


@pytest.mark.usefixtures("in_berlin")
def test_times_of_partitions_without_a_zone_stay(spark: SparkSession, tmp_path: Path) -> None:
    home = KeyedTable(tmp_path, by="at")
    spark.sql(
        f"CREATE TABLE delta.`{home.table}` (id bigint, at timestamp) USING delta "
        "PARTITIONED BY (at)"
    )
    old, new = "2020-01-01 00:00:00", datetime(2026, 7, 1, 12, tzinfo=UTC)
    both = f"SELECT id, timestamp'{old}' FROM range(1, 3, 1, 1)"
    spark.sql(f"INSERT INTO delta.`{home.table}` {both}")
    rows = pa.record_batch({"id": [1], "at": pa.array([new], pa.timestamp("us", "UTC"))})
    staged, writers = (
        home.staged_as(rows, ["long", "timestamp"]),
        writers_of(spark, str(home.table)),
    )
    counts = home.sink(rows.schema).write(staged, writers, "app", 0, True)
    assert counts == Merged(1, 0, 0)
    found = spark.sql(f"SELECT id, cast(at as string) AS at FROM delta.`{home.table}` ORDER BY id")
    assert [*map(tuple, found.collect())] == [(1, "2026-07-01 14:00:00"), (2, old)]


def test_days_of_partitions_that_python_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    home = KeyedTable(tmp_path, keys=("id", "day"), by="day")
    home.merger = SparkWriter(spark, str(home.table))
    days = pa.array([0, 2**22], pa.int32()).cast(pa.date32())
    rows = pa.record_batch({"id": [1, 1], "day": days})
    told = [
        home.merge(batch_id, home.staged_as(rows, ["long", "date"]), home.sink(rows.schema))
        for batch_id in range(2)
    ]
    assert told == [Merged(0, 2, 0), Merged(2, 0, 0)]
