"""Group `commits_slow_key`: what one slow key costs the others, where commits are individual.

A query works on records that come at a steady rate and writes them to a Delta table. On one side
every record of one key sleeps for a minute. The latency of a record is from its timestamp until
its batch is in the sink and committed; of that key's range none is counted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_most, from_runs, percentile, ratio
from bench.latencies import PARTITIONS, SHARES, steady_producer
from bench.registry import Bench, Group
from bench.work import TIMED, timed_record
from keyrange.model.key_ranges import SPACE, index_of, split_evenly

CORES = 2
RANGES = 16
SLOW_KEY = b"key-00000000"
# A record that takes longer is put off, so that a batch grows by no more than a part of itself; the
# budget is above what a batch needs, and ends what many slow keys would add up to.
LIMITS = {"record.timeout": "300ms", "batch.time.budget": "3s"}


@dataclass
class _Stage:
    """What the runs share. `slow_range`: which range of its partition the slow key is in."""

    bench: Bench
    spark: SparkSession
    topic: str
    slow_range: int | None = None
    started: dict[int, float] = field(default_factory=dict)
    finished: dict[int, float] = field(default_factory=dict)

    def run(self, side: str) -> list[float]:
        """Milliseconds of each record of the other ranges that one query was measured with."""
        warm_up_s = self.bench.pick(full=12.0, quick=8.0, tiny=0.0)
        measured_s = self.bench.pick(full=40.0, quick=20.0, tiny=2.0)
        home = self.bench.directory / f"{side}-{uuid.uuid4().hex[:8]}"
        self.started.clear()
        self.finished.clear()
        query = self._start(home, side == "slow")
        try:
            while not self.finished:
                query.awaitTermination(0.2)
            counts_from = time.time() + warm_up_s
            query.awaitTermination(warm_up_s + measured_s)
            # A batch that begins behind what is measured has records of it at the least.
            until = time.time()
            while all(self.started[number] < until for number in list(self.finished)):
                query.awaitTermination(0.2)
        finally:
            query.stop()
        return self._latencies(home / "sink", side == "slow", counts_from)

    def _start(self, home: Path, slow: bool) -> StreamingQuery:
        options = {
            **self.bench.reading(self.topic, "latest"),
            "splitBy": "keyRange",
            "keyRangesPerPartition": str(RANGES),
            "parallelism": str(CORES),
            "commitMode": "individual",
            "commitTable": str(home / "commits"),
            **LIMITS,
        }
        function = partial(timed_record, slow=SLOW_KEY if slow else None)

        def body(batch: DataFrame, batch_id: int) -> None:
            rows = keyrange.process(batch, function, TIMED).withColumn("batch", F.lit(batch_id))
            writer = rows.write.format("delta").mode("append").options(**keyrange.transaction())
            writer.save(str(home / "sink"))

        committing = keyrange.each_batch(body, options, str(home / "checkpoint"))

        def timed(batch: DataFrame, batch_id: int) -> None:
            self.started[batch_id] = time.time()
            committing(batch, batch_id)
            self.finished[batch_id] = time.time()

        return (
            self.spark.readStream.format("keyrange")
            .options(**options)
            .load()
            .writeStream.foreachBatch(timed)
            .option("checkpointLocation", str(home / "checkpoint"))
            .start()
        )

    def _latencies(self, sink: Path, slow: bool, counts_from: float) -> list[float]:
        rows = DeltaTable(str(sink)).to_pyarrow_table().to_pylist()
        of_key = {row["key_hash"] for row in rows if row["key"] == SLOW_KEY}
        if slow == bool(of_key):
            raise RuntimeError("the slow key was to be done on the side where it does not sleep")
        ranges = split_evenly(SPACE, RANGES)
        if of_key:
            self.slow_range = index_of(ranges, min(of_key))
        return [
            self.finished[row["batch"]] * 1000 - row["timestamp_ms"]
            for row in rows
            if row["timestamp_ms"] >= counts_from * 1000
            and row["batch"] in self.finished
            and (row["partition"] or index_of(ranges, row["key_hash"]) != self.slow_range)
        ]


def run(bench: Bench) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "slow-key", PARTITIONS)
    first = bench.pick(full=-1, quick=0, tiny=0)
    found: dict[str, list[float]] = {f"{s}.{p}": [] for s in ("normal", "slow") for p in SHARES}
    with (
        sparks.session(bench.directory, f"local[{CORES}]", delta=True) as spark,
        steady_producer(bench, topic),
    ):
        stage = _Stage(bench, spark, topic)
        for number in range(first, bench.runs):
            # The first of all is one in which the slow key's range is seen.
            for side in sorted(("normal", "slow"), reverse=(number - first) % 2 == 1):
                latencies = stage.run(side)
                shown = {name: percentile(latencies, share) for name, share in SHARES.items()}
                text = ", ".join(f"{name} {value:.0f} ms" for name, value in shown.items())
                bench.progress(f"{side}: {text}, {len(stage.finished)} batches")
                if number >= 0:
                    for name, value in shown.items():
                        found[f"{side}.{name}"].append(value)
    topics.delete_topic(servers, topic)
    for name in SHARES:
        slow, normal = found[f"slow.{name}"], found[f"normal.{name}"]
        yield ratio(f"commits.slow_key.{name}.vs_normal", slow, normal)
        yield from_runs(f"commits.slow_key.{name}.ms", slow, "ms")
        yield from_runs(f"commits.slow_key.normal.{name}.ms", normal, "ms")


GROUP = Group(
    order=10,
    run=run,
    targets={"commits.slow_key.p99.vs_normal": at_most(1.5)},
)
