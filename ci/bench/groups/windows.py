"""Group `windows`: sessions beside Spark's, what state and windows cost beside jobs without, and
timers.

All sides read the same records, whose time is a field of their JSON, and write Delta tables; rows
of sessions are compared. Of a query all batches count, also those that only write what the
watermark has closed. A job without state reads and parses the same records, and its function
answers with no rows. `transformWithStateInPandas` takes a minute for what others do in a second,
and is measured with fewer records.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import counts, queries, sessions, timer_runs, topics
from bench import spark as sparks
from bench.figures import Figure, from_runs, ratio
from bench.queries import BATCHES, ROCKSDB
from bench.registry import Bench, Group
from bench.time_tables import WINDOWS_TARGETS


def no_counts(_records: pa.RecordBatch) -> None:
    return None


# What is compared, in this order: a name, and the two sides.
PAIRS: Mapping[str, tuple[queries.Side, queries.Side]] = {
    "windows.tumbling.arrow": (sessions.by_windows("tumbling"), sessions.stateless()),
    "state.arrow": (
        queries.job(counts.count_batch, counts.COUNTED, "arrow", counts.STATE, options={}),
        queries.job(no_counts, counts.COUNTED, "arrow", options={}),
    ),
    "state.record": (
        queries.job(counts.count_record, counts.COUNTED, "record", counts.STATE, options={}),
        queries.job(sessions.no_row, counts.COUNTED, "record", options={}),
    ),
}


def run(bench: Bench) -> Iterator[Figure]:
    with sparks.session(bench.directory, "local[2]", delta=True, confs=ROCKSDB) as spark:
        rows = bench.pick(full=500_000, quick=100_000, tiny=300) * BATCHES
        topic = _topic(bench, spark, rows)
        ours = yield from _sessions(bench, spark, topic, rows)
        for name in PAIRS:
            yield from _beside_stateless(bench, spark, name, topic, rows)
        topics.delete_topic(bench.bootstrap_servers, topic)
        yield from _beside_transform(bench, spark, ours)
        yield from timer_runs.due(bench, spark)
        yield from timer_runs.idle(bench, spark)
        yield from timer_runs.memory(bench, spark)


def _topic(bench: Bench, spark: SparkSession, rows: int) -> str:
    events = sessions.events(spark, rows, rows // sessions.RECORDS_OF_KEY)
    return queries.filled(bench, "sessions", events, sessions.last())


def _sessions(
    bench: Bench, spark: SparkSession, topic: str, rows: int
) -> Generator[Figure, None, list[float]]:
    """Answers with the rates of keyrange's side."""
    sides = {"keyrange": sessions.by_windows("session"), "jvm": sessions.by_spark()}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-bench.pick(full=1, quick=1, tiny=0), bench.runs):
        tables = {}
        for name in sorted(sides, reverse=number % 2 == 1):
            rate, tables[name] = _rate(bench, spark, sides[name], topic, rows)
            if number >= 0:
                rates[name].append(rate)
        found = queries.check_equal("sessions", tables)
        bench.progress(f"{found:,} sessions, records a second: {rates}")
    yield ratio("windows.session.vs_jvm", rates["keyrange"], rates["jvm"])
    for name, each in rates.items():
        yield from_runs(f"windows.session.{name}.records_per_second", each, "1/s")
    return rates["keyrange"]


def _rate(
    bench: Bench, spark: SparkSession, side: queries.Side, topic: str, rows: int
) -> tuple[float, pa.Table]:
    """Records a second, and the rows of the table."""
    with queries.home(bench) as home:
        taken = queries.seconds_of(side(spark, queries.options(bench, topic, rows), home))
        return rows / sum(taken), queries.rows_of(home, sessions.COLUMNS)


def _beside_stateless(
    bench: Bench, spark: SparkSession, name: str, topic: str, rows: int
) -> Iterator[Figure]:
    sides = dict(zip(("keyed", "stateless"), PAIRS[name], strict=True))

    def rate(side: str) -> float:
        with queries.home(bench) as home:
            given = queries.options(bench, topic, rows)
            return rows / sum(queries.seconds_of(sides[side](spark, given, home)))

    rates = bench.by_turns(name, {side: partial(rate, side) for side in sides})
    yield ratio(f"{name}.vs_stateless", rates["keyed"], rates["stateless"])
    for side, each in rates.items():
        yield from_runs(f"{name}.{side}.records_per_second", each, "1/s")


def _beside_transform(bench: Bench, spark: SparkSession, ours: list[float]) -> Iterator[Figure]:
    """The rate of keyrange's sessions beside Python's of Spark, which must have the same rows."""
    rows = bench.pick(full=3_000, quick=1_000, tiny=50) * BATCHES
    topic = _topic(bench, spark, rows)
    rates = []
    for _ in range(bench.pick(full=3, quick=1, tiny=1)):
        tables = {}
        rate, tables["transform"] = _rate(bench, spark, sessions.by_transform(), topic, rows)
        _, tables["keyrange"] = _rate(bench, spark, sessions.by_windows("session"), topic, rows)
        queries.check_equal("sessions in Python", tables)
        rates.append(rate)
        bench.progress(f"transformWithStateInPandas: {rate:.0f} records a second")
    topics.delete_topic(bench.bootstrap_servers, topic)
    name = "windows.session.vs_transform_with_state"
    yield ratio(name, ours[: len(rates)], rates)
    yield from_runs("windows.session.transform_with_state.records_per_second", rates, "1/s")


GROUP = Group(order=2, run=run, targets=WINDOWS_TARGETS)
