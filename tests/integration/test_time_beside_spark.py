"""Deduplication and timers of keyrange beside Spark's, of the same records: equal rows where both
mean the same, and the differences that guides/time.md names."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import keyrange
from brokers.real_broker import Record, Topics
from queries.table_jobs import TableJob, individual
from spark.sources import options

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)
MINUTE_MS = 60_000
HOUR = timedelta(hours=1)
# Behind everything else, it ends what is open.
LAST = "last"
LAST_MINUTE = 100_000
# Minute, key and id.
Event = tuple[float, str, str]


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    # With one partition Spark's watermark is that of the partition.
    return TableJob(spark, topics, tmp_path, partitions=1)


def produce(job: TableJob, events: Sequence[Event]) -> None:
    job.produce(
        *(
            Record(json.dumps({"id": at_id}).encode(), key.encode(), 0, at_ms(minute))
            for minute, key, at_id in events
        )
    )


def at_ms(minute: float) -> int:
    return BEGAN_MS + round(minute * MINUTE_MS)


def run(job: TableJob, *parts: Any, limit: int = 60, **given: Any) -> None:
    """Batches of at most `limit` records, and one behind the last watermark."""
    own = individual(job.home, splitBy="keyRange", keyRangesPerPartition="3")
    own |= {"maxOffsetsPerTrigger": str(limit), "slot.directory": str(job.home / "slots")}
    typed = {"keyFormat": "string", "valueFormat": "json", "valueSchema": "id string"}
    for _ in range(2):
        job.run(*parts, **given, **own, **typed)


def read_by_spark(job: TableJob, limit: int = 60) -> DataFrame:
    given = options(job.topics, job.topic, startingOffsets="earliest")
    given["maxOffsetsPerTrigger"] = str(limit)
    rows = job.spark.readStream.format("keyrange").options(**given).load()
    value = F.get_json_object(F.col("value").cast("string"), "$.id").alias("id")
    return rows.select(F.col("key").cast("string").alias("key"), "timestamp", value)


def run_by_spark(frame: DataFrame, home: Path) -> list[dict[str, Any]]:
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(home / "spark_out"))
        .option("checkpointLocation", str(home / "spark"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    rows: list[dict[str, Any]] = pq.read_table(home / "spark_out").to_pylist()
    return [row for row in rows if row["key"] != LAST]


def written(job: TableJob) -> Counter[tuple[str, str]]:
    return Counter((row["key"], row["id"]) for row in job.rows() if row["key"] != LAST)


def with_duplicates(random: Random) -> list[Event]:
    """Out of order by up to 20 minutes; duplicates come within half an hour, or after six."""
    found = []
    for at in range(400):
        key, minute = f"k{random.randrange(8)}", 3.0 * at
        number = f"{key}-{at}"
        found.append((minute + 20 * random.random(), minute, key, number))
        if random.random() < 0.5:
            again = minute + 30 * random.random()
            found.append((again + 10, again, key, number))
        # Spark forgets ids where a batch ends, and so has to have enough of them behind.
        if at < 240 and random.random() < 0.2:
            found.append((minute + 6 * 60 + 20 * random.random(), minute + 360, key, number))
    return [(minute, key, number) for _, minute, key, number in sorted(found)]


@pytest.mark.slow
def test_duplicates_are_those_of_spark(job: TableJob, tmp_path: Path) -> None:
    events = with_duplicates(Random(7))
    produce(job, [*events, (LAST_MINUTE, LAST, "end")])
    run(job, keyrange.deduplicate(by="id", within="1h"), time=keyrange.EventTime(delay="1h"))
    timed = read_by_spark(job).withWatermark("timestamp", "1 hour")
    rows = run_by_spark(timed.dropDuplicatesWithinWatermark(["key", "id"]), tmp_path)
    by_spark = Counter((row["key"], row["id"]) for row in rows)
    assert written(job) == by_spark
    # Some were duplicates, and some came again when they were none any more.
    assert len(by_spark) == 400 < by_spark.total() < len(events)


@pytest.mark.slow
def test_where_duplicates_are_others_than_those_of_spark(job: TableJob, tmp_path: Path) -> None:
    """An id that comes again behind `within`, before the watermark has passed it; and one of
    another key."""
    produce(job, [(0, "a", "1"), (0, "b", "1"), (61, "a", "1"), (LAST_MINUTE, LAST, "end")])
    run(
        *(job, keyrange.deduplicate(by="id", within="1h")),
        limit=1,
        time=keyrange.EventTime(delay="1h"),
    )
    assert written(job) == Counter({("a", "1"): 2, ("b", "1"): 1})
    timed = read_by_spark(job, limit=1).withWatermark("timestamp", "1 hour")
    rows = run_by_spark(timed.dropDuplicatesWithinWatermark(["id"]), tmp_path)
    assert [(row["key"], row["id"]) for row in rows] == [("a", "1")]


SCHEMA = "key string, last timestamp, n long"


def remember(record: Any, state: Any) -> None:
    """The last time of a key, how many records it has, and a timer two hours behind that."""
    last, n = state.seen.get(default=(record.timestamp, 0))
    last = max(last, record.timestamp)
    state.seen.update((last, n + 1))
    state.timers.clear()
    state.timers.set(last + 2 * HOUR)


def gone(key: str, at: datetime, state: Any) -> Any:
    last, n = state.seen.get()
    assert at == last + 2 * HOUR
    state.seen.clear()
    return key, last, n


class Remembering(StatefulProcessor):
    """The same by Spark. Its timers fire when the watermark has passed them."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._seen = handle.getValueState("seen", "last long, n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        del key, timerValues
        last, n = self._seen.get() if self._seen.exists() else (-1, 0)
        for row in rows:
            last, n = max(last, row.at_ms), n + 1
        self._seen.update((last, n))
        for each in list(self._handle.listTimers()):
            self._handle.deleteTimer(each)
        self._handle.registerTimer(last + 120 * MINUTE_MS - 1)
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        del timerValues, expiredTimerInfo
        last, n = self._seen.get()
        self._seen.clear()
        yield Row(key=key[0], last_ms=last, n=n)

    def close(self) -> None:
        return


def transformed(job: TableJob, home: Path, limit: int = 60) -> list[tuple[str, int, int]]:
    timed = read_by_spark(job, limit).withWatermark("timestamp", "10 minutes")
    frame = timed.withColumn("at_ms", F.unix_millis("timestamp")).groupBy("key")
    schema = "key string, last_ms long, n long"
    rows = run_by_spark(
        frame.transformWithState(Remembering(), schema, "Append", "EventTime"), home
    )
    return sorted((row["key"], row["last_ms"], row["n"]) for row in rows)


def remembered(job: TableJob, limit: int = 60) -> list[tuple[str, int, int]]:
    run(
        *(job, remember, SCHEMA),
        limit=limit,
        state={"seen": keyrange.ValueState("at timestamp, n long")},
        time=keyrange.EventTime(delay="10 minutes"),
        on_timer=gone,
    )
    rows = [row for row in job.rows() if row["key"] != LAST]
    return sorted((row["key"], round(row["last"].timestamp() * 1000), row["n"]) for row in rows)


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.streaming.stateStore.providerClass"
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set(name, store)
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("rocksdb")
def test_timers_are_those_of_transform_with_state(job: TableJob, tmp_path: Path) -> None:
    """Keys are there for an hour, and away for five; no batch takes as long as a timer waits."""
    random = Random(11)
    events = []
    for at in range(600):
        # A key of each of six hours; the next hour has others.
        key = f"k{at // 50 % 6}-{random.randrange(3)}"
        events.append((1.2 * at + 8 * random.random(), 1.2 * at, key))
    in_order = [(minute, key, "") for _, minute, key in sorted(events)]
    produce(job, [*in_order, (LAST_MINUTE, LAST, "")])
    found = remembered(job, 40)
    assert found == transformed(job, tmp_path, 40)
    assert sum(n for _, _, n in found) == 600
    assert len(found) > len({key for key, _, _ in found})


@pytest.mark.slow
@pytest.mark.usefixtures("rocksdb")
def test_where_timers_are_others_than_those_of_transform_with_state(
    job: TableJob, tmp_path: Path
) -> None:
    """A record comes in the batch in which the timer of its key is due: keyrange fires it before,
    and Spark's processor deletes it."""
    events = [(0, "a", ""), (140, "b", ""), (150, "a", ""), (LAST_MINUTE, LAST, "")]
    produce(job, events)
    assert [(key, n) for key, _, n in remembered(job, 1)] == [("a", 1), ("a", 1), ("b", 1)]
    assert [(key, n) for key, _, n in transformed(job, tmp_path, 1)] == [("a", 2), ("b", 1)]
