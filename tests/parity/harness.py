"""Plays one scenario with one source and says what came of it.

Rule of this file: nothing here knows which source it plays; what differs is a `Side`'s format.
Unique names of topics are turned back into the scenario's own, so that outcomes can be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from brokers.real_broker import wait_until
from parity.causes import cause_of, text_of, texts_of
from parity.outcome import Outcome, Rows, Run, Scenario
from parity.stage import Stage

FORMATS = ("kafka", "keyrange")
FAILURES = (PySparkException, Py4JJavaError)
RUN_TIMEOUT_S = 150
# Neither source is to wait: the JVM connector does so at the end of every partition and before it
# asks again for what the cluster does not have.
BASE = {"kafka.fetch.max.wait.ms": "10", "fetchOffset.retryIntervalMs": "10"}

Hook = Callable[[], None]


class Sink:
    """A foreachBatch function that keeps what each batch held, the last time that it ran.

    `before` and `after` are called before and after a batch's rows are read, by batch id.
    """

    def __init__(self, side: Side, before: Mapping[int, Hook], after: Mapping[int, Hook]) -> None:
        self._side = side
        self._before, self._after = before, after
        self.batches: dict[int, Rows] = {}
        self.tasks: dict[int, int] = {}
        self.broken: list[BaseException] = []
        self.failure = ""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if hook := self._before.get(batch_id):
            self._guarded(hook)
        try:
            tasks = frame.rdd.getNumPartitions() if self._side.scenario.tasks else 0
            rows = self._side.collect(frame)
        except FAILURES as failure:
            # The query only says that a Python function failed.
            self.failure = text_of(failure)
            raise
        if hook := self._after.get(batch_id):
            self._guarded(hook)
        self.tasks[batch_id], self.batches[batch_id] = tasks, rows

    def count(self) -> int:
        return sum(map(len, list(self.batches.values())))

    def _guarded(self, hook: Hook) -> None:
        try:
            hook()
        except SinkFailure:
            raise
        except BaseException as failure:  # it must not be taken for the source's
            self.broken.append(failure)
            raise


class SinkFailure(RuntimeError):
    """A sink that fails because the scenario says so."""

    def __init__(self) -> None:
        super().__init__("the sink failed")


class Side:
    """A scenario being played with one format."""

    def __init__(
        self, scenario: Scenario, format_name: str, spark: SparkSession, shared: Stage, home: Path
    ) -> None:
        self.scenario, self.format = scenario, format_name
        self.spark, self.shared, self.home = spark, shared, home
        self.stage = Stage(shared.topics.cluster, spark)
        self.topics = self.stage.topics
        for name in scenario.topics:
            shared.topic(name)
        for name in scenario.own:
            self.stage.topic(name)
        self.runs: list[tuple[Run, bool]] = []
        self.notes: list[str] = []

    @property
    def names(self) -> dict[str, str]:
        """Real names of topics by what the scenario calls them."""
        return {**self.shared.names, **self.stage.names}

    def real(self, text: str) -> str:
        """A text with the real names of topics in the place of `<name>`."""
        known = {**self.names, "own": self.stage.token, "shared": self.shared.token}
        return re.sub(r"<([\w.-]+)>", lambda match: known[match[1]], text)

    def logical(self, text: str) -> str:
        """The reverse."""
        for name, real in sorted(self.names.items(), key=lambda pair: -len(pair[1])):
            text = text.replace(real, name)
        return text.replace(self.stage.token, "TOKEN")

    def options(self, over: Mapping[str, str | None]) -> dict[str, str]:
        given: dict[str, str | None] = {
            "kafka.bootstrap.servers": self.topics.cluster.bootstrap_servers,
            **BASE,
            **self.scenario.options,
            **over,
        }
        if self.format == "keyrange":
            given |= self.scenario.keyrange_only
        return {name: self.real(text) for name, text in given.items() if text is not None}

    def read(self, schema: str | None = None, **over: str | None) -> DataFrame | None:
        """A batch read; returns the frame, which may be read again."""
        reader = self.spark.read.format(self.format).options(**self.options(over))
        run = self._new_run()
        try:
            frame = (reader.schema(schema) if schema else reader).load()
        except FAILURES as failure:
            self._failed(run, "load", failure)
            return None
        self._read_into(run, frame)
        return frame

    def read_again(self, frame: DataFrame | None) -> None:
        run = self._new_run()
        if frame is not None:
            self._read_into(run, frame)

    def frame(self, schema: str | None = None, **over: str | None) -> DataFrame | None:
        """A streaming frame; None when it could not be loaded, which is a run of its own."""
        reader = self.spark.readStream.format(self.format).options(**self.options(over))
        try:
            return (reader.schema(schema) if schema else reader).load()
        except FAILURES as failure:
            self._failed(self._new_run(), "load", failure)
            return None

    def drain(
        self,
        frame: DataFrame | None = None,
        *,
        before: Mapping[int, Hook] | None = None,
        after: Mapping[int, Hook] | None = None,
        once: bool = False,
        **over: str | None,
    ) -> None:
        """Run a query with Trigger.AvailableNow (or Once) to its end."""
        frame = frame if frame is not None else self.frame(**over)
        if frame is None:
            return
        sink = Sink(self, before or {}, after or {})
        trigger: dict[str, Any] = {"once": True} if once else {"availableNow": True}
        with self._query(frame, sink, trigger, whole=True) as query:
            if query is not None:
                wait_for_end(query)

    @contextmanager
    def follow(
        self,
        frame: DataFrame | None = None,
        *,
        before: Mapping[int, Hook] | None = None,
        after: Mapping[int, Hook] | None = None,
        whole: bool = False,
        **over: str | None,
    ) -> Iterator[Following]:
        """Run a query with the default trigger while the body of the `with` goes on.

        `whole` says that the cut into batches is not by chance.
        """
        frame = frame if frame is not None else self.frame(**over)
        sink = Sink(self, before or {}, after or {})
        if frame is None:
            yield Following(None, sink)
            return
        trigger = {"processingTime": "0 seconds"}
        with self._query(frame, sink, trigger, whole=whole) as query:
            yield Following(query, sink)

    @contextmanager
    def as_kafka(self) -> Iterator[None]:
        """Let the JVM connector do what is done inside."""
        own, self.format = self.format, "kafka"
        try:
            yield
        finally:
            self.format = own

    def note(self, text: str) -> None:
        """Something that only this scenario knows how to tell; it becomes part of the result."""
        self.notes.append(text)

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    def uncommit(self, batch_id: int) -> None:
        """Take a batch's commit away, as a crash before it would have."""
        (self.checkpoint / "commits" / str(batch_id)).unlink()
        (self.checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)

    def outcome(self) -> Outcome:
        return Outcome(self.runs, self.notes)

    def collect(self, frame: DataFrame) -> Rows:
        """All columns of all rows, sorted; times as microseconds, which no time zone touches."""
        columns = [
            f"unix_micros({name}) AS {name}" if kind == "timestamp" else name
            for name, kind in frame.dtypes
        ]
        rows = [self._plain(row) for row in frame.selectExpr(*columns).collect()]
        return tuple(sorted(rows, key=repr))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._plain(each) for each in value)
        if isinstance(value, bytearray | bytes):
            return bytes(value)
        return self.logical(value) if isinstance(value, str) else value

    def _read_into(self, run: Run, frame: DataFrame) -> None:
        run.schema = str(frame.schema.json())
        try:
            run.batches = [self.collect(frame)]
            if self.scenario.tasks:
                run.tasks = [frame.rdd.getNumPartitions()]
        except FAILURES as failure:
            self._failed(run, "action", failure)

    def _new_run(self, whole: bool = True) -> Run:
        run = Run()
        self.runs.append((run, whole))
        return run

    def _failed(self, run: Run, phase: str, failure: BaseException | str) -> None:
        text = failure if isinstance(failure, str) else text_of(failure)
        run.ended, run.cause = phase, self.logical(cause_of(self.format, text))

    @contextmanager
    def _query(
        self, frame: DataFrame, sink: Sink, trigger: Mapping[str, Any], whole: bool
    ) -> Iterator[StreamingQuery | None]:
        run = self._new_run(whole)
        run.schema = str(frame.schema.json())
        writer = frame.writeStream.foreachBatch(sink).trigger(**trigger)
        try:
            query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        except FAILURES as failure:
            self._failed(run, "start", failure)
            yield None
            return
        try:
            yield query
            if whole:
                wait_until(lambda: not query.isActive or _counted(query, sink), RUN_TIMEOUT_S)
        finally:
            query.stop()
            if sink.broken:
                raise sink.broken[0]
            thrown = query._jsq.exception()
            if thrown.isDefined():
                self._failed(run, "run", sink.failure or "\n".join(texts_of(thrown.get())))
            self._tell(run, sink, query, whole)

    def _tell(self, run: Run, sink: Sink, query: StreamingQuery, whole: bool) -> None:
        counted = {each.batchId: each.numInputRows for each in query.recentProgress}
        for batch_id, rows in sorted(sink.batches.items()):
            run.batches.append(rows)
            # A query that runs on purges what it planned long ago.
            run.offsets.append(self.planned(batch_id) if whole else "")
            run.input_rows.append(counted.get(batch_id, -1))
            run.tasks.append(sink.tasks[batch_id])

    def planned(self, batch_id: int) -> str:
        """The offsets that Spark stored for a batch, of all sources, without keyrange's own key."""
        lines = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[2:]
        documents = [json.loads(line) for line in lines if line != "-"]
        plain = [
            {name: value for name, value in (each or {}).items() if not name.startswith("@")}
            for each in documents
        ]
        return self.logical(json.dumps(plain, sort_keys=True, separators=(",", ":")))


def _counted(query: StreamingQuery, sink: Sink) -> bool:
    """Whether the progress of every batch is there: it comes a little behind the sink."""
    return sink.batches.keys() <= {each.batchId for each in query.recentProgress}


@dataclass
class Following:
    """A query that runs on; every wait ends also when the query has ended."""

    query: StreamingQuery | None
    sink: Sink

    def until(self, condition: Callable[[], bool]) -> None:
        if self.query is not None:
            query = self.query
            wait_until(lambda: condition() or not query.isActive, RUN_TIMEOUT_S)

    def until_rows(self, count: int) -> None:
        self.until(lambda: self.sink.count() >= count)

    def until_batches(self, count: int) -> None:
        self.until(lambda: len(self.sink.batches) >= count)

    def until_seen(self, value: bytes) -> None:
        self.until(lambda: value in self.values())

    def until_end(self) -> None:
        self.until(lambda: False)

    def values(self) -> set[bytes]:
        """The values of all rows so far."""
        return {row[1] for rows in list(self.sink.batches.values()) for row in rows}


def wait_for_end(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(RUN_TIMEOUT_S), "the query does not come to an end"
    except FAILURES:
        pass  # it is asked for afterwards


def play(
    scenario: Scenario, format_name: str, spark: SparkSession, shared: Stage, home: Path
) -> Outcome:
    """Play a scenario with a format."""
    home.mkdir()
    side = Side(scenario, format_name, spark, shared, home)
    try:
        scenario.play(side)
    finally:
        side.stage.close()
    return side.outcome()


def play_both(
    scenario: Scenario, spark: SparkSession, shared: Stage, home: Path
) -> dict[str, Outcome]:
    """Play a scenario with both formats at once: most of the time is spent waiting."""
    for name in scenario.topics:
        shared.topic(name)
    with ThreadPoolExecutor(len(FORMATS)) as pool:
        played = {
            name: pool.submit(play, scenario, name, spark, shared, home / name) for name in FORMATS
        }
        return {name: future.result() for name, future in played.items()}
