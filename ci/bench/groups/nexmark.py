"""Group `nexmark`: six of Nexmark's queries beside Spark in the JVM.

Both sides read the same topics, with the same watermark, write Delta tables, and must have equal
results; Spark keeps its state in RocksDB with a change log. `bench.nexmark` says how each query is
written. All batches count, and on keyrange's side also what makes the result of its table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import nexmark, queries, topics
from bench import spark as sparks
from bench.figures import Figure, from_runs, ratio
from bench.nexmark import QUERIES, Query
from bench.queries import BATCHES, ROCKSDB
from bench.registry import Bench, Group
from bench.time_tables import NEXMARK_TARGETS

# Windows by the clock are over by then.
_WINDOW_S = 10.5


def run(bench: Bench) -> Iterator[Figure]:
    with sparks.session(bench.directory, "local[2]", delta=True, confs=ROCKSDB) as spark:
        rows = bench.pick(full=200_000, quick=100_000, tiny=2_000) * BATCHES
        made = {
            "bids_by_auction": nexmark.bids(spark, rows, "auction"),
            "bids_by_bidder": nexmark.bids(spark, rows, "bidder"),
            "persons": nexmark.traders(spark, rows, "person"),
            "auctions": nexmark.traders(spark, rows, "auction"),
        }
        for names in dict.fromkeys(query.topics for query in QUERIES.values()):
            read = [
                queries.filled(bench, name.replace("_", "-"), made[name], nexmark.last())
                for name in names
            ]
            for number, query in QUERIES.items():
                if query.topics == names:
                    yield from _compared(bench, spark, number, ",".join(read), rows)
            for topic in read:
                topics.delete_topic(bench.bootstrap_servers, topic)


def _compared(
    bench: Bench, spark: SparkSession, number: str, topic: str, rows: int
) -> Iterator[Figure]:
    query = QUERIES[number]
    sides = {"keyrange": query.ours, "jvm": query.theirs}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for at in range(-bench.pick(full=1, quick=1, tiny=0), bench.runs):
        tables = {}
        for name in sorted(sides, reverse=at % 2 == 1):
            given = queries.options(bench, topic, rows)
            with queries.home(bench) as home:
                taken, tables[name] = _run(bench, spark, query, name == "keyrange", given, home)
            if at >= 0:
                rates[name].append(rows / taken)
        found = queries.check_equal(number, tables)
        bench.progress(f"{number}: {found:,} rows, records a second: {rates}")
    yield ratio(f"nexmark.{number}.vs_jvm", rates["keyrange"], rates["jvm"])
    for name, each in rates.items():
        yield from_runs(f"nexmark.{number}.{name}.records_per_second", each, "1/s")


def _run(
    bench: Bench,
    spark: SparkSession,
    query: Query,
    is_ours: bool,
    given: dict[str, str],
    home: Path,
) -> tuple[float, pa.Table]:
    """Seconds, and the result in one order."""
    side = query.ours if is_ours else query.theirs
    taken = sum(queries.seconds_of(side(spark, given, home)))
    if query.is_by_clock:
        time.sleep(_WINDOW_S)
        queries.end(bench, spark, given["subscribe"], nexmark.last())
        taken += sum(queries.seconds_of(side(spark, given, home)))
        return taken, _counts(queries.rows_of(home, query.columns))
    if is_ours:
        began = time.perf_counter()
        found = query.select(queries.table_of(home, query.columns))
        taken += time.perf_counter() - began
    else:
        found = queries.table_of(home, query.columns)
    return taken, queries.in_order(found)


def _counts(table: pa.Table) -> pa.Table:
    """Of each key how many records its windows have in all."""
    counted = table.group_by("key").aggregate([("n", "sum")])
    is_key = [not key.startswith(queries.LAST) for key in counted["key"].to_pylist()]
    return queries.in_order(counted.filter(pa.array(is_key)))


GROUP = Group(
    order=2,
    run=run,
    targets=NEXMARK_TARGETS,
)
