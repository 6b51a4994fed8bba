"""Group `commits_throughput`: whole queries into Delta tables, by batch and by individual commits.

Both sides read the same topic by key range, run the same function and write what it makes to a
Delta table that takes each batch once; they alternate in one session. By individual commits that
is `keyrange.process` with a write by Spark of what that kept (`spark_sink`); group `ingest` has
`keyrange.job`. Another side keeps what the function made in Parquet files, as `keyrange.process`
has to, and commits whole batches: it parts what that costs from all else.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import keyrange
from bench import spark as sparks
from bench import topics
from bench.figures import Figure, from_runs, ratio
from bench.registry import Bench, Group
from bench.work import DIGESTED, digest_batch, digest_batches, digest_record, digest_records

PARTITIONS = 4
VALUE_BYTES = 200
BATCHES = 4
CORES = 2
Sink = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class _Way:
    """One way of a query: how batches commit, and a batch of rows to the rows for the sink, with a
    path to keep rows at."""

    individual: bool
    rows: Callable[[DataFrame, str], DataFrame]


def _kept(rows: DataFrame, path: str) -> DataFrame:
    """Rows as they are read back from files that they were written to."""
    rows.write.parquet(path)
    return rows.sparkSession.read.schema(rows.schema).parquet(path)


def _through_spark(mode: str, function: Callable[..., Any]) -> _Way:
    return _Way(True, lambda batch, _: keyrange.process(batch, function, DIGESTED, mode))


WAYS: Mapping[str, _Way] = {
    "batch": _Way(False, lambda batch, _: batch.mapInArrow(digest_batches, DIGESTED)),
    "materialized": _Way(
        False, lambda batch, path: _kept(batch.mapInArrow(digest_batches, DIGESTED), path)
    ),
    "individual.spark_sink": _through_spark("arrow", digest_batch),
    "batch.record": _Way(False, lambda batch, _: batch.mapInArrow(digest_records, DIGESTED)),
    "individual.record.spark_sink": _through_spark("record", digest_record),
}


@dataclass(frozen=True)
class _Stage:
    """What the runs share."""

    bench: Bench
    spark: SparkSession
    topic: str
    records: int

    def run(self, name: str) -> float:
        """Seconds of a query's batches, from the first one's start to the last one's end."""
        way = WAYS[name]
        home = str(self.bench.directory / f"{name}-{uuid.uuid4().hex[:8]}")
        options = self.bench.reading(self.topic) | {
            "maxOffsetsPerTrigger": str(-(-self.records // BATCHES)),
            "splitBy": "keyRange",
            "parallelism": str(CORES),
        }
        if way.individual:
            options |= {"commitMode": "individual", "commitTable": f"{home}/commits"}

        def body(batch: DataFrame, batch_id: int) -> None:
            txn = {"txnAppId": home, "txnVersion": str(batch_id)}
            rows = way.rows(batch, f"{home}/kept/{batch_id}")
            writer = rows.write.format("delta").mode("append")
            writer.options(**(keyrange.transaction() if way.individual else txn)).save(
                f"{home}/sink"
            )

        sink: Sink = body
        if way.individual:
            sink = keyrange.each_batch(body, options, f"{home}/checkpoint")
        query = (
            self.spark.readStream.format("keyrange")
            .options(**options)
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", f"{home}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each.numInputRows]
        taken = [each.batchDuration / 1e3 for each in batches]
        self._check(f"{home}/sink", name, len(taken))
        self.bench.progress(f"{name}: " + " + ".join(f"{each:.2f}" for each in taken) + " s")
        return sum(taken)

    def _check(self, sink: str, name: str, batches: int) -> None:
        """Raises RuntimeError where a side did not do the work that is measured."""
        found = self.spark.read.format("delta").load(sink).count()
        if (found, batches) != (self.records, BATCHES):
            raise RuntimeError(f"{name} wrote {found} of {self.records} in {batches} batches")


def run(bench: Bench) -> Iterator[Figure]:
    records = bench.pick(full=4_000_000, quick=500_000, tiny=4_000)
    servers = bench.bootstrap_servers
    with sparks.session(bench.directory, f"local[{CORES}]", delta=True) as spark:
        frame = topics.records(spark, records, VALUE_BYTES, PARTITIONS)
        topic = topics.filled(servers, "commits", frame, PARTITIONS)
        bench.progress(f"{records:,} records written")
        stage = _Stage(bench, spark, topic, records)
        seconds = bench.by_turns("seconds", {name: partial(stage.run, name) for name in WAYS})
        topics.delete_topic(servers, topic)
    # Seconds the other way round are records per second.
    name = "commits.throughput"
    for kind in ("", ".record"):
        sink = seconds[f"individual{kind}.spark_sink"]
        yield ratio(f"{name}{kind}.spark_sink.vs_batch", seconds[f"batch{kind}"], sink)
    sink = seconds["individual.spark_sink"]
    yield ratio(f"{name}.spark_sink.vs_materialized", seconds["materialized"], sink)
    costs = zip(seconds["materialized"], seconds["batch"], strict=True)
    each = [(kept - plain) / BATCHES for kept, plain in costs]
    yield from_runs(f"{name}.materialization.seconds_per_batch", each, "s")
    for side, taken in seconds.items():
        rates = [records / run_s / 1e6 for run_s in taken]
        yield from_runs(f"{name}.{side}.mrec_per_second", rates, "M/s")


GROUP = Group(
    order=9,
    run=run,
)
