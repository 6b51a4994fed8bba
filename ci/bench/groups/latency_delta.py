"""Group `latency_delta`: from a record's timestamp to when delta-rs can read it in a table, at a
steady 1,000 records a second.

`keyrange.job` and the JVM connector with Delta's sink, each in turn with the default trigger.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.companions import companion
from bench.figures import Figure, at_most
from bench.groups.ingest import PLAIN
from bench.latencies import SHARES, beside_delta
from bench.queries import running, wait
from bench.registry import Bench, Group
from bench.visible import latencies_ms


def run(bench: Bench) -> Iterator[Figure]:
    yield from beside_delta(bench, "latency.delta", _measure)


def _measure(bench: Bench, spark: SparkSession, topic: str, side: str, number: int) -> list[float]:
    """One query over some seconds, after a warm-up that does not count."""
    home = bench.directory / f"{side}-{number}"
    counts_from = time.time() + bench.pick(full=15.0, quick=10.0, tiny=2.0)
    end = counts_from + bench.pick(full=30.0, quick=15.0, tiny=2.0)
    seen_s: dict[int, float] = {}
    writer = PLAIN[side](spark, bench.reading(topic, "latest"), home)

    def found() -> list[float]:
        return latencies_ms(home / "table", seen_s, counts_from)

    with watched(home / "table", seen_s), running(writer.start()) as query:
        # A slow machine may not have written a record yet: to make a table is a version too.
        wait(query, lambda: time.time() >= end and found())
    return found()


def watched(table: Path, seen_s: dict[int, float]) -> AbstractContextManager[None]:
    """Have it said when versions of a table can be read."""

    def heard(line: str) -> None:
        version, at = line.split()
        seen_s[int(version)] = float(at)

    return companion("bench.visible", table, heard=heard)


GROUP = Group(
    order=3,
    run=run,
    targets={f"latency.delta.{share}.vs_jvm": at_most(0.8) for share in SHARES},
)
