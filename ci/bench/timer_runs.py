"""What timers cost: many that are due at once, many that are not, and a task that holds many."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import keyrange
from bench import queries, sessions, topics
from bench.figures import Figure, from_runs, highest
from bench.groups.latency import idle_shares
from bench.peaks import Peaks
from bench.registry import Bench

_SCHEMA: Final = "key string, n long"
_STATE: Final = {"n": keyrange.ValueState("n long")}
_GO_ON: Final = 200_000


def set_timer(record: Any, state: Any) -> None:
    n = state.n.get(default=0)
    state.n.update(n + 1)
    if not n:
        at = datetime.fromtimestamp(record.value.at / 1000, UTC)
        state.timers.set(at + timedelta(hours=1))


def set_none(_record: Any, state: Any) -> None:
    state.n.update(state.n.get(default=0) + 1)


def fired(key: str, _at: Any, state: Any) -> Any:
    n = state.n.get()
    state.n.clear()
    return key, n


def _job(function: Any) -> queries.Side:
    return queries.job(
        *(function, _SCHEMA, "record", _STATE, sessions.TIME, fired), options=sessions.TYPED
    )


def _keys(spark: SparkSession, count: int, partitions: int = queries.PARTITIONS) -> DataFrame:
    """A record of each key, all of one time."""
    return spark.range(0, count, 1, 2).selectExpr(
        "concat('key-', lpad(id, 10, '0')) AS key",
        f"'{sessions.value_at(sessions.BEGAN_MS)}' AS value",
        f"CAST(id % {partitions} AS INT) AS partition",
    )


def due(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """From where the batch begins that finds them due to where the last one is committed: the
    batches before it have set them and moved the watermark."""
    count = bench.pick(full=100_000, quick=100_000, tiny=500)
    topic = queries.filled(bench, "due", _keys(spark, count), sessions.last())
    found = []
    for number in range(-bench.pick(full=1, quick=1, tiny=0), bench.runs):
        given = queries.options(bench, topic, count, batches=1)
        del given["maxOffsetsPerTrigger"]
        with queries.home(bench) as home:
            setting, *firing = queries.seconds_of(_job(set_timer)(spark, given, home))
            rows = DeltaTable(home / "table").count()
        if rows != count:
            raise RuntimeError(f"{rows} of {count} timers have fired")
        bench.progress(f"{count:,} timers: set in {setting:.2f} s, fired in {firing}")
        if number >= 0:
            found.append(sum(firing))
    topics.delete_topic(bench.bootstrap_servers, topic)
    yield from_runs("timers.due_100k.seconds", found, "s")


def idle(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """The part of one core that planning takes while nothing is written, with timers that are not
    due and with none."""
    count = bench.pick(full=1_000_000, quick=200_000, tiny=2_000)
    topic = queries.filled(bench, "idle", _keys(spark, count), None)
    shares: dict[str, list[float]] = {}
    for name, function in (("with", set_timer), ("without", set_none)):
        with queries.home(bench) as home:
            given = queries.options(bench, topic, count, batches=1)
            with queries.running(_job(function)(spark, given, home).start()) as query:
                query.processAllAvailable()
                shares[name] = idle_shares(bench, query)
        bench.progress(f"idle, {name} {count:,} timers: {shares[name]} of a core")
    topics.delete_topic(bench.bootstrap_servers, topic)
    yield from_runs("timers.idle.core_share", shares["with"], "cores")
    yield from_runs("timers.idle.without.core_share", shares["without"], "cores")
    pairs = zip(shares["with"], shares["without"], strict=True)
    yield from_runs("timers.idle.added_core_share", [a - b for a, b in pairs], "cores")


def memory(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """One partition, so that one task has all keys, each with an open window and its timer: the
    highest resident set while they come, and what of it is no mapped file, then and while records
    of some of them follow."""
    count = bench.pick(full=10_000_000, quick=1_000_000, tiny=4_000)
    topic = topics.create_topic(bench.bootstrap_servers, "many", 1)
    counted = keyrange.windows.tumbling("1h").count()
    one = {"keyRangesPerPartition": "1"}
    side = queries.job(counted, options={**sessions.TYPED, **one}, time=sessions.TIME)
    peaks, own = Peaks(), Peaks("RssAnon")
    with queries.home(bench) as home:
        for number, batches in ((count, 12), (min(_GO_ON, count), 1)):
            topics.fill(_keys(spark, number, 1), bench.bootstrap_servers, topic, "none")
            given = queries.options(bench, topic, number, batches=batches)
            with peaks.watched(), own.watched():
                taken = queries.seconds_of(side(spark, given, home))
            bench.progress(
                f"{number:,} of {count:,} keys with timers: {taken} s, {peaks.found} MB,"
                f" {own.found} MB of them anonymous"
            )
    topics.delete_topic(bench.bootstrap_servers, topic)
    yield highest("timers.worker.peak_rss.mb", peaks.found, "MB")
    while_made, running = own.found
    yield from_runs("timers.worker.peak_rss.anonymous.while_made.mb", [while_made], "MB")
    yield from_runs("timers.worker.peak_rss.anonymous.mb", [running], "MB")
