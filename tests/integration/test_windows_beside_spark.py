"""Windows of keyrange beside Spark's own, of the same records: the same keys, bounds and values."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import keyrange
from brokers.real_broker import Record, Topics
from project.forms import usually
from queries.table_jobs import TableJob, individual

BEGAN_MS = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000
DELAY_MINUTES = 10
TIME = keyrange.EventTime(delay=f"{DELAY_MINUTES} minutes")
# The watermark comes behind all windows by them.
LAST = "last"
Event = tuple[int, str, int]
# Spark's are made in a session.
WINDOWS: dict[str, tuple[Any, Callable[[], Column]]] = {
    "tumbling": (keyrange.windows.tumbling("30m"), lambda: F.window("at", "30 minutes")),
    "hopping": (
        keyrange.windows.hopping("1h", "20m"),
        lambda: F.window("at", "1 hour", "20 minutes"),
    ),
    "session": (keyrange.windows.session("15m"), lambda: F.session_window("at", "15 minutes")),
}


def events(random: Random) -> list[Event]:
    """Time in ms, key and value, out of order by less than the delay."""
    found = []
    for at in range(300):
        minutes = at + random.random() * (DELAY_MINUTES - 1)
        key = f"k{random.randrange(12)}"
        found.append((BEGAN_MS + round(minutes * MINUTE_MS), key, random.randrange(-50, 100)))
    return found


def records(found: list[Event]) -> list[Record]:
    return [
        Record(json.dumps({"v": value}).encode(), key.encode(), hash_of(key), at_ms)
        for at_ms, key, value in found
    ]


def hash_of(key: str) -> int:
    return 0 if key == LAST else int(key[1:]) % 2


@pytest.mark.parametrize("kind", usually("hopping", "session", "tumbling"))
def test_windows_are_those_of_spark(
    spark: SparkSession, topics: Topics, tmp_path: Path, kind: str
) -> None:
    windows, of_spark = WINDOWS[kind]
    job = TableJob(spark, topics, tmp_path)
    own = windows.count().sum(total="v").min(least="v").max(most="v").avg(mean="v")
    given = {
        **individual(tmp_path, splitBy="keyRange", keyRangesPerPartition="3"),
        "slot.directory": str(tmp_path / "slots"),
        "maxOffsetsPerTrigger": "70",
        "keyFormat": "string",
        "valueFormat": "json",
        "valueSchema": "v long",
    }
    made = events(Random(kind))
    for start in range(0, len(made), 100):
        job.produce(*records(made[start : start + 100]))
        job.run(own, time=TIME, **given)
    over_ms = BEGAN_MS + 10_000 * MINUTE_MS
    job.produce(*(Record(b'{"v": 0}', LAST.encode(), at, over_ms) for at in (0, 1)))
    job.run(own, time=TIME, **given)

    rows = [(datetime.fromtimestamp(at / 1000, UTC), key, value) for at, key, value in made]
    frame = spark.createDataFrame(rows, "at timestamp, key string, v long")
    expected = (
        frame.groupBy("key", of_spark().alias("w"))
        .agg(F.count("*"), F.sum("v"), F.min("v"), F.max("v"), F.avg("v"))
        .select("key", F.unix_millis("w.start"), F.unix_millis("w.end"), *COLUMNS)
    )
    names = ("count", "total", "least", "most", "mean")
    found = [
        (row["key"], *(_ms(row[f"window_{end}"]) for end in ("start", "end")), *map(row.get, names))
        for row in job.rows()
    ]
    assert sorted(found) == sorted(map(tuple, expected.collect()))


COLUMNS = ("count(1)", "sum(v)", "min(v)", "max(v)", "avg(v)")


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
