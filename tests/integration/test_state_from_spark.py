"""Queries that move over from Spark's own state: what its state store has is what a job begins
with."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import keyrange
from brokers.real_broker import Record, Topics
from keyrange.kafka.messages.produce import partition_of
from queries.table_jobs import TableJob, individual
from spark.sources import options

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)
GAP = timedelta(minutes=30)
STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path, partitions=2)


def records(*events: tuple[str, int, int]) -> list[Record]:
    """Of key, minute and value."""
    return [
        Record(
            b'{"v": %d}' % v, key.encode(), partition_of(key.encode(), 2), BEGAN_MS + at * 60_000
        )
        for key, at, v in events
    ]


def events_of(job: TableJob) -> DataFrame:
    given = options(job.topics, job.topic, startingOffsets="earliest")
    value = F.get_json_object(F.col("value").cast("string"), "$.v").cast("long").alias("v")
    rows = job.spark.readStream.format("keyrange").options(**given).load()
    return rows.select(F.col("key").cast("string").alias("key"), "timestamp", value)


def run_spark(frame: DataFrame, home: Path) -> str:
    """Where the query ended, as startingOffsets."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(home / "spark_out"))
        .option("checkpointLocation", str(home / "spark"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    ends: dict[str, Any] = json.loads(query.recentProgress[-1].sources[0].endOffset)
    ends.pop("@keyrange")
    return json.dumps(ends)


def start(job: TableJob, ends: str, *parts: Any, **given: Any) -> None:
    own = options(
        *(job.topics, job.topic),
        **individual(job.home, splitBy="keyRange", keyRangesPerPartition="2"),
        startingOffsets=ends,
        valueFormat="json",
        valueSchema="v long",
    )
    writer = keyrange.job(own | {"keyFormat": "string"}, *parts, **given)
    into = writer.into(str(job.table), str(job.checkpoint), spark=job.spark)
    query = into.trigger(availableNow=True).start()
    assert query.awaitTermination(240)


def minute(at: datetime) -> int:
    # Spark's Parquet has no zone.
    return (at.replace(tzinfo=UTC) - BEGAN) // timedelta(minutes=1)


def sessions(*events: tuple[str, int, int]) -> set[tuple[Any, ...]]:
    """Key, first and last minute, records, sum and average of each session."""
    found: list[list[Any]] = []
    for key, at, v in sorted(events):
        if found and found[-1][0] == key and at <= found[-1][2] + 30:
            found[-1][2] = at
            found[-1][3] += [v]
        else:
            found.append([key, at, at, [v]])
    return {
        (key, first, last, len(each), sum(each), sum(each) / len(each))
        for key, first, last, each in found
    }


def test_open_sessions_of_spark_go_on_in_windows(job: TableJob, tmp_path: Path) -> None:
    first = [("a", 0, 1), ("a", 20, 2), ("b", 5, 5), ("c", 40, 7), ("d", -90, 1), ("d", -80, 3)]
    job.produce(*records(*first))
    grouped = events_of(job).withWatermark("timestamp", "10 minutes")
    by_session = grouped.groupBy("key", F.session_window("timestamp", "30 minutes").alias("w"))
    found = by_session.agg(F.count("*").alias("n"), F.sum("v").alias("s"), F.avg("v").alias("m"))
    ends = run_spark(found, tmp_path)
    # What Spark keeps of an average has names that occur twice: a cast names fields by place.
    kept = (
        "struct<key: string, window: struct<start: timestamp, end: timestamp>, "
        "count: long, sum_v: long, avg_v_sum: double, avg_v_count: long>"
    )
    store = job.spark.read.format("statestore").load(str(tmp_path / "spark"))
    opened = store.select(F.col("value").cast(kept).alias("v")).select(
        *("v.key", F.col("v.window.start").alias("window_start")),
        F.col("v.window.end").alias("window_end"),
        *("v.count", "v.sum_v", "v.avg_v_sum", "v.avg_v_count"),
    )
    windows = keyrange.windows.session("30m").count().sum("v").avg("v")
    given = {"time": keyrange.EventTime(delay="10 minutes"), "initial_state": opened}
    second = [("a", 45, 4), ("b", 50, 6), ("c", 70, 1), ("e", 60, 9)]
    job.produce(*records(*second))
    start(job, ends, windows, **given)
    job.produce(*(Record(b'{"v": 0}', b"end", at, BEGAN_MS + 86_400_000) for at in range(2)))
    for _ in range(2):
        start(job, ends, windows, **given)
    by_spark = pq.read_table(tmp_path / "spark_out").to_pylist()
    rows = [(r["key"], *r["w"].values(), r["n"], r["s"], r["m"]) for r in by_spark]
    assert rows, "Spark has closed the session of d"
    rows += [tuple(r.values()) for r in job.rows() if r["key"] != "end"]
    minutes = {(key, minute(begin), minute(end - GAP), *more) for key, begin, end, *more in rows}
    assert len(minutes) == len(rows)
    assert minutes == sessions(*first, *second)


class Counting(StatefulProcessor):
    """A total of each key, and which values it has seen."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "n long, s long")
        self._seen = handle.getMapState("seen", "v long", "n int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, s = self._total.get() if self._total.exists() else (0, 0)
        for row in rows:
            n, s = n + 1, s + row.v
            self._seen.updateValue((row.v,), (n,))
        self._total.update((n, s))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        return


def go_on(record: Any, state: Any) -> Any:
    n, s = state.total.get(default=(0, 0))
    n, s = n + 1, s + record.value.v
    state.total.update((n, s))
    return record.key, n, s, state.seen.contains(record.value.v)


def test_variables_of_transform_with_state_go_on_in_a_job(job: TableJob, tmp_path: Path) -> None:
    spark = job.spark
    job.produce(*records(("a", 0, 1), ("a", 1, 2), ("b", 2, 5)))
    spark.conf.set(STORE, ROCKSDB)
    try:
        grouped = events_of(job).groupBy("key")
        found = grouped.transformWithState(Counting(), "key string, n long", "Append", "None")
        ends = run_spark(found, tmp_path)
        # The reader asks for what begins with a session's first streaming query, or with this.
        assert spark.streams.active == []

        def variable(name: str) -> DataFrame:
            read = spark.read.format("statestore").option("stateVarName", name)
            return read.load(str(tmp_path / "spark"))

        total = variable("total").select("key.key", F.col("value").alias("total"))
        entry = F.struct("user_map_key", "user_map_value")
        seen = (
            variable("seen")
            .groupBy("key.key")
            .agg(F.map_from_entries(F.collect_list(entry)).alias("seen"))
        )
        begins = total.join(seen, "key", "left")
        job.produce(*records(("a", 3, 2), ("b", 4, 6), ("c", 5, 1)))
        state = {
            "total": keyrange.ValueState("n long, s long"),
            "seen": keyrange.MapState("v long", "n int"),
        }
        schema = "key string, n long, s long, again boolean"
        start(job, ends, go_on, schema, state=state, initial_state=begins)
    finally:
        spark.conf.unset(STORE)
    assert {tuple(row.values()) for row in job.rows()} == {
        ("a", 3, 5, True),
        ("b", 2, 11, False),
        ("c", 1, 1, False),
    }
