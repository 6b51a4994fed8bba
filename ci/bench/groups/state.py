"""Group `state`: a count and the last offset of each key, exactly once, beside what Spark has.

No side writes rows: keyrange's functions answer with none, Spark's sink is noop, and what is
measured is reading, the state and its durability. Spark keeps its state in RocksDB with a change
log. Keys have a partition each, so that all sides count the same.

Restarts and moves are measured where states are kept (`keyrange.keyed_state`), in this process,
with directories for hosts.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench import counts, queries, topics
from bench import spark as sparks
from bench.figures import Figure, at_least, at_most, from_runs, percentile, ratio
from bench.groups.ingest import seconds_of_batches
from bench.peaks import Peaks
from bench.queries import ROCKSDB, Side
from bench.registry import Bench, Group
from keyrange.keyed_state import cache
from keyrange.keyed_state.model.state_runs import StateRun, after_batch
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.states_of_task import (
    PartitionRuns,
    StateFigures,
    StateSettings,
    TaskStates,
)
from keyrange.keyed_state.variables import StateForm, variables_of
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition

PARTITIONS = 4
# A query with state runs for long: its first batch is one among many.
BATCHES = 6
KEYS = 300_000
_AT = TopicPartition("t", 0)
_LATENCY_RATE = 1_000


@dataclass
class Run:
    """What batches of a query took, and what they said of themselves."""

    seconds: list[float] = field(default_factory=list)
    figures: list[Mapping[str, Any]] = field(default_factory=list)
    shuffled_bytes: int = 0


def _job(*work: Any) -> Side:
    return queries.job(*work, options={})


def _spark(rows: Callable[[DataFrame], DataFrame]) -> Side:
    def side(spark: SparkSession, given: dict[str, str], home: Path) -> Any:
        read = spark.readStream.format("kafka").options(**given).load()
        write = rows(read).writeStream.format("noop").outputMode("update")
        return write.option("checkpointLocation", str(home / "checkpoint"))

    return side


FAST: Mapping[str, Side] = {
    "record": _job(counts.count_record, counts.COUNTED, "record", counts.STATE),
    "arrow": _job(counts.count_batch, counts.COUNTED, "arrow", counts.STATE),
    "jvm_aggregate": _spark(counts.by_aggregate),
}
SLOW: Mapping[str, Side] = {
    "apply_in_pandas": _spark(counts.by_group_state),
    "transform_with_state": _spark(counts.by_transform),
}


def run(bench: Bench) -> Iterator[Figure]:
    yield from _where_states_are(bench)
    with sparks.session(bench.directory, "local[2]", delta=True, confs=ROCKSDB) as spark:
        yield from _rates(bench, spark)
        yield from _beside_stateless(bench, spark)


def _rates(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    servers = bench.bootstrap_servers
    rows = bench.pick(full=500_000, quick=150_000, tiny=2_000) * BATCHES
    topic = _topic(bench, spark, "state", rows, bench.pick(full=KEYS, quick=100_000, tiny=500))
    few = bench.pick(full=18_000, quick=6_000, tiny=600)
    small = _topic(bench, spark, "few", few, bench.pick(full=KEYS, quick=100_000, tiny=500))
    runs: dict[str, list[Run]] = {name: [] for name in (*FAST, *SLOW)}
    peaks = Peaks("Pss")
    for number in range(-bench.pick(full=1, quick=1, tiny=0), bench.runs):
        # Those that take a minute for what others do in a second are measured with less.
        is_slow = number in bench.pick(full=(0, 1, 2), quick=(0,), tiny=(0,))
        names = [*FAST, *(SLOW if is_slow else ())]
        for name in sorted(names, reverse=number % 2 == 1):
            of, count = (small, few) if name in SLOW else (topic, rows)
            is_watched = number >= 0 and name in ("record", "arrow")
            with peaks.watched() if is_watched else nullcontext():
                found = _run(bench, spark, {**FAST, **SLOW}[name], of, count)
            if number >= 0:
                runs[name].append(found)
            shown = " + ".join(f"{each:.2f}" for each in found.seconds)
            bench.progress(f"{name}: {shown} s for {count:,}")
    topics.delete_topic(servers, topic)
    topics.delete_topic(servers, small)
    rates = {
        name: [(few if name in SLOW else rows) / sum(each.seconds) for each in found]
        for name, found in runs.items()
    }
    yield ratio("state.record.vs_jvm_aggregate", rates["record"], rates["jvm_aggregate"])
    yield ratio("state.arrow.vs_jvm_aggregate", rates["arrow"], rates["jvm_aggregate"])
    for name in SLOW:
        ours = rates["record"][: len(rates[name])]
        yield ratio(f"state.record.vs_{name}", ours, rates[name])
    for name, each in rates.items():
        yield from_runs(f"state.{name}.records_per_second", each, "1/s")
    kept = [run for name in ("record", "arrow") for run in runs[name]]
    yield from_runs("state.shuffle.bytes", [float(each.shuffled_bytes) for each in kept], "B")
    yield from_runs("state.worker.peak_rss.running.mb", peaks.found, "MB")
    told = [each for run in kept for each in run.figures if each.get("state_changed_bytes")]
    over = [each["state_written_bytes"] / each["state_changed_bytes"] for each in told]
    yield from_runs("state.changelog.bytes_over_changed", over, "ratio")


def _topic(bench: Bench, spark: SparkSession, name: str, rows: int, keys: int) -> str:
    """Records of 200 bytes, each key in one partition."""
    frame = topics.records(spark, rows, 200, PARTITIONS).selectExpr(
        f"concat('key-', lpad(pmod(hash(id), {keys}), 10, '0')) AS key",
        "value",
        f"CAST(pmod(pmod(hash(id), {keys}), {PARTITIONS}) AS INT) AS partition",
    )
    topic = topics.filled(bench.bootstrap_servers, name, frame, PARTITIONS)
    bench.progress(f"{rows:,} records of {keys:,} keys written")
    return topic


def _run(bench: Bench, spark: SparkSession, side: Side, topic: str, rows: int) -> Run:
    given = queries.options(bench, topic, rows, BATCHES)
    before = _shuffled(spark)
    with queries.home(bench) as home:
        query = side(spark, given, home).trigger(availableNow=True).start()
        query.awaitTermination()
    batches = [json.loads(each.json) for each in query.recentProgress if each.numInputRows]
    found = Run(
        [each["batchDuration"] / 1e3 for each in batches],
        [(each.get("observedMetrics") or {}).get("keyrange", {}) for each in batches],
        _shuffled(spark) - before,
    )
    if len(batches) != BATCHES:
        raise RuntimeError(f"there were {len(batches)} batches and not {BATCHES}")
    return found


def _shuffled(spark: SparkSession) -> int:
    """Bytes that all stages so far have written for others to read."""
    context: Any = spark.sparkContext
    none = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, none, None)
    return sum(stages.apply(at).shuffleWriteBytes() for at in range(stages.size()))


def _beside_stateless(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """Batches of a second of records, with state and without."""
    seconds = bench.pick(full=25, quick=10, tiny=2)
    topic = _topic(bench, spark, "steady", _LATENCY_RATE * seconds, 10_000)

    def plain(_record: Any) -> None:
        return None

    def median_s(side: Side) -> float:
        given = bench.reading(topic) | {"maxOffsetsPerTrigger": str(_LATENCY_RATE)}
        with queries.home(bench) as home:
            taken = seconds_of_batches(side(spark, given, home))
        return percentile(taken[1:] or taken, 0.5)

    sides = {"keyed": FAST["record"], "stateless": _job(plain, counts.COUNTED)}
    by_name = {name: partial(median_s, side) for name, side in sides.items()}
    medians = bench.by_turns("seconds of a batch", by_name, warm_up=False)
    topics.delete_topic(bench.bootstrap_servers, topic)
    yield ratio("state.batch.p50.vs_stateless", medians["keyed"], medians["stateless"])


@dataclass
class Source:
    """The states of a partition, and its batches without Kafka and Spark."""

    home: Path
    keys: int
    runs: list[StateRun] = field(default_factory=list)
    seq: int = 0
    form: StateForm = field(default_factory=lambda: StateForm(variables_of(counts.STATE)))

    hashes: Any = None

    def __post_init__(self) -> None:
        if self.hashes is None:
            random = np.random.default_rng(1)
            self.hashes = np.sort(random.integers(0, SPACE.until_hash - 1, self.keys))

    def batch(
        self, host: str, span: KeyRange, count: int, counted: bool = True, seed: int = 0
    ) -> StateFigures:
        """Count some random keys of a key range, on a host; what that took."""
        settings = StateSettings(str(self.home / "state"), "s", self.seq, 1, self.home / host)
        states = TaskStates(self.form, settings)
        states.begin({_AT: PartitionRuns((span,), tuple(self.runs), True, "p")})
        random = np.random.default_rng([self.seq, seed])
        inside = self.hashes[
            np.searchsorted(self.hashes, span.from_hash) : np.searchsorted(
                self.hashes, span.until_hash - 1, side="right"
            )
        ]
        at = np.sort(random.choice(len(inside), min(count, len(inside)), replace=False))
        for chosen in np.array_split(at, max(len(at) // 50_000, 1)):
            hashes = inside[chosen]
            keys = pa.array([b"key-%010d" % (each % 10**10) for each in hashes.tolist()])
            found = states.look_up(_AT, Keys(hashes, keys))
            seen = found.column("seen")
            n = np.nan_to_num(seen.field("n").to_numpy(zero_copy_only=False)).astype(np.int64)
            new = pa.StructArray.from_arrays([pa.array(n + 1), pa.array(hashes)], ["n", "at"])
            rows = pa.RecordBatch.from_arrays(
                [pa.array(hashes), keys, new], schema=self.form.schema
            )
            states.change(_AT, rows)
        made = [run for _, run in states.finish()]
        if counted:
            self.seq += 1
            self.runs = after_batch(self.runs, made, self.seq)
        return states.figures


def _where_states_are(bench: Bench) -> Iterator[Figure]:
    """Restarts and moves of 10,000 keys and of many."""
    few = bench.pick(full=10_000, quick=10_000, tiny=1_000)
    many = bench.pick(full=10_000_000, quick=1_000_000, tiny=5_000)
    restored: list[float] = []
    for keys in (few, many):
        source = _filled(bench, keys)
        ratios = []
        for _ in range(bench.runs):
            # All are batches behind one commit: what they merge is the same.
            running = [_batch(source, seed)[0] for seed in range(3)]
            # Another process has nothing mapped.
            cache._MAPPED.clear()
            taken, figures = _batch(source, seed=3)
            source.batch("one", SPACE, 50_000)
            restored.append(figures.restored_bytes)
            ratios.append(taken / sorted(running)[1])
        name = "many_keys" if keys == many else "few_keys"
        bench.progress(f"{keys:,} keys: the first batch takes {ratios} times the others")
        yield from_runs(f"state.restart.first_batch.{name}.vs_running", ratios, "ratio")
        if keys == many:
            yield from _moves(bench, source)
            yield from _peaks_with_many(source)
        shutil.rmtree(source.home)
    yield from_runs("state.restart.restored_bytes", restored, "B")


def _filled(bench: Bench, keys: int) -> Source:
    source = Source(bench.directory / uuid.uuid4().hex, keys)
    for at in range(8):
        span = KeyRange(SPACE.until_hash // 8 * at, SPACE.until_hash // 8 * (at + 1))
        source.batch("one", span, keys)
    bench.progress(f"{keys:,} keys in {len(source.runs)} runs")
    return source


def _batch(source: Source, seed: int) -> tuple[float, StateFigures]:
    began = time.perf_counter()
    figures = source.batch("one", SPACE, 50_000, counted=False, seed=seed)
    return time.perf_counter() - began, figures


def _moves(bench: Bench, source: Source) -> Iterator[Figure]:
    """A third of the keys goes to another host, as from two executors to three."""
    rates: list[float] = []
    shares: list[float] = []
    size = sum(run.size_bytes for run in source.runs)
    span = KeyRange(SPACE.until_hash // 5, SPACE.until_hash // 5 + SPACE.until_hash // 3)
    for number in range(bench.runs):
        figures = source.batch(f"other{number}", span, 100, counted=False)
        rates.append(figures.restored_bytes / 2**20 / (figures.restored_ms / 1e3))
        shares.append(figures.restored_bytes / (size * span.size / SPACE.size))
    yield from_runs("state.restore.mb_per_second", rates, "MB/s")
    yield from_runs("state.move.amplification", shares, "ratio")


def _peaks_with_many(source: Source) -> Iterator[Figure]:
    """What another process holds that works on many keys: with the pages of copies that it has
    mapped, which the kernel takes back when it needs them, and without."""
    few = np.sort(np.random.default_rng(2).choice(source.hashes, 200_000))
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        whole, own = other.submit(_held_mb, replace(source, hashes=few)).result()
    yield from_runs("state.worker.peak_rss.mb", [whole], "MB")
    yield from_runs("state.worker.peak_rss.anonymous.mb", [own], "MB")


def _held_mb(source: Source) -> tuple[float, float]:
    whole = own = 0.0
    for _ in range(4):
        source.batch("one", SPACE, 50_000)
        told = dict(
            line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        )
        whole = max(whole, int(told["Pss"].split()[0]) / 1024)
        own = max(own, int(told["Anonymous"].split()[0]) / 1024)
    return whole, own


def _targets() -> dict[str, Any]:
    least = {
        "state.record.vs_apply_in_pandas": 150,
        "state.record.vs_transform_with_state": 150,
        "state.record.vs_jvm_aggregate": 2,
        "state.arrow.vs_jvm_aggregate": 8,
        "state.restore.mb_per_second": 200,
    }
    most = {
        "state.shuffle.bytes": 0,
        "state.restart.restored_bytes": 0,
        "state.restart.first_batch.few_keys.vs_running": 1.5,
        "state.restart.first_batch.many_keys.vs_running": 1.5,
        "state.move.amplification": 1.1,
        "state.batch.p50.vs_stateless": 1.3,
        "state.changelog.bytes_over_changed": 1.3,
        "state.worker.peak_rss.mb": 400,
    }
    found = {name: at_least(limit) for name, limit in least.items()}
    return found | {name: at_most(limit) for name, limit in most.items()}


GROUP = Group(order=2, run=run, targets=_targets())
