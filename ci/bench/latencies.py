"""Latencies of two sides at a steady rate of records, by turns, as figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from bench import spark as sparks
from bench import topics
from bench.companions import companion
from bench.figures import Figure, from_runs, percentile, ratio
from bench.registry import Bench

PARTITIONS = 4
RATE = 1000
SHARES = {"p50": 0.50, "p99": 0.99}
SIDES = ("keyrange", "jvm")
# Of a session, the topic, a side and the number of a run: the latencies of records, in ms.
Measure = Callable[[Bench, SparkSession, str, str, int], list[float]]


def steady_producer(bench: Bench, topic: str) -> AbstractContextManager[None]:
    """A process that writes at a steady rate."""
    return companion("bench.producer", bench.bootstrap_servers, topic, PARTITIONS, RATE)


def beside_delta(bench: Bench, prefix: str, measure: Measure) -> Iterator[Figure]:
    """As `by_turns`, in a session that has Delta and with a topic of its own."""
    topic = topics.create_topic(bench.bootstrap_servers, "visible", PARTITIONS)
    with sparks.session(bench.directory, delta=True) as spark:
        yield from by_turns(bench, spark, topic, prefix, measure)
    topics.delete_topic(bench.bootstrap_servers, topic)


def by_turns(
    bench: Bench, spark: SparkSession, topic: str, prefix: str, measure: Measure
) -> Iterator[Figure]:
    """Figures `prefix`.p50 and .p99, each side's and keyrange's beside the JVM connector's."""
    found: dict[str, list[float]] = {f"{s}.{p}": [] for s in SIDES for p in SHARES}
    with steady_producer(bench, topic):
        # What a session does for the first time is not the sides' latency.
        for number in range(-bench.pick(full=1, quick=1, tiny=0), bench.runs):
            for side in sorted(SIDES, reverse=number % 2 == 0):
                latencies = measure(bench, spark, topic, side, number)
                shares = {p: percentile(latencies, share) for p, share in SHARES.items()}
                for name, value in shares.items() if number >= 0 else ():
                    found[f"{side}.{name}"].append(value)
                bench.progress(
                    f"{side}: p50 {shares['p50']:.0f} ms, p99 {shares['p99']:.0f} ms, "
                    f"{len(latencies)} records"
                )
    for name in SHARES:
        ours, theirs = found[f"keyrange.{name}"], found[f"jvm.{name}"]
        yield ratio(f"{prefix}.{name}.vs_jvm", ours, theirs)
        yield from_runs(f"{prefix}.{name}.keyrange.ms", ours, "ms")
        yield from_runs(f"{prefix}.{name}.jvm.ms", theirs, "ms")
