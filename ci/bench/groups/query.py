"""Group `query`: how late a query starts that a scheduler starts again and again, with availableNow
and in a session that is warm.

Each run goes on from the checkpoint of the one before, with 1,000 new records. It has started when
Spark knows where its first batch ends: the process that plans it runs by then, and has asked the
cluster, and the commit table with individual commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_most, from_runs, ratio
from bench.groups.ingest import PLAIN
from bench.registry import Bench, Group

_RECORDS = 1_000
_VALUE_BYTES = 200
_PARTITIONS = 4
_SIDES = ("keyrange", "individual", "jvm")


@dataclass(frozen=True)
class _Run:
    """Seconds from start() to where the first batch ends, and to the end of the query."""

    start: float
    whole: float


def run(bench: Bench) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "query", _PARTITIONS)
    found: dict[str, list[_Run]] = {side: [] for side in _SIDES}
    with sparks.session(bench.directory, delta=True, python=sparks.RECOMMENDED_PYTHON) as spark:
        # What a session does for the first time is not what a query takes to start.
        for number in range(-bench.pick(full=6, quick=3, tiny=0), bench.runs):
            records = topics.records(spark, _RECORDS, _VALUE_BYTES, _PARTITIONS)
            topics.fill(records, servers, topic, "none")
            for side in sorted(_SIDES, reverse=number % 2 == 0):
                took = _measure(bench, spark, topic, side)
                if number >= 0:
                    found[side].append(took)
                bench.progress(f"{side}: {took.start:.2f} s to start, {took.whole:.2f} s in all")
    topics.delete_topic(servers, topic)
    starts = {side: [each.start for each in runs] for side, runs in found.items()}
    wholes = {side: [each.whole for each in runs] for side, runs in found.items()}
    yield from_runs("query.start.seconds", starts["keyrange"], "s")
    yield from_runs("query.start.individual.seconds", starts["individual"], "s")
    yield from_runs("query.start.jvm.seconds", starts["jvm"], "s")
    yield ratio("query.available_now.vs_jvm", wholes["keyrange"], wholes["jvm"])
    yield from_runs("query.available_now.seconds", wholes["keyrange"], "s")
    yield from_runs("query.available_now.jvm.seconds", wholes["jvm"], "s")


def _measure(bench: Bench, spark: SparkSession, topic: str, side: str) -> _Run:
    began = time.perf_counter()
    writer = _writer(bench, spark, topic, side, bench.directory / side).trigger(availableNow=True)
    started = time.time()
    query = writer.start()
    query.awaitTermination()
    whole = time.perf_counter() - began
    batches = [each for each in query.recentProgress if "addBatch" in each["durationMs"]]
    if len(batches) != 1:
        raise RuntimeError(f"{side} read {len(batches)} batches")
    trigger = datetime.fromisoformat(batches[0]["timestamp"]).timestamp()
    return _Run(trigger + batches[0]["durationMs"]["latestOffset"] / 1000 - started, whole)


def _writer(
    bench: Bench, spark: SparkSession, topic: str, side: str, home: Path
) -> DataStreamWriter:
    given = bench.reading(topic)
    if side == "individual":
        given |= {"commitMode": "individual", "commitTable": str(home / "commits")}
        given["commitGroup"] = "query"
    return PLAIN["jvm" if side == "jvm" else "keyrange"](spark, given, home)


GROUP = Group(
    order=3,
    run=run,
    targets={
        "query.start.seconds": at_most(0.6),
        "query.start.individual.seconds": at_most(0.9),
        "query.available_now.vs_jvm": at_most(0.5),
    },
)
