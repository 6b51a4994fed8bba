"""Streams with executors in processes of their own, in the environment that they are started in:
`secured_stream.py HOME`. HOME/settings.json says which; HOME/results.json says how each ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import keyrange
from queries.pinned_cluster import CONFS
from spark.worker_python import WORKER_PYTHON

_WAITS_S = 450.0
# Longer than a session in all, and each wait shorter than one.
_PAUSE_S = 0.3


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Values, so slowly that a task reads for longer than its login lasts; option mapInArrow."""
    for batch in batches:
        time.sleep(_PAUSE_S)
        yield batch.select(["value"])


SLOWLY = {
    "mapInArrow": "platforms.secured_stream:slowly",
    "mapInArrowSchema": "value binary",
    "kafka.max.partition.fetch.bytes": "40000",
    "startingOffsets": "earliest",
}


def run_streams(
    home: Path,
    streams: Mapping[str, Mapping[str, str]],
    executors: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Run streams, by name with their options, one after the other until each has read all that is
    there; `executors` is an environment of theirs. Each with its `values`, and `failure` or ""."""
    confs = {f"spark.executorEnv.{name}": value for name, value in (executors or {}).items()}
    confs["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    (home / "settings.json").write_text(json.dumps({"streams": streams, "confs": confs}))
    with (home / "job.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(home)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={
                **os.environ,
                "PYSPARK_PYTHON": WORKER_PYTHON,
                "PYTHONPATH": confs["spark.executorEnv.PYTHONPATH"],
            },
            start_new_session=True,
        )
    try:
        process.wait(_WAITS_S)
        text = (home / "job.log").read_text(errors="replace")
        assert process.returncode == 0, _telling(text)
        results: dict[str, dict[str, Any]] = json.loads((home / "results.json").read_text())
        return results
    finally:
        if process.poll() is None:
            everyone = [process.pid]
            everyone += [each.pid for each in psutil.Process(process.pid).children(True)]
            for pid in everyone:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(120)


def _telling(text: str) -> str:
    """The end of a log, without the stacks of the JVM."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("\tat "))[-4000:]


def _run(spark: SparkSession, home: Path, name: str, options: Mapping[str, str]) -> dict[str, Any]:
    values: list[str] = []

    def collect(frame: DataFrame, _: int) -> None:
        values.extend(bytes(row.value)[:5].decode() for row in frame.select("value").collect())

    query = (
        spark.readStream.format("keyrange")
        .options(**options)
        .load()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(home / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
    )
    failure = ""
    try:
        query.awaitTermination()
    except Exception as raised:
        failure = str(raised)
    return {"values": values, "failure": failure}


def main(arguments: Sequence[str]) -> None:
    home = Path(arguments[0])
    settings = json.loads((home / "settings.json").read_text())
    builder = SparkSession.builder.master("local-cluster[1,2,640]").appName("logins")
    for name, value in {**CONFS, "spark.task.maxFailures": "1", **settings["confs"]}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    keyrange.register(spark)
    results = {
        name: _run(spark, home, name, options) for name, options in settings["streams"].items()
    }
    (home / "results.json").write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
