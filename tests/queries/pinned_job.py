"""The driver of queries with pinned key ranges, in a process of its own: `pinned_job.py HOME`.

HOME/settings.json says how the session is made. Commands come on the standard input, a line of JSON
each; HOME/answers has a file for each that was carried out. A query says in HOME/NAME how it stands
and what its batches held, each batch as a file of its own: the one that ran last.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange

SCHEMA = "n long, partition int, offset long, key string, slot string, task string"
_STATUS_S = 0.1


def put(path: Path, document: Any) -> None:
    """Put a document in place whole."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(json.dumps(document))
    draft.replace(path)


def telling(pause_s: float, with_place: bool) -> Any:
    """A function that says of each row which slot and which attempt of a task it was read in, or
    "" for both. It is pickled whole: workers do not have this file."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import pyarrow as pa
        from pyspark import TaskContext

        import keyrange
        from keyrange.errors import KeyrangeError

        context = TaskContext.get()
        assert context is not None
        task = f"{context.partitionId()}.{context.attemptNumber()}"
        for batch in batches:
            try:
                slot = keyrange.slot().name
            except KeyrangeError:
                slot = ""
            time.sleep(pause_s)
            count = batch.num_rows
            columns = {
                "n": [int(value) for value in batch.column("value").to_pylist()],
                "partition": batch.column("partition"),
                "offset": batch.column("offset"),
                "key": [key.decode() for key in batch.column("key").to_pylist()],
                "slot": [slot if with_place else ""] * count,
                "task": [task if with_place else ""] * count,
            }
            yield pa.RecordBatch.from_pydict(columns)

    return tell


def marking(marks: str, pause_s: float) -> Any:
    """A function of a second stage: it says by a file where it runs, and takes its time."""

    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time
        from pathlib import Path

        from keyrange.members.executor import executor_process

        Path(marks, f"{executor_process().pid}-{os.getpid()}").touch()
        time.sleep(pause_s)
        yield from batches

    return mark


COUNTED = "key string, n long, partition int, offset long"


def counting(pause_s: float) -> Any:
    def count(record: Any, state: Any) -> Any:
        import time

        time.sleep(pause_s)
        total = state.total.get(default=0) + 1
        state.total.update(total)
        return record.key.decode(), total, record.partition, record.offset

    return count


class Driver:
    """A session and its queries."""

    def __init__(self, home: Path, settings: dict[str, Any]) -> None:
        self.home = home
        builder = SparkSession.builder.master(settings["master"]).appName("pinned")
        for name, value in settings["confs"].items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("WARN")
        self.queries: dict[str, StreamingQuery] = {}
        # Held while it is said how they stand: nothing is said of one that was stopped.
        self.saying = threading.Lock()
        threading.Thread(target=self.tell, daemon=True).start()

    def tell(self) -> None:
        """Say how each query stands, again and again."""
        told: dict[str, dict[str, Any]] = {}
        while True:
            with self.saying:
                for name, query in list(self.queries.items()):
                    told[name] = standing(query, told.get(name, {}))
                    put(self.home / name / "status.json", told[name])
            time.sleep(_STATUS_S)

    def follow(self) -> None:
        (self.home / "answers").mkdir(exist_ok=True)
        put(self.home / "answers" / "0", "ready")
        for number, line in enumerate(sys.stdin, 1):
            command = json.loads(line)
            getattr(self, f"do_{command.pop('do')}")(**command)
            put(self.home / "answers" / str(number), "done")

    def do_start(self, name: str, options: dict[str, str], pause_s: float, shuffle: bool) -> None:
        home = self.home / name
        for place in ("batches", "marks"):
            (home / place).mkdir(parents=True, exist_ok=True)

        def each(frame: DataFrame, batch_id: int) -> None:
            # Spark fails a job whose stage yields other rows when it is run again.
            told = frame.mapInArrow(telling(pause_s, with_place=not shuffle), SCHEMA)
            if shuffle:
                told = told.repartition(2, "key")
                told = told.mapInArrow(marking(str(home / "marks"), 10 * pause_s), SCHEMA)
            put(home / "batches" / str(batch_id), [list(row) for row in told.collect()])

        if shuffle:
            # Stages that are run again are told at this level.
            self.spark.sparkContext.setLogLevel("INFO")
        frame = self.spark.readStream.format("keyrange").options(**options).load()
        writer = frame.writeStream.foreachBatch(each)
        self.queries[name] = writer.option("checkpointLocation", str(home / "checkpoint")).start()

    def do_start_counting(
        self, name: str, place: str, options: dict[str, str], pause_s: float
    ) -> None:
        """A job that counts the records of each key by its state; `place` is for its checkpoint and
        its table."""
        (self.home / name).mkdir(parents=True, exist_ok=True)
        job = keyrange.job(
            options, counting(pause_s), COUNTED, state={"total": keyrange.ValueState("n long")}
        )
        writer = job.into(f"{place}/table", f"{place}/checkpoint", spark=self.spark)
        self.queries[name] = writer.start()

    def do_stop(self, name: str) -> None:
        self.queries[name].stop()
        with self.saying:
            del self.queries[name]

    def do_executors(self, count: int) -> None:
        """How many executors Spark is to have; those that it has stay."""
        context: Any = self.spark.sparkContext
        nobody = context._jvm.PythonUtils.toScalaMap(context._jvm.java.util.HashMap())
        assert context._jsc.sc().requestTotalExecutors(count, 0, nobody)


def standing(query: StreamingQuery, before: dict[str, Any]) -> dict[str, Any]:
    """How a query stands, which stood as `before` says a moment ago."""
    failure, progress = query.exception(), query.lastProgress
    if progress is None:
        return {"failure": failure and str(failure), "batch": -1, "ms": 0, "members": {}}
    if progress["timestamp"] == before.get("at"):
        # All progresses that Spark remembers are dear to ask for.
        return {**before, "failure": failure and str(failure)}
    latest = progress["sources"][0]["latestOffset"]
    document = json.loads(latest) if isinstance(latest, str) else latest
    told = [json.loads(each.json).get("observedMetrics", {}) for each in query.recentProgress]
    restored = sum(each.get("keyrange", {}).get("state_restored_bytes") or 0 for each in told)
    metrics = (document or {}).get("@keyrange", {}).get("metrics", {})
    return {
        "failure": failure and str(failure),
        "at": progress["timestamp"],
        "batch": progress["batchId"],
        "ms": progress["durationMs"].get("addBatch", 0),
        "members": metrics.get("members", {}),
        # In the batches that Spark remembers.
        "restored": restored,
    }


def main() -> None:
    home = Path(sys.argv[1])
    Driver(home, json.loads((home / "settings.json").read_text())).follow()
    # Neither tasks nor callbacks are waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
