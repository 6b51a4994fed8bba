"""Group `latency_delta`: from a record's timestamp to when delta-rs can read it in a table, at a
steady 1,000 records a second.

`keyrange.job` and the JVM connector with Delta's sink, each in turn with the default trigger.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from bench.figures import Figure, at_most
from bench.latencies import SHARES, by_turns
from bench.registry import Bench, Group
from bench.visible import latencies_ms


def run(bench: Bench) -> Iterator[Figure]:
    yield from by_turns(bench, "latency.delta", _measure)


def _measure(bench: Bench, spark: SparkSession, topic: str, side: str, number: int) -> list[float]:
    """One query over some seconds, after a warm-up that does not count."""
    home = bench.directory / f"{side}-{number}"
    counts_from = time.time() + bench.pick(full=15.0, quick=10.0, tiny=2.0)
    end = counts_from + bench.pick(full=30.0, quick=15.0, tiny=2.0)
    seen_s: dict[int, float] = {}
    writer = _writer(bench, spark, topic, side, home)
    with watched(home / "table", seen_s):
        query = writer.start()
        try:
            # A slow machine may not have written a record yet: to make a table is a version too.
            while time.time() < end or not latencies_ms(home / "table", seen_s, counts_from):
                time.sleep(0.2)
                if not query.isActive:
                    raise RuntimeError(f"the query ended: {query.exception()}")
        finally:
            query.stop()
    return latencies_ms(home / "table", seen_s, counts_from)


def _writer(
    bench: Bench, spark: SparkSession, topic: str, side: str, home: Path
) -> DataStreamWriter:
    given = {
        "kafka.bootstrap.servers": bench.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "latest",
    }
    table, checkpoint = str(home / "table"), str(home / "checkpoint")
    if side == "keyrange":
        return keyrange.job(given).into(table, checkpoint, spark=spark)
    return (
        spark.readStream.format("kafka")
        .options(**given)
        .load()
        .writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .option("path", table)
    )


@contextmanager
def watched(table: Path, seen_s: dict[int, float]) -> Iterator[None]:
    """Have it said when versions of a table can be read."""
    command = [sys.executable, "-m", "bench.visible", str(table)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                version, at = line.split()
                seen_s[int(version)] = float(at)

        thread = Thread(target=listen)
        thread.start()
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError("what watches the table ended early")
        finally:
            assert process.stdin is not None
            process.stdin.close()
            thread.join()


GROUP = Group(
    name="latency_delta",
    order=3,
    run=run,
    targets={f"latency.delta.{share}.vs_jvm": at_most(0.8) for share in SHARES},
)
